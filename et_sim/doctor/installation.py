"""Tests of an installation: packages, the computer, machine code on disk, and runs with known results.

The cases are files in `cases/`: golden cases of the reference, each with its origin (`tests/golden/data` has
all of them), simulated like any other run of this installation.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.command_line import processors
from et_sim.basics.errors import EtSimError, UsageError
from et_sim.basics.units import format_bytes, parse_ranks, plural
from et_sim.basics.versions import is_within, version_of
from et_sim.compiled.compile_queue import FAILED, failure
from et_sim.compiled.entry_points import choice
from et_sim.compiled.numba_version import CHECKED, public_reason
from et_sim.compiled.shipped import shipped_code_text
from et_sim.compiled.store import ENDING, cache_directory, chosen_root, size_of, versions_in
from et_sim.version import __version__


class Finding(Struct, frozen=True):
    """A finding; a `problem` is a sentence, with its `remedy`."""

    topic: str
    name: str
    found: str
    expected: str = ""
    problem: str = ""
    remedy: str = ""


COMPUTER = "computer"
LEAST_MEMORY = 512 * 2**20  # for a run of some size, with the compiler


def examine_host() -> Iterator[Finding]:
    """Yield findings about the computer."""
    yield Finding(COMPUTER, "system", f"{platform.system()} {platform.machine()}")
    yield Finding(COMPUTER, "cores", str(processors()))
    yield _memory()
    yield Finding(COMPUTER, "browser", _browser() or "none found; HTML pages can be opened elsewhere")


def _memory() -> Finding:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        total, free = kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return Finding(COMPUTER, "memory", "unknown on this system")
    amounts = f"{format_bytes(total)}, {format_bytes(free)} of them free"
    if free >= LEAST_MEMORY:
        return Finding(COMPUTER, "memory", amounts)
    problem = f"only {format_bytes(free)} of memory are free, and compiling may fail"
    return Finding(COMPUTER, "memory", amounts, problem=problem, remedy="end other programs")


def _browser() -> str:
    import webbrowser

    try:
        return str(webbrowser.get().name)
    except webbrowser.Error:
        return ""


CACHE = "cache"
LEAST_ROOM = 200 * 10**6  # for machine code of one version, with a margin
MODES = {
    "": "short runs are interpreted, others compiled once",
    "now": "always compiled, before the run",
    "background": "compiled in the background, without waiting",
    "never": "never compiled: results are the same, but long runs take far longer",
}


def examine_compiling() -> Iterator[Finding]:
    """Yield a finding about ET_SIM_COMPILE, or Numba's own switch."""
    try:
        chosen = choice()
    except UsageError as error:
        setting = os.environ["ET_SIM_COMPILE"]
        yield Finding("compiling", "ET_SIM_COMPILE", setting, problem=error.cause, remedy=error.remedy)
        return
    yield Finding("compiling", "ET_SIM_COMPILE", f"{chosen or 'not set'}: {MODES[chosen]}")


def examine_cache() -> Iterator[Finding]:
    """Yield the place of the cache, its contents, and the free space on its disk."""
    wanted = chosen_root()
    try:
        used = cache_directory()
    except UsageError as error:
        yield Finding(
            CACHE, "place", str(wanted), problem=f"{error.place}: {error.cause}", remedy=error.remedy
        )
        return
    if used.parent == wanted.resolve():
        yield Finding(CACHE, "place", f"{used}, writable")
    else:
        problem = f"{wanted} cannot be written, so machine code is kept in {used}, which may not last"
        remedy = "make it writable, or set ET_SIM_CACHE_DIR to a directory that is"
        yield Finding(CACHE, "place", str(used), str(wanted), problem, remedy)
    yield Finding(CACHE, "compiled", _forms(used))
    yield _compiler(used)
    yield Finding(CACHE, "brought along", shipped_code_text())
    yield from _failures(used)
    all_versions = [path for _, path in versions_in(used.parent)]
    size = format_bytes(sum(map(size_of, all_versions)))
    yield Finding(
        CACHE, "size", f"{format_bytes(size_of(used))}; with other versions' {size} ({len(all_versions)})"
    )
    yield _room(used)


def _forms(directory: Path) -> str:
    """Return the compiled functions, with the number of kinds of data of each."""
    counts = Counter(path.name.rpartition("-")[0] for path in directory.glob("*" + ENDING))
    if not counts:
        return "nothing yet; a first run that is long waits some seconds for it"
    return ", ".join(f"{name} ({plural(count, 'kind')})" for name, count in sorted(counts.items()))


def _compiler(directory: Path) -> Finding:
    """Return whether et-sim's own compiler is in use, or public Numba alone."""
    reason = public_reason(directory)
    if not reason:
        return Finding(CACHE, "compiler", "et-sim's own, inside of Numba")
    problem = f"public Numba alone compiles, which takes several times as long: {reason}"
    return Finding(CACHE, "compiler", "public Numba", problem=problem, remedy=f"pip install 'numba{CHECKED}'")


def _failures(directory: Path) -> Iterator[Finding]:
    """Yield the recent failures of compilation."""
    for path in sorted(directory.glob("*" + FAILED)):
        if reason := failure(path):
            name = path.name.rpartition("-")[0]
            problem = f"{name} could not be compiled, and is interpreted: {reason}"
            remedy = f"see {directory / 'worker.log'}; remove {path} to try again"
            yield Finding(CACHE, "failed", name, problem=problem, remedy=remedy)


def _room(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    space = f"{format_bytes(free)} free"
    if free >= LEAST_ROOM:
        return Finding(CACHE, "disk", space)
    problem = f"the disk of {directory} has only {space}, and machine code may not fit"
    return Finding(CACHE, "disk", space, problem=problem, remedy="make room, or set ET_SIM_CACHE_DIR")


SELF_TEST = "self-test"
CASES = Path(__file__).with_name("cases")
REMEDY = "install et-sim anew; if that does not help, report it with the output of et-sim doctor --json"


def examine_results() -> Iterator[Finding]:
    """Yield one finding for each case, and the time of all of them."""
    begin = time.monotonic()
    for path in sorted(CASES.glob("*.json")):
        yield _judged_case(json.loads(path.read_text(encoding="utf-8")))
    yield Finding(SELF_TEST, "time", f"{time.monotonic() - begin:.1f} s")


def _judged_case(case: dict[str, Any]) -> Finding:
    name, wanted = case["name"], case["finish_ns"]
    expected = f"{max(wanted):,} ns"
    try:
        finish = _simulated(case)
    except EtSimError as error:
        problem = f"the case {name} is refused: {error}"
        return Finding(SELF_TEST, name, "nothing", expected, problem, REMEDY)
    except Exception as error:  # this command exists to report what is broken
        problem = f"the case {name} fails with {type(error).__name__}: {error}"
        return Finding(SELF_TEST, name, "nothing", expected, problem, REMEDY)
    makespan = f"{max(finish):,} ns"
    if finish == wanted:
        return Finding(SELF_TEST, name, makespan, expected)
    rank = next(rank for rank, both in enumerate(zip(finish, wanted, strict=True)) if both[0] != both[1])
    problem = (
        f"in the case {name}, rank {rank} finishes at {finish[rank]:,} ns in place of {wanted[rank]:,} ns"
    )
    return Finding(SELF_TEST, name, makespan, expected, problem, REMEDY)


def _simulated(case: dict[str, Any]) -> list[int]:
    """Return when each rank finishes."""
    from et_sim import api

    with tempfile.TemporaryDirectory(prefix="et-sim-doctor-") as folder:
        workload = Path(folder, "workload")
        if isinstance(case["workload"], str):
            workload.write_text(case["workload"], encoding="utf-8")
        else:
            for ranks, trace in case["workload"].items():
                for rank in (rank for part in parse_ranks(ranks) for rank in part):
                    Path(f"{workload}.{rank}.et").write_bytes(base64.b64decode(trace))
        machine = {name: case[name] for name in ("system", "network", "groups") if name in case}
        result = api.simulate(workload, model=case["model"], **machine)
        return [int(finish) for finish in result.finish_ns]


PACKAGE = "et-sim"
VERSIONS = "versions"
MISSING = "missing"
# Optional: packages that take tables.
OPTIONAL = {"pandas": "tables as data frames of its own", "polars": "tables as data frames of its own"}
_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[[^]]*\])?\s*\(?([^;)]*)\)?\s*(;.*)?")


def examine_packages() -> Iterator[Finding]:
    """Yield et-sim, Python, the required packages, those that numba requires, and the optional ones."""
    yield Finding(VERSIONS, PACKAGE, __version__)
    try:
        about = metadata(PACKAGE)
    except PackageNotFoundError:
        yield Finding(
            VERSIONS,
            "packages",
            "unknown",
            problem="et-sim is not installed as a package, so its required versions are unknown",
            remedy="install it: pip install .",
        )
        return
    yield _judged_version("Python", platform.python_version(), about["Requires-Python"] or "", "")
    for name, range_ in _requirements(about.get_all("Requires-Dist") or []):
        yield _required(name, range_)
        if name == "numba" and version_of(name):
            of_numba = _requirements(metadata(name).get_all("Requires-Dist") or [])
            yield from (_required(*requirement) for requirement in of_numba if requirement[0] == "llvmlite")
    for name, use in OPTIONAL.items():
        yield Finding("optional", name, version_of(name) or f"not installed; only for {use}")


def _requirements(lines: list[str]) -> list[tuple[str, str]]:
    """Return (package, range) of the packages that are always required."""
    matches = [match for line in lines if (match := _REQUIREMENT.fullmatch(line))]
    return [(match[1], match[2].strip()) for match in matches if "extra" not in (match[3] or "")]


def _required(name: str, range_: str) -> Finding:
    if version := version_of(name):
        return _judged_version(name, version, range_, f"pip install '{name}{range_}'")
    problem = f"{name} is missing"
    return Finding(VERSIONS, name, MISSING, range_, problem, f"pip install '{name}{range_}'")


def _judged_version(name: str, version: str, range_: str, remedy: str) -> Finding:
    if is_within(version, range_):
        return Finding(VERSIONS, name, version, range_)
    problem = f"{name} {version} is outside of the versions that et-sim is tested with ({range_})"
    return Finding(VERSIONS, name, version, range_, problem, remedy or f"use {name}{range_}")


def examine() -> Iterator[Finding]:
    """Yield all findings; the results of known runs come last, because they take longest."""
    packages = list(examine_packages())
    yield from packages
    yield from examine_host()
    if any(package.found == MISSING for package in packages):
        return  # the rest cannot be imported

    yield from examine_compiling()
    yield from examine_cache()
    yield from examine_results()
