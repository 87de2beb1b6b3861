"""`et-sim calibrate`: fit a machine to measurements, and write it as a machine that can be named.

Not here: the fits (`et_sim.calibrate`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from et_sim.cli import calibrate_nccl

FITS = (calibrate_nccl,)


def add_parser(commands: Any) -> None:
    """Register the command and its sub-commands."""
    parser = commands.add_parser(
        "calibrate",
        help="fit a machine to measurements",
        description="Fit a machine by name to what was measured on it. Says how far off it is, on what was"
        " fitted and on what was left out. What is written is a machine that can be named:"
        " --machine machine.json:128.",
    )
    fits = parser.add_subparsers(metavar="WHAT", required=True)
    for fit in FITS:
        fit.add_parser(fits)


def write_machine(machine: dict[str, Any], target: Path) -> None:
    """As a file that can be named as a machine."""
    from et_sim.views.files import new_file

    with new_file(target) as sink:
        sink.write((json.dumps(machine, indent=2, ensure_ascii=False) + "\n").encode())
