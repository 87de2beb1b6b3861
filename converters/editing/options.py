"""Options that edits share; imports little, so that the command line starts quickly."""

from __future__ import annotations

import argparse

from et_sim.basics.errors import UsageError


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """-o and --json, which all edits have."""
    parser.add_argument("input", metavar="INPUT", help="PREFIX for PREFIX.<rank>.et, a manifest, or a file")
    parser.add_argument(
        "-o",
        "--output",
        metavar="PREFIX",
        required=True,
        help="write PREFIX.0.et, … (or PREFIX.workload.json)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def number_ranges(option: str, text: str) -> list[range]:
    """The numbers of "0-3,6", as ranges in the order given."""
    import re

    found = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,20})(?:-([0-9]{1,20}))?\s*", piece, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise UsageError(
                f"{option} {text!r} cannot be understood", remedy='give numbers and ranges such as "1-3,7"'
            )
        found.append(range(first, last + 1))
    return found
