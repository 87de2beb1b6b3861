"""The commands of `et-convert`, one module each; `converters.cli` states the contents of a module.

Modules are imported for `--help`, so each imports its needs when it runs.
"""

from __future__ import annotations

from typing import Annotated

from et_sim.basics.declared_options import Argument, Option
from et_sim.basics.errors import UsageError

MOST_FILES = 4096


WRITTEN = "-o --output"
WorkloadInput = Annotated[str, "PREFIX for PREFIX.<rank>.et, a manifest, or a file", "INPUT", Argument()]
Output = Annotated[str, "write PREFIX.0.et, PREFIX.1.et, …", "PREFIX", Option(WRITTEN)]
EditedOutput = Annotated[str, "write PREFIX.0.et, … (or PREFIX.workload.json)", "PREFIX", Option(WRITTEN)]
JsonReport = Annotated[bool, "print the report as JSON"]


def number_ranges(option: str, text: str) -> list[range]:
    """Return the numbers of "0-3,6" as ranges, in the order of the text."""
    import re

    ranges = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,20})(?:-([0-9]{1,20}))?\s*", piece, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise UsageError(
                f"{option} {text!r} cannot be understood", remedy='give numbers and ranges such as "1-3,7"'
            )
        ranges.append(range(first, last + 1))
    return ranges
