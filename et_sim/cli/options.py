"""Options that commands share; the help of run options is that of the fields of `RunOptions`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Protocol

from et_sim.basics.declared_options import Command, Hidden, Option
from et_sim.basics.errors import UsageError
from et_sim.basics.units import parse_bytes
from et_sim.network.registry import as_named
from et_sim.run.options import HELP, RunOptions


def parse_share(text: str) -> float:
    """Return the share that a text such as 2% or 0.02 states."""
    number, percent = text.strip().removesuffix("%").strip(), text.strip().endswith("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if not (math.isfinite(share) and share >= 0):
        raise UsageError(
            f"share {text!r} cannot be understood", remedy="give a share from 0 on, such as 2% or 0.02"
        )
    return share


OF_COMMANDS = ("other_profile",)  # decided by commands

RanksOfMachine = Annotated[str | None, "as many ranks as this preset machine has NPUs", "NAME[:NPUS]"]
Size = Annotated[int | None, Option(parse=parse_bytes)]
Json = Annotated[bool, "print data instead of text"]


class MachineOptions(Command):
    """Options of the machine."""

    system: Annotated[str | None, HELP["system"]] = None
    network: Annotated[str | None, HELP["network"]] = None
    memory: Annotated[str | None, HELP["memory"]] = None
    groups: Annotated[str | None, HELP["groups"]] = None
    machine: Annotated[str | None, HELP["machine"]] = None
    network_model: Annotated[str | None, HELP["model"], Hidden("--model")] = None
    profile: Annotated[str | None, HELP["profile"]] = None
    when_full: Annotated[str | None, HELP["when_full"]] = None
    power: Annotated[str | None, HELP["power"], "WATTS"] = None
    steady: Annotated[float | None, HELP["steady"], "PART", Option(parse=parse_share)] = None


class SimulationOptions(MachineOptions):
    """Options of a run."""

    fold: Annotated[bool, "simulate every rank by itself"] = True
    ties_alike: Annotated[bool, HELP["ties_alike"]] = False
    compute_model: Annotated[str | None, HELP["compute_model"], "FILE"] = None
    alone: Annotated[bool, HELP["alone"]] = False
    retime: Annotated[bool, HELP["retime"]] = False
    isolated: Annotated[bool, HELP["isolated"]] = False
    detail: Annotated[Sequence[str] | None, HELP["detail"]] = None
    samples: Annotated[int | None, HELP["samples"], "N"] = None
    seed: Annotated[int | None, HELP["seed"], "N"] = None


class _Sized(Protocol):
    ranks: int | None
    machine: str | None


def ranks_of(options: _Sized) -> int | None:
    """Return the number of ranks; None: it is not given."""
    if options.machine is None:
        return options.ranks
    from et_sim.machine.presets import preset

    machine = preset(options.machine)
    if options.ranks not in (None, machine.npus):
        raise UsageError(
            f"--ranks is {options.ranks}, and {machine.text} has {machine.npus} NPUs",
            remedy="leave one of them out",
        )
    return machine.npus


def run_options(options: Command, **others: Any) -> RunOptions:
    """Return the run options of the command line; `others` override them.

    A `seed` is that of samples where a command has samples; elsewhere it belongs to the command.
    """
    given = {**vars(options), "model": as_named(getattr(options, "network_model", None)), **others}
    if "samples" not in given:
        given.pop("seed", None)
    known = {name: given.get(name) for name in RunOptions.__struct_fields__ if name not in OF_COMMANDS}
    return RunOptions(**{name: value for name, value in known.items() if value is not None})
