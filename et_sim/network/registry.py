"""Network models by name, and the default model of a run.

A name with a dot is that of a user's module, or of its file (`model.py`), which offers the functions of
`engine.network_seam.NetworkModel` (`custom`). It is imported only if the command line or a program names it
(`OwnModel`): names in sweeps and runs are data, and data runs no code.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from et_sim.engine.transport.network_seam import NetworkModel
    from et_sim.machine.corrections import Behaviour
    from et_sim.machine.model import Machine, Network

MODELS = {
    "analytical": "et_sim.network.analytical",
    "link": "et_sim.network.link",
    "flow": "et_sim.network.flow.model",
    "packet": "et_sim.network.packet.model",
    "loggops": "et_sim.network.loggops.model",
}
DEFAULT = "analytical"
ON_LINKS = ("link", "flow", "packet")
MOST_RANKS_ON_FLOW = 1 << 16  # without an explicit model
PACKETS = "packets, queues, losses, congestion control"
FAIRLY = "messages share links fairly"
PORTS, CREDITS, PROTOCOL = " with ports", " with credits", " with a protocol"
REQUIRED = ("HAS_CONTENTION", "check", "tables", "resources", "path_keys", "needs", "inject")


class OwnModel(str):
    """A user's network model that the command line or a program names, in all processes of the run."""

    __slots__ = ()


@overload
def as_named(name: str) -> str: ...


@overload
def as_named(name: None) -> None: ...


def as_named(name: str | None) -> str | None:
    """Return a name from the command line or a program, marked as one that may be imported."""
    return OwnModel(name) if isinstance(name, str) and "." in name else name


class Scope(NamedTuple):
    """Effects that a network model includes and leaves out."""

    includes: str
    leaves_out: str
    note: str = ""  # how the model treats contention, where port bandwidth is limited


SCOPES = {
    "analytical": Scope("messages as if each were alone", f"contention between messages; {PACKETS}"),
    f"analytical{PORTS}": Scope(
        "messages that take turns at ports", PACKETS, "the messages of a port take turns"
    ),
    "link": Scope("whole messages that take turns on every link", PACKETS),
    "flow": Scope("messages that share links fairly", PACKETS, FAIRLY),
    f"flow{PROTOCOL}": Scope(
        "messages with headers and acknowledgements that share links fairly",
        "queues, pauses, losses, congestion control",
        FAIRLY,
    ),
    "packet": Scope("every packet, with queues, pauses, losses, congestion control", "adaptive routing"),
    f"packet{CREDITS}": Scope("every flit, with buffers and credits", "adaptive routing"),
    "loggops": Scope("processors and NICs of ranks, and a latency for all", "contention on links"),
}


class ModelChoice(Struct, frozen=True):
    """The network model of a run."""

    name: str
    note: str  # how it treats contention on this machine
    scope: Scope


def choose_model(name: str | None, machine: Machine, *, is_preset: bool) -> ModelChoice:
    """Return the named model, or the cheapest one that suits the machine.

    In the corrected profile, port bandwidth is limited. Presets of machines take `flow`, where equal ranks
    stay equal and fold, unless they are so large that following every link takes longer than all else. Others
    keep the analytical model, whose ports then carry one message after the other: on rings, messages with
    fair shares travel in a bunch, which leaves most links idle.
    """
    from et_sim.machine.corrections import Correction

    has_ports = machine.system.behaviour.corrects(Correction.PORT_BANDWIDTH) and not machine.network.levels
    if name is None:
        is_small = machine.network.ranks <= MOST_RANKS_ON_FLOW
        name = "flow" if is_preset and has_ports and is_small else DEFAULT
    of_machine = (
        (CREDITS, machine.network.credits is not None),
        (PROTOCOL, machine.network.protocol is not None),
        (PORTS, has_ports),
        ("", True),
    )
    kinds = (name + kind for kind, is_so in of_machine if is_so)
    its_own = Scope(f"messages as {name} models them", "all else")
    scope = next((SCOPES[kind] for kind in kinds if kind in SCOPES), its_own)
    return ModelChoice(name, scope.note if has_ports else "", scope)


def machine_for(model: ModelChoice, machine: Machine) -> Machine:
    """Return the machine with links in place of the bundles of ASTRA-sim 1.0 for models that share links."""
    if not machine.network.levels or model.name not in ON_LINKS:
        return machine
    from et_sim.network.without_levels import without_levels

    return replace(machine, network=without_levels(machine.network, model.name))


def check_model(name: str | None) -> None:
    """Refuse a network model that does not exist, or that only data names."""
    if name is None or name in MODELS or isinstance(name, OwnModel):
        return
    if "." not in str(name):
        raise UsageError(
            f"network model {name!r} is not known",
            remedy=did_you_mean(str(name), tuple(MODELS)) or f"known: {', '.join(MODELS)}",
        )
    raise UsageError(
        f"network model {name!r} is a program, which only the command line may name",
        remedy=f"if you trust it, give --network-model {name}, too",
    )


def model_named(name: str) -> NetworkModel:
    """Return a model before it is adapted to a machine."""
    check_model(name)
    try:
        if name.endswith(".py"):
            from et_sim.basics.own_modules import module_in_file

            module = module_in_file(Path(name), "a network model")
        else:
            module = importlib.import_module(MODELS.get(name, name))
    except ModuleNotFoundError as error:
        raise UsageError(
            f"network model {name!r} cannot be imported: {error}",
            remedy=f"known: {', '.join(MODELS)}; another one is the name of a module that Python finds",
        ) from None
    missing = [each for each in REQUIRED if not hasattr(module, each)]
    if missing:
        raise UsageError(
            f"module {name!r} is not a network model: it has no {missing[0]}",
            remedy=f"known: {', '.join(MODELS)}; docs/extending.md describes what a model must offer",
        )
    return _model(module)


def _model(module: Any, **instead: Any) -> NetworkModel:
    """Return the model in a module, with other parts instead of its own."""
    from et_sim.engine.transport.network_seam import NetworkModel

    return NetworkModel(module, **instead)


def ways_of_messages(
    model: NetworkModel, network: Network, actors: int, *, may_fold: bool
) -> dict[str, Any] | None:
    """Return the routing on a graph and the number of actors with hashed paths; None: the network is no
    graph.
    """
    from et_sim.machine.model import GraphFabric, Routing

    fabric = network.fabric
    if not isinstance(fabric, GraphFabric):
        return None
    is_single = fabric.routing is Routing.SPREAD and model.TAKES_SINGLE_WAYS
    routing = Routing.ECMP if is_single else fabric.routing
    is_hashed = routing in (Routing.ECMP, Routing.ECMP_NS3, Routing.VALIANT)
    separated = actors if is_hashed and may_fold and model.FOLDS_GRAPHS else None
    return {"name": routing.value, "is_default": not fabric.names_routing, "actors_by_hash": separated}


def model_of(choice: ModelChoice, machine: Machine) -> NetworkModel:
    """Return the chosen model for a machine."""
    return model_on(choice.name, machine.network, machine.system.behaviour)


def model_on(name: str, network: Network, behaviour: Behaviour | None = None) -> NetworkModel:
    """Return a model for a network; refuse networks that it does not support."""
    from et_sim.machine.corrections import Correction

    model = model_named(name)
    if network.failures and model.WITH_FAILURES:
        model = _model(importlib.import_module(model.WITH_FAILURES))
    has_ports = behaviour is not None and behaviour.corrects(Correction.PORT_BANDWIDTH)
    if has_ports and not network.levels and model.WITH_PORTS:
        module = importlib.import_module(model.WITH_PORTS)
        model = _model(module, tables=module.tables_with_ports)
    if network.credits is not None and model.WITH_CREDITS:
        model = _model(importlib.import_module(model.WITH_CREDITS))
    if network.protocol is not None and not model.HAS_PROTOCOLS:
        raise UsageError(
            f'key "protocol" of the network file is not supported by the {name} model',
            remedy="take --network-model flow or packet, or leave the key out",
        )
    if network.loggops is not None and not model.HAS_LOGGOPS:
        raise UsageError(
            "the network configuration has the constants of LogGOPS but no links",
            remedy="take --network-model loggops, or describe the network with topology, npus_count,"
            " bandwidth and latency",
        )
    if network.credits is not None and not model.HAS_CREDITS:
        raise UsageError(
            f'key "credits" of the network file is not supported by the {name} model',
            remedy="take --network-model packet, or leave the key out",
        )
    if network.failures and not model.HAS_FAILURES:
        raise UsageError(
            f"the {name} model takes links as they are at the start of a run, and the machine has "
            '"failures" of links',
            remedy="take --network-model flow, link or packet, or leave the key out",
        )
    model.check(network)
    return model
