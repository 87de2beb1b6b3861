"""All examinations, in the order of the report."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, version

from et_sim.doctor.host import Finding, examine_host
from et_sim.version import __version__

PACKAGE = "et-sim"
TOPIC = "versions"
MISSING = "missing"
# Not required: what tables can be handed to.
OPTIONAL = {"pandas": "tables as data frames of its own", "polars": "tables as data frames of its own"}
_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[[^]]*\])?\s*\(?([^;)]*)\)?\s*(;.*)?")
_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|~=|<|>)\s*([\w.*+!-]+)\s*")


def examine_packages() -> Iterator[Finding]:
    """et-sim, Python, what is required, what numba requires of its compiler, and what is optional."""
    yield Finding(TOPIC, PACKAGE, __version__)
    try:
        about = metadata(PACKAGE)
    except PackageNotFoundError:
        yield Finding(
            TOPIC,
            "packages",
            "unknown",
            problem="et-sim is not installed as a package, so nobody can tell which versions it needs",
            remedy="install it: pip install .",
        )
        return
    yield _judged("Python", platform.python_version(), about["Requires-Python"] or "", "")
    for name, range_ in _requirements(about.get_all("Requires-Dist") or []):
        yield _required(name, range_)
        if name == "numba" and _version(name):
            of_numba = _requirements(metadata(name).get_all("Requires-Dist") or [])
            yield from (_required(*requirement) for requirement in of_numba if requirement[0] == "llvmlite")
    for name, use in OPTIONAL.items():
        yield Finding("optional", name, _version(name) or f"not installed; only for {use}")


def is_within(version: str, range_: str) -> bool:
    """Whether a version is in a range such as ">=0.61,<0.69"."""
    return all(_agrees(version, *clause) for clause in _CLAUSE.findall(range_))


def _agrees(version: str, relation: str, wanted: str) -> bool:
    here, there = _numbers(version), _numbers(wanted)
    if relation in ("==", "!=") and wanted.endswith(".*"):
        here = here[: len(there)]
    if relation == "~=":
        return here >= there and here[: len(there) - 1] == there[:-1]
    length = max(len(here), len(there))
    left, right = (part + (0,) * (length - len(part)) for part in (here, there))
    holds = {">=": left >= right, "<=": left <= right, "==": left == right, "!=": left != right}
    return (holds | {"<": left < right, ">": left > right})[relation]


def _numbers(text: str) -> tuple[int, ...]:
    """The release of a version: "0.61.0rc1" is (0, 61, 0)."""
    release = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, release[0].split("."))) if release else ()


def _requirements(lines: list[str]) -> list[tuple[str, str]]:
    """(package, range) of those that are always needed."""
    matches = [match for line in lines if (match := _REQUIREMENT.fullmatch(line))]
    return [(match[1], match[2].strip()) for match in matches if "extra" not in (match[3] or "")]


def _required(name: str, range_: str) -> Finding:
    if version := _version(name):
        return _judged(name, version, range_, f"pip install '{name}{range_}'")
    problem = f"{name} is missing"
    return Finding(TOPIC, name, MISSING, range_, problem, f"pip install '{name}{range_}'")


def _judged(name: str, version: str, range_: str, remedy: str) -> Finding:
    if is_within(version, range_):
        return Finding(TOPIC, name, version, range_)
    problem = f"{name} {version} is outside of the versions that et-sim is tested with ({range_})"
    return Finding(TOPIC, name, version, range_, problem, remedy or f"use {name}{range_}")


def _version(name: str) -> str:
    """Of an installed package, without importing it; empty: there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


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
