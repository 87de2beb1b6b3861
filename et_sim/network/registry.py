"""The network models by name, and which of them a run takes if nobody names one.

A name with a dot is that of a module of yours, or of its file (`model.py`), which offers what
`engine.network_seam.NetworkModel` asks for (`custom`). It is imported only if the command line, or a program,
names it (`OwnModel`): names in sweeps and runs are data, and data runs no code.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

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
MOST_RANKS_ON_FLOW = 1 << 16  # unless somebody names it
PACKETS = "packets, queues, losses, congestion control"
FAIRLY = "messages share links fairly"
PORTS, CREDITS, PROTOCOL = " with ports", " with credits", " with a protocol"
ASKED_FOR = ("HAS_CONTENTION", "check", "tables", "resources", "path_keys", "needs", "inject")


class OwnModel(str):
    """A network model of yours that the command line or a program names, in all processes of the run."""

    __slots__ = ()


@overload
def as_named(name: str) -> str: ...


@overload
def as_named(name: None) -> None: ...


def as_named(name: str | None) -> str | None:
    """Return a name that the command line or a program gives: what it names may be imported."""
    return OwnModel(name) if isinstance(name, str) and "." in name else name


class Scope(NamedTuple):
    """What a figure of a network model includes, and what it leaves out."""

    includes: str
    leaves_out: str
    note: str = ""  # what the model does with messages that meet, where links carry no more than they can


SCOPES = {
    "analytical": Scope("messages as if each were alone", f"what messages that meet cost; {PACKETS}"),
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
    "packet": Scope(
        "every packet, with queues, pauses, losses, congestion control", "ways that adapt to the load"
    ),
    f"packet{CREDITS}": Scope("every flit, with buffers and credits", "ways that adapt to the load"),
    "loggops": Scope(
        "processors and NICs of ranks, and a latency for all", "links: messages do not meet on their way"
    ),
}


class ModelChoice(NamedTuple):
    """The network model of a run."""

    name: str
    note: str  # what it does on this machine that its name does not say
    scope: Scope


def choose_model(name: str | None, machine: Machine, *, is_preset: bool) -> ModelChoice:
    """Return the model that is named, or else the cheapest one that is right for a machine.

    In the corrected profile, links carry no more than they can. Machines by name take `flow`, where equal
    ranks stay equal and fold, unless they are so large that following every link takes longer than all else.
    Others keep the analytical model, whose ports then carry one message after the other: on rings, whole
    messages that share links fairly travel in a bunch, which leaves most links idle.
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
    its_own = Scope(f"what {name} makes of messages", "what it does not")
    scope = next((SCOPES[kind] for kind in kinds if kind in SCOPES), its_own)
    return ModelChoice(name, scope.note if has_ports else "", scope)


def check_model(name: str | None) -> None:
    """Refuse a network model that does not exist, or that only data names; None: none is named."""
    if name is None or name in MODELS or isinstance(name, OwnModel):
        return
    if "." not in str(name):
        raise UsageError(
            f"network model {name!r} is not known",
            remedy=did_you_mean(str(name), tuple(MODELS)) or f"known: {', '.join(MODELS)}",
        )
    raise UsageError(
        f"network model {name!r} is a program, and only the command line can have it run",
        remedy=f"if you trust it, give --network-model {name}, too",
    )


def model_named(name: str) -> NetworkModel:
    """Return a model, without what a machine makes of it."""
    check_model(name)
    try:
        module = (
            _of_file(Path(name)) if name.endswith(".py") else importlib.import_module(MODELS.get(name, name))
        )
    except ModuleNotFoundError as error:
        raise UsageError(
            f"network model {name!r} cannot be imported: {error}",
            remedy=f"known: {', '.join(MODELS)}; another one is the name of a module that Python finds",
        ) from None
    missing = [each for each in ASKED_FOR if not hasattr(module, each)]
    if missing:
        raise UsageError(
            f"module {name!r} is not a network model: it has no {missing[0]}",
            remedy=f"known: {', '.join(MODELS)}; docs/extending.md says what one must offer",
        )
    return _model(module)


def _model(module: Any, **instead: Any) -> NetworkModel:
    """What a module makes a model, but for what stands instead of a part of it."""
    from et_sim.engine.transport.network_seam import NetworkModel

    return NetworkModel(module, **instead)


def _of_file(path: Path) -> Any:
    """Return the module in a file, whose folder joins those in which Python looks, here and where it is
    compiled.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}", remedy="name a Python file with a network model")
    name, folder = path.stem, str(path.parent.absolute())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        module = importlib.import_module(name)
    except Exception as error:
        place = mistake_in(path, error) or str(path)
        raise UsageError(f"{place} cannot be imported: {error}", remedy="correct it") from error
    where = getattr(module, "__file__", None)
    if where is None or Path(where).resolve() != path.resolve():
        raise UsageError(f"there is another Python module called {name}", remedy=f"rename {path}")
    return module


def mistake_in(path: Path, error: BaseException) -> str:
    """Return the file and line of a model of yours that an exception comes from; empty: it comes from
    elsewhere.
    """
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == path.resolve()
    ]
    return f"{path}, line {lines[-1]}" if lines else ""


def ways_of_messages(
    model: NetworkModel, network: Network, actors: int, *, may_fold: bool
) -> dict[str, Any] | None:
    """Which ways messages took on a graph, and how many actors a hash of them left; None: it is no graph."""
    from et_sim.machine.model import GraphFabric, Routing

    fabric = network.fabric
    if not isinstance(fabric, GraphFabric):
        return None
    is_single = fabric.routing is Routing.SPREAD and model.TAKES_SINGLE_WAYS
    routing = Routing.ECMP if is_single else fabric.routing
    is_hashed = routing in (Routing.ECMP, Routing.ECMP_NS3, Routing.VALIANT)
    told_apart = actors if is_hashed and may_fold and model.FOLDS_GRAPHS else None
    return {"name": routing.value, "is_default": not fabric.names_routing, "actors_by_hash": told_apart}


def model_of(choice: ModelChoice, machine: Machine) -> NetworkModel:
    """What a model is on a machine."""
    return model_on(choice.name, machine.network, machine.system.behaviour)


def model_on(name: str, network: Network, behaviour: Behaviour | None = None) -> NetworkModel:
    """What a model is on a network; refuses what it cannot do, or would say nothing about."""
    from et_sim.machine.corrections import Correction

    model = model_named(name)
    has_ports = behaviour is not None and behaviour.corrects(Correction.PORT_BANDWIDTH)
    if has_ports and not network.levels and model.WITH_PORTS:
        module = importlib.import_module(model.WITH_PORTS)
        model = _model(module, tables=module.tables_with_ports)
    if network.credits is not None and model.WITH_CREDITS:
        model = _model(importlib.import_module(model.WITH_CREDITS))
    if network.protocol is not None and not model.HAS_PROTOCOLS:
        raise UsageError(
            f'key "protocol" of the network file means nothing to the {name} model',
            remedy="take --network-model flow or packet, or leave the key out",
        )
    if network.loggops is not None and not model.HAS_LOGGOPS:
        raise UsageError(
            "the network configuration gives the constants of LogGOPS, and says nothing of links",
            remedy="take --network-model loggops, or describe the network with topology, npus_count,"
            " bandwidth and latency",
        )
    if network.credits is not None and not model.HAS_CREDITS:
        raise UsageError(
            f'key "credits" of the network file means nothing to the {name} model',
            remedy="take --network-model packet, or leave the key out",
        )
    model.check(network)
    return model
