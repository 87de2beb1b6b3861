"""`et-sim calibrate`: fit a machine to measurements, and write it as a machine that can be named.

Not here: the fits (`et_sim.calibrate`).
"""

from __future__ import annotations

from typing import Any

from et_sim.cli import calibrate_kernels, calibrate_nccl, calibrate_recording, calibrate_step


def add_parser(commands: Any) -> None:
    """Register the command and its sub-commands."""
    parser = commands.add_parser(
        "calibrate",
        description="Fit a machine by name to what was measured on it. Says how far off it is, on what was"
        " fitted and on what was left out. What is written is a machine that can be named:"
        " --machine machine.json:128.",
    )
    fits = parser.add_subparsers(metavar="WHAT", required=True)
    for fit in (calibrate_kernels, calibrate_recording, calibrate_nccl, calibrate_step):
        fit.add_parser(fits)
