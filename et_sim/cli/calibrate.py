"""`et-sim calibrate`: fit a machine to measurements, and write it as a machine that can be named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from et_sim.basics.declared_options import Command
from et_sim.cli import (
    calibrate_kernels,
    calibrate_nccl,
    calibrate_recording,
    calibrate_serving,
    calibrate_step,
    calibrate_variation,
)


class Options(Command):
    """Fit a machine by name, or an engine, to measurements on it. Prints the errors on the rows that were
    fitted and on rows that were left out. The result is a machine that can be named, as in --machine
    machine.json:128, or an engine of et-sim serve.
    """

    commands: ClassVar[Mapping[str, Any]] = {
        "kernels": calibrate_kernels,
        "recording": calibrate_recording,
        "nccl": calibrate_nccl,
        "serving": calibrate_serving,
        "step": calibrate_step,
        "variation": calibrate_variation,
    }
