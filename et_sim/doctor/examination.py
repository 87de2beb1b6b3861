"""Everything that is looked at, in the order in which it is told."""

from __future__ import annotations

from collections.abc import Iterator

from et_sim.doctor.host import Finding, examine_host
from et_sim.doctor.packages import MISSING, examine_packages


def examine() -> Iterator[Finding]:
    """One finding after the other; the results of known runs come last, because they take longest."""
    packages = list(examine_packages())
    yield from packages
    yield from examine_host()
    if any(package.found == MISSING for package in packages):
        return  # the rest cannot even be loaded
    from et_sim.doctor.cache import examine_cache, examine_compiling
    from et_sim.doctor.self_test import examine_results

    yield from examine_compiling()
    yield from examine_cache()
    yield from examine_results()
