"""The network models by name, and which of them a run takes if nobody names one.

A name with a dot is that of a module of yours, which offers what `engine.network_seam.NetworkModel` asks for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

from et_sim.errors import UsageError, did_you_mean
from et_sim.machine.corrections import Correction
from et_sim.machine.model import GridFabric
from et_sim.machine.profiles import Behaviour, Profile

if TYPE_CHECKING:
    from et_sim.engine.transport.network_seam import NetworkModel
    from et_sim.machine.model import Machine, Network

MODELS = {
    "analytical": "et_sim.network.analytical",
    "link": "et_sim.network.link",
    "flow": "et_sim.network.flow.model",
    "packet": "et_sim.network.packet.model",
    "loggops": "et_sim.network.loggops.model",
}
MOST_NPUS_ON_FLOW = 1 << 16  # unasked: it looks at every link of a machine
ASKED_FOR = ("HAS_CONTENTION", "check", "tables", "resources", "path_keys", "needs", "inject")


class ModelChoice(NamedTuple):
    """The network model of a run."""

    name: str
    reason: str  # why this one; empty: somebody named it


def choose_model(name: str | None, machine: Machine) -> ModelChoice:
    """The model that is named, or else the cheapest one that is right for a machine.

    A machine in the profile of the reference is simulated as the reference does it. On any other, links carry
    no more than they can.
    """
    if name is not None:
        return ModelChoice(name, "")
    if machine.system.behaviour.profile is not Profile.CORRECTED:
        return ModelChoice("analytical", "as the reference: messages do not wait for each other")
    if machine.network.levels:
        return ModelChoice("analytical", "the only one for the bundles of links of ASTRA-sim 1.0")
    if machine.network.ranks > MOST_NPUS_ON_FLOW and isinstance(machine.network.fabric, GridFabric):
        return ModelChoice("analytical", "a port carries messages in turn; flow takes long on so many NPUs")
    return ModelChoice("flow", "messages share links fairly")


def check_model(name: str | None) -> None:
    """Refuse a network model that does not exist; None: nobody names one."""
    if name is not None and name not in MODELS and "." not in str(name):
        raise UsageError(
            f"network model {name!r} is not known",
            remedy=did_you_mean(str(name), tuple(MODELS)) or f"known: {', '.join(MODELS)}",
        )


def model_named(name: str) -> NetworkModel:
    """The module of a model."""
    check_model(name)
    try:
        model = importlib.import_module(MODELS.get(name, name))
    except ModuleNotFoundError as error:
        raise UsageError(
            f"network model {name!r} cannot be imported: {error}",
            remedy=f"known: {', '.join(MODELS)}; another one is the name of a module that Python finds",
        ) from None
    missing = [each for each in ASKED_FOR if not hasattr(model, each)]
    if missing:
        raise UsageError(
            f"module {name!r} is not a network model: it has no {missing[0]}",
            remedy=f"known: {', '.join(MODELS)}; what one must offer stands in "
            "et_sim/engine/transport/network_seam.py",
        )
    return model


def model_of(choice: ModelChoice, machine: Machine) -> NetworkModel:
    """What a model is on a machine."""
    return model_on(choice.name, machine.network, machine.system.behaviour)


def model_on(name: str, network: Network, behaviour: Behaviour | None = None) -> NetworkModel:
    """What a model is on a network; refuses what it cannot do, or would say nothing about."""
    model = model_named(name)
    has_ports = behaviour is not None and behaviour.corrects(Correction.PORT_BANDWIDTH)
    if has_ports and not network.levels and hasattr(model, "WITH_PORTS"):
        model = importlib.import_module(model.WITH_PORTS)
    if network.credits is not None and hasattr(model, "WITH_CREDITS"):
        model = importlib.import_module(model.WITH_CREDITS)
    if network.protocol is not None and not getattr(model, "HAS_PROTOCOLS", False):
        raise UsageError(
            f'key "protocol" of the network file means nothing to the {name} model',
            remedy="take --model flow or packet, or leave the key out",
        )
    if network.loggops is not None and not getattr(model, "HAS_LOGGOPS", False):
        raise UsageError(
            "the network configuration gives the constants of LogGOPS, and says nothing of links",
            remedy="take --model loggops, or describe the network with topology, npus_count, bandwidth and"
            " latency",
        )
    if network.credits is not None and not getattr(model, "HAS_CREDITS", False):
        raise UsageError(
            f'key "credits" of the network file means nothing to the {name} model',
            remedy="take --model packet, or leave the key out",
        )
    model.check(network)
    return model
