"""The commands of `et-convert`, one module each; see `converters.cli` for what a module must have.

Modules here are imported for `--help`, so they import what they need when they run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from et_sim.basics.errors import UsageError

FILE_PER_RANK = "write PREFIX.0.et, PREFIX.1.et, …"
MOST_FILES = 4096


def add_input(parser: argparse.ArgumentParser) -> None:
    """The workload that a command reads."""
    parser.add_argument("input", metavar="INPUT", help="PREFIX for PREFIX.<rank>.et, a manifest, or a file")


def add_output(parser: argparse.ArgumentParser, text: str = FILE_PER_RANK) -> None:
    """-o, which names what is written."""
    parser.add_argument("-o", "--output", metavar="PREFIX", required=True, help=text)


def add_report(parser: argparse.ArgumentParser, run: Callable[[Any], Iterator[str]]) -> None:
    """--json, and what the command does."""
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(run=run)


def number_ranges(option: str, text: str) -> list[range]:
    """The numbers of "0-3,6", as ranges in the order given."""
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
