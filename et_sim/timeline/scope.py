"""Scope of a run's figures: effects that its models include and leave out.

The registries of networks and of compute models describe each model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.units import plural
from et_sim.compute.registry import scopes_of
from et_sim.machine import Machine
from et_sim.machine.corrections import Correction
from et_sim.tables.registry import details

NODES, PHASES, MESSAGES, LINKS, PORTS, PATH = ("nodes", "phases", "messages", "links", "ports", "path")
Detail = str | Iterable[str]


def details_of(requested: Detail) -> tuple[str, ...]:
    """Return the requested details in the order of the tables; names are in a list or separated by commas."""
    texts = [requested] if isinstance(requested, str) else list(requested)
    names = [name.strip() for text in texts for name in str(text).split(",")]
    every = (NODES, *details())
    for name in names:
        if name not in every:
            raise UsageError(f"detail {name!r} is not known", remedy=_known(name, every))
    return tuple(name for name in every if name in names or name == NODES)


def _known(name: str, every: tuple[str, ...]) -> str:
    guess = did_you_mean(name, every)
    known = f"known: {', '.join(every)}, or several of them with commas between"
    return f"{guess} {known}" if guess else known


AS_RECORDED, COMMUNICATION_AS_RECORDED = "kernels as the trace times them", "communication as recorded"
SLOWING = "kernels slowed by transfers"
MEMORY, MEMORY_UNKNOWN = "local memory", "whether memory suffices"
NOISE, FAILURES = "noise", "failures"


def scope_of_machine(machine: Machine, of_messages: Sequence[str]) -> dict[str, Any]:
    """Return the entry of the manifest; `of_messages`: the scope of the network model."""
    system = machine.system
    off = len(set(Correction) - system.behaviour.corrections)
    corrections = [f"what {plural(off, 'correction')} would change"] if off else []
    is_slowed = system.overlap or (system.library is not None and system.library.takes_processors)
    fails = bool(machine.network.failures or machine.slow)
    includes = [*([SLOWING] if is_slowed else []), *([FAILURES] if fails else [])]
    always = NOISE if fails else f"{NOISE}, {FAILURES}"
    leaves_out = [always] if is_slowed else [SLOWING, always]
    kernels = {label: [*both] for label, both in scopes_of(system).items()}
    return {
        "of_messages": [*of_messages],
        "of_kernels": kernels,
        "includes": includes,
        "leaves_out": [*corrections, *leaves_out],
    }


def scope(of_machine: Mapping[str, Any], coverage: Mapping[str, Any], messages: int) -> Any:
    """Return the effects that are included and left out, given the coverage of the run."""
    timed_by = coverage["timed_by"]
    kernels = [
        both
        for label, both in of_machine["of_kernels"].items()
        if any(source == label or source.startswith(f"{label} (") for source in timed_by)
    ]
    recorded = coverage["replayed_communication"]
    if coverage["replayed"] > recorded:
        kernels.append((AS_RECORDED, ""))
    transfers = [of_machine["of_messages"]] if messages else []
    if recorded:
        transfers.append([COMMUNICATION_AS_RECORDED, ""])
    is_tracked = coverage["without_tensors"] is not None
    memory = (MEMORY, "") if is_tracked else ("", MEMORY_UNKNOWN)
    rest = (of_machine["includes"], of_machine["leaves_out"])
    includes, leaves_out = (
        [text for text in (*(each[side] for each in (*kernels, *transfers, memory)), *rest[side]) if text]
        for side in (0, 1)
    )
    return {"includes": includes, "leaves_out": leaves_out}
