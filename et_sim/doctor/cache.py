"""Machine code on disk: where it is kept, what is there, whether more can be added, and if it is used."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_bytes, plural
from et_sim.compiled.entry_points import choice
from et_sim.compiled.orders import FAILED, failure
from et_sim.compiled.shipped import what_came
from et_sim.compiled.store import ENDING, cache_directory, chosen_root, size_of, versions_in
from et_sim.doctor.host import Finding

TOPIC = "cache"
LEAST_ROOM = 200 * 10**6  # what a version's machine code may take, and a little more
MODES = {
    "": "interpreted while little is to do; else compiled, once",
    "now": "always waits until it is compiled",
    "background": "compiled in the background, and never waited for",
    "never": "never compiled: results are the same, but long runs take far longer",
}


def examine_compiling() -> Iterator[Finding]:
    """What ET_SIM_COMPILE, or Numba's own switch, says."""
    try:
        chosen = choice()
    except UsageError as error:
        setting = os.environ["ET_SIM_COMPILE"]
        yield Finding("compiling", "ET_SIM_COMPILE", setting, problem=error.cause, remedy=error.remedy)
        return
    yield Finding("compiling", "ET_SIM_COMPILE", f"{chosen or 'not set'}: {MODES[chosen]}")


def examine_cache() -> Iterator[Finding]:
    """The place, what it holds, and the room on its disk."""
    wanted, used = chosen_root(), cache_directory()
    if used.parent == wanted.resolve():
        yield Finding(TOPIC, "place", f"{used}, writable")
    else:
        problem = f"{wanted} cannot be written, so machine code is kept in {used}, which may not last"
        remedy = "make it writable, or set ET_SIM_CACHE_DIR to a directory that is"
        yield Finding(TOPIC, "place", str(used), str(wanted), problem, remedy)
    yield Finding(TOPIC, "compiled", _forms(used))
    yield Finding(TOPIC, "brought along", what_came())
    yield from _failures(used)
    all_versions = [path for _, path in versions_in(used.parent)]
    size = format_bytes(sum(map(size_of, all_versions)))
    yield Finding(
        TOPIC, "size", f"{format_bytes(size_of(used))}; with other versions' {size} ({len(all_versions)})"
    )
    yield _room(used)


def _forms(directory: Path) -> str:
    """The functions that are compiled, and for how many kinds of data each."""
    counts = Counter(path.name.rpartition("-")[0] for path in directory.glob("*" + ENDING))
    if not counts:
        return "nothing yet; a first run that is long waits some seconds for it"
    return ", ".join(f"{name} ({plural(count, 'kind')})" for name, count in sorted(counts.items()))


def _failures(directory: Path) -> Iterator[Finding]:
    """What could not be compiled not long ago."""
    for path in sorted(directory.glob("*" + FAILED)):
        if reason := failure(path):
            name = path.name.rpartition("-")[0]
            problem = f"{name} could not be compiled, and is interpreted: {reason}"
            remedy = f"see {directory / 'worker.log'}; remove {path} to try again"
            yield Finding(TOPIC, "failed", name, problem=problem, remedy=remedy)


def _room(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    space = f"{format_bytes(free)} free"
    if free >= LEAST_ROOM:
        return Finding(TOPIC, "disk", space)
    problem = f"the disk of {directory} has only {space}, and machine code may not fit"
    return Finding(TOPIC, "disk", space, problem=problem, remedy="make room, or set ET_SIM_CACHE_DIR")
