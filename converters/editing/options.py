"""Options that edits share; imports nothing, so that the command line starts quickly."""

from __future__ import annotations

import argparse


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
