"""The system file of ASTRA-sim 1.0, with its command-line options as further keys.

Values are those of the text file, or of a dict with the same keys. Not here: the network's own keys
(`network_file`), which the options of 1.0 may override.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from et_sim.documents.keys import Key, Remarks, Section, keys_of, made, note_defaults, read_keys
from et_sim.documents.kinds import CHOICE, COUNT, FLAG, INTEGER, NUMBER, TEXT
from et_sim.machine.profiles import Profile, behaviour_of
from et_sim.machine.system import (
    ALGORITHM_LIST,
    COLLECTIVES,
    DimensionOrder,
    LayerSettings,
    QueueOrder,
    StreamPolicy,
    System,
)
from et_sim.machine.system_file import SYSTEM_KEYS, scaled_delay
from et_sim.machine.system_parts import SharedBus

# The local memory of 1.0, which is no setting there: it paces reductions.
LOCAL_MEMORY_BANDWIDTH = 500_000.0  # GB/s
DIMENSION_ORDERS = {
    **{order.value: order for order in DimensionOrder},
    "baseline": DimensionOrder.ASCENDING,
    "themis": DimensionOrder.OFFLINE_GREEDY,
    "themisFlex": DimensionOrder.OFFLINE_GREEDY_FLEX,
}
QUEUE_ORDERS = {**{order.value: order for order in QueueOrder}, "SCF": QueueOrder.SMALLEST_FIRST}
_SHARED = {key.name: key for key in SYSTEM_KEYS if not key.ignored}
_LAYER_KEYS = tuple(
    structs.replace(key, reference="", default=default)
    for key, default in zip(keys_of(LayerSettings), (1, 1.0, 1.0), strict=True)
)
_SAME_AS_LATER = (
    *("corrections", "preferred-dataset-splits", "active-chunks-per-dimension", "collective-optimization"),
    *("endpoint-delay", "injection-scale", "rendezvous-protocol", "num-queues-per-dim"),
    *("model-shared-bus", "L", "o", "g", "G", "local-reduction-delay"),
    *(f"{collective}-implementation" for collective in COLLECTIVES),
)
SYSTEM_1_KEYS = (
    Key("profile", CHOICE, "Always `astra-1.0`.", choices=(Profile.ASTRA_1.value,)),
    Key(
        "scheduling-policy",
        CHOICE,
        "Which collective goes first when several wait for the same queue.",
        choices=(StreamPolicy.LIFO.value, StreamPolicy.FIFO.value),
        becomes=StreamPolicy,
        required=True,
    ),
    *(_SHARED[name] for name in _SAME_AS_LATER),
    Key(
        "inter-dimension-scheduling",
        CHOICE,
        "In which order chunks visit the dimensions.",
        choices=tuple(DIMENSION_ORDERS),
        default=DimensionOrder.ASCENDING.value,
    ),
    Key(
        "intra-dimension-scheduling",
        CHOICE,
        "In which order chunks wait for a reduce-scatter or all-gather in a dimension.",
        choices=tuple(QUEUE_ORDERS),
        default=QueueOrder.FIFO.value,
    ),
    Key(
        "gap-denominator",
        NUMBER,
        "Themis keeps the usual order of dimensions while loads differ by less than a chunk divided by this.",
        default=16.0,
        above_minimum=True,
    ),
    *_LAYER_KEYS,
    Key(
        "boost-mode",
        FLAG,
        "Made 1.0 simulate fewer NPUs, which changed the order of messages that arrive in one nanosecond. "
        "Here only that order is kept: ranks that behave alike are always simulated once.",
        default=False,
    ),
    Key("seprate-log", INTEGER, "Switched the files of 1.0 on (the spelling is its own). No effect."),
    Key("total-stat-rows", INTEGER, "Rows in the files of 1.0, which runs could share. No effect."),
    Key("stat-row", INTEGER, "The row of a run in them. No effect."),
    Key("run-name", TEXT, "The row's name. No effect."),
)
NETWORK_OVERRIDES = {
    "units-count": int,
    "links-count": int,
    "link-bandwidth": float,
    "link-latency": float,
}


def read_system_1(source: Section, remarks: Remarks) -> tuple[System, LayerSettings, dict[str, list[Any]]]:
    """The system, how to run layer files, and lists that override the network's."""
    content = {name: _typed(name, value) for name, value in source.content.items()}
    overrides = {name: content.pop(name) for name in NETWORK_OVERRIDES if name in content}
    given = read_keys(structs.replace(source, content=content), SYSTEM_1_KEYS, remarks)
    values = note_defaults(given, SYSTEM_1_KEYS, source.place, remarks)
    system = replace(
        made(System, given),
        dimension_order=DIMENSION_ORDERS[values["inter-dimension-scheduling"]],
        queue_order=QUEUE_ORDERS[values["intra-dimension-scheduling"]],
        endpoint_delay_ns=scaled_delay(values["endpoint-delay"], values["injection-scale"], source.place),
        local_mem_bw=LOCAL_MEMORY_BANDWIDTH,
        shared_bus=made(SharedBus, given) if values["model-shared-bus"] else None,
        boost_mode=values["boost-mode"],
        gap_denominator=values["gap-denominator"],
        behaviour=behaviour_of(Profile.ASTRA_1, given.get("corrections")),
    )
    return system, made(LayerSettings, given), overrides


def _typed(name: str, value: Any) -> Any:
    """A word of the text file as the value it stands for; what does not fit is left to be refused."""
    key = next((key for key in SYSTEM_1_KEYS if key.name == name), None)
    if name in NETWORK_OVERRIDES:
        words = value.replace(",", "_").split("_") if isinstance(value, str) else value
        return [_number(word) for word in words] if isinstance(words, list) else [words]
    if key is None or not isinstance(value, str):
        return value
    if key.kind is ALGORITHM_LIST:
        return value.split("_")
    if key.kind is FLAG:
        return {"true": True, "false": False}.get(value.lower(), _number(value))
    return _number(value) if key.kind in (INTEGER, COUNT, NUMBER) else value


def _number(word: Any) -> Any:
    for kind in (int, float):
        try:
            return kind(word)
        except (TypeError, ValueError):
            continue
    return word
