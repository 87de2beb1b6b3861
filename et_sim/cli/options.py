"""Options of runs on the command line: one for each field of `RunOptions`."""

from __future__ import annotations

import argparse
import math
from dataclasses import fields
from typing import Any

from et_sim.basics.errors import UsageError
from et_sim.run.options import DEFAULTS, HELP, RunOptions


def parse_share(text: str, option: str) -> float:
    """The number; `what` is asked for."""
    number, percent = text.strip().removesuffix("%").strip(), text.strip().endswith("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if not (math.isfinite(share) and share >= 0):
        raise UsageError(
            f"{option} {text!r} cannot be understood", remedy="give a share from 0 on, such as 2% or 0.02"
        )
    return share


OF_COMMANDS = ("other_profile",)  # what commands decide themselves
NETWORK_MODEL = "--network-model"  # of a run; --model is the neural network's wherever a command has it


def add_run_options(parser: argparse._ActionsContainer, *names: str) -> None:
    """Add the options of these names, or all."""
    for name in names or tuple(name for name in HELP if name not in OF_COMMANDS):
        default: Any = DEFAULTS[name]
        flag, text = NETWORK_MODEL if name == "model" else f"--{name}", HELP[name]
        if default is True:
            parser.add_argument(f"--no-{name}", dest=name, action="store_false", help=text)
        elif default is False:
            parser.add_argument(flag, action="store_true", help=text)
        elif name == "detail":
            parser.add_argument(flag, action="append", help=text)
        else:
            parser.add_argument(flag, default=default, help=text)


def add_short_names(parser: argparse.ArgumentParser, *names: str) -> None:
    """Accept --model for --network-model, too, where no other model is meant; help shows one name."""
    for name in names:
        short, long = f"--{name}", f"network_{name}"
        parser.add_argument(short, dest=long, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def add_machine_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands that only want to know how many ranks a machine has."""
    parser.add_argument(
        "--machine", metavar="NAME[:NPUS]", help="as many ranks as this preset machine has NPUs"
    )


def ranks_of(options: argparse.Namespace) -> int | None:
    """How many ranks are asked for; None: it is not given."""
    if options.machine is None:
        ranks: int | None = options.ranks
        return ranks
    from et_sim.machine.presets import preset

    machine = preset(options.machine)
    if options.ranks not in (None, machine.npus):
        raise UsageError(
            f"--ranks is {options.ranks}, and {machine.text} has {machine.npus} NPUs",
            remedy="leave one of them out",
        )
    return machine.npus


def run_options(options: argparse.Namespace, **others: Any) -> RunOptions:
    """What was given on the command line; `others` stand before what bears their names there."""
    given = {**vars(options), "model": getattr(options, "network_model", None), **others}
    known = {
        field.name: given.get(field.name) for field in fields(RunOptions) if field.name not in OF_COMMANDS
    }
    return RunOptions(**{name: value for name, value in known.items() if value is not None})
