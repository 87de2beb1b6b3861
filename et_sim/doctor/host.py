"""The computer that et-sim runs on: cores, memory, a browser for the HTML pages."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from et_sim.basics.units import format_bytes


class Finding(Struct, frozen=True):
    """What was found; a `problem` is a sentence, with its `remedy`."""

    topic: str
    name: str
    found: str
    expected: str = ""
    problem: str = ""
    remedy: str = ""


TOPIC = "computer"
LEAST_MEMORY = 512 * 2**20  # what a run of some size takes, the compiler included


def examine_host() -> Iterator[Finding]:
    """Findings about it."""
    yield Finding(TOPIC, "system", f"{platform.system()} {platform.machine()}")
    yield Finding(TOPIC, "cores", str(_cores()))
    yield _memory()
    yield Finding(TOPIC, "browser", _browser() or "none found; HTML pages can be opened elsewhere")


def _cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> Finding:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        total, free = kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024
    except (OSError, ValueError, KeyError, IndexError):
        return Finding(TOPIC, "memory", "unknown on this system")
    amounts = f"{format_bytes(total)}, {format_bytes(free)} of them free"
    if free >= LEAST_MEMORY:
        return Finding(TOPIC, "memory", amounts)
    problem = f"only {format_bytes(free)} of memory are free, and compiling may fail"
    return Finding(TOPIC, "memory", amounts, problem=problem, remedy="end other programs")


def _browser() -> str:
    import webbrowser

    try:
        return str(webbrowser.get().name)
    except webbrowser.Error:
        return ""
