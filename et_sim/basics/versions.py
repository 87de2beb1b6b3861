"""Versions of packages, compared by the numbers of their releases."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|~=|<|>)\s*([\w.*+!-]+)\s*")


def version_of(package: str) -> str:
    """Return the version of an installed package without importing it; empty if there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def is_within(version: str, range_: str) -> bool:
    """Return whether a version is in a range such as ">=0.61,<0.69"."""
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
    """Return the release of a version: "0.61.0rc1" is (0, 61, 0)."""
    release = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, release[0].split("."))) if release else ()
