"""Registry of congestion controls: the module of each, by its name in the key `congestion-control`.

A control is one module and one entry here. The module has its keys, the record of a sender and the functions
that the transport calls (`et_sim.network.packet.controls`). Modules are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from et_sim.documents.keys import Key, keys_of, made

_OF_ROCE, _OF_TCP = "et_sim.network.packet.roce.controls", "et_sim.network.packet.tcp.controls"
_ROCE_NAMES = ("none", "dcqcn", "hpcc", "timely", "dctcp", "swift", "powertcp")
ROCE = MappingProxyType({name: f"{_OF_ROCE}.{name}" for name in _ROCE_NAMES})
TCP = MappingProxyType({name: f"{_OF_TCP}.{name}" for name in ("newreno", "reno", "cubic", "dctcp")})
T = TypeVar("T")


class NoKeys(Struct, frozen=True):
    """The keys of a control without keys of its own."""


def _class_of_keys(place: str) -> Any:
    return getattr(import_module(place), "Keys", NoKeys)


def own_keys(registry: Mapping[str, str]) -> tuple[Key, ...]:
    """Return the keys that belong to single controls."""
    return tuple(key for place in registry.values() for key in keys_of(_class_of_keys(place)))


def with_constants(settings: T, registry: Mapping[str, str], given: Mapping[str, Any]) -> T:
    """Return settings whose `constants` include those given keys that belong to single controls."""
    names = {key.name for key in own_keys(registry)} & given.keys()
    before: Any = settings
    constants = dict(before.constants) | {name: given[name] for name in sorted(names)}
    changed: T = replace(before, constants=tuple(constants.items()))
    return changed


def keys_of_control(registry: Mapping[str, str], name: str, constants: tuple[tuple[str, Any], ...]) -> Any:
    """Return the keys of a control, with the constants that were given."""
    return made(_class_of_keys(registry[name]), dict(constants))


def telemetry(name: str) -> tuple[int, int]:
    """Return the bytes that a control adds to packets, and to acknowledgements beyond their padding."""
    more: tuple[int, int] = getattr(import_module(ROCE[name]), "TELEMETRY", (0, 0))
    return more
