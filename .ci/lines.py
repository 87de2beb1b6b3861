"""Lines of code by room, beside those in `.ci/lines.txt`; with --write, the file is renewed.

python .ci/lines.py [--write]
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATED = ROOT / ".ci" / "lines.txt"


def lines_by_room() -> dict[str, int]:
    """Return the lines of Python modules in each room of the packages, and in the tests."""
    counts: dict[str, int] = {}
    for package in ("et_sim", "converters", "recorder", "tests", "benchmarks"):
        for path in (ROOT / package).rglob("*.py"):
            inside = path.relative_to(ROOT).parts
            room = "/".join(inside[:2]) if package == "et_sim" and len(inside) > 2 else package
            counts[room] = counts.get(room, 0) + len(path.read_text(encoding="utf-8").splitlines())
    counts["all of et_sim"] = sum(count for room, count in counts.items() if room.startswith("et_sim"))
    return dict(sorted(counts.items()))


def stated() -> dict[str, int]:
    """Return the lines that the file states."""
    rows = STATED.read_text(encoding="utf-8").splitlines()
    return {room: int(count) for count, room in (row.strip().split(" ", 1) for row in rows)}


def main() -> None:
    """Print the rooms whose lines have changed, or renew the file."""
    now = lines_by_room()
    if "--write" in sys.argv:
        STATED.write_text("".join(f"{count:7d} {room}\n" for room, count in now.items()), encoding="utf-8")
        return
    before = stated()
    print("== lines of rooms that have changed")
    for room in sorted(now.keys() | before.keys()):
        change = now.get(room, 0) - before.get(room, 0)
        if change:
            print(f"{now.get(room, 0):8,} {change:+6,}  {room}")


if __name__ == "__main__":
    main()
