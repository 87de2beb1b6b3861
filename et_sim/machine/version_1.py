"""The files of ASTRA-sim 1.0: JSON network, text system file, and its command-line options as keys.

They describe the same machine as the files of 2.x, with another rule for the time of a message
(`model.Level`), other names, and settings for layer files (`model.LayerSettings`). A message pays for the
highest dimension in which its ends differ, and for the bundle of all links that an NPU has there. The price
of a network, by the price list of 1.0, is here too; no simulation depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import structs
from msgspec.structs import replace

from et_sim.documents.keys import (
    Key,
    Remarks,
    Section,
    Slot,
    check_names,
    keys_of,
    made,
    note_defaults,
    read_keys,
    show,
)
from et_sim.documents.kinds import CHOICE, COUNT, FLAG, INTEGER, NUMBER, TEXT
from et_sim.machine.corrections import Profile, behaviour_of
from et_sim.machine.credits import CREDITS_KEY, read_credits
from et_sim.machine.network_file import listed
from et_sim.machine.networks import MOST_RANKS, DimensionShape, Level, Network
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

_SCALARS = (
    Key("topology-name", CHOICE, "Only `Hierarchical` exists.", choices=("Hierarchical",)),
    Key("dimensions-count", COUNT, "Number of dimensions. Without the key: 1.", minimum=1),
)
_LISTS = keys_of(Level)
LEVEL_KEYS = (*_SCALARS, *_LISTS)
_OF_2020 = {  # topologies of the files of 2020, as dimensions
    "Ring": '["Ring"]',
    "Switch": '["Switch"]',
    "AllToAll": '["FullyConnected"]',
    "Torus2D": '["Ring", "Ring"]',
}


def read_hierarchy(
    source: Section, overrides: Mapping[str, list[Any]], remarks: Remarks, overrides_place: str = ""
) -> Network:
    """Read the network of a source; `overrides` are lists that replace the file's."""
    changed = Section(overrides_place, dict(overrides))
    _refuse_files_of_2020(source)
    check_names(source, (*LEVEL_KEYS, CREDITS_KEY), remarks)
    given = {
        key.name: Slot(key, source, remarks).value(source.content[key.name])
        for key in _SCALARS
        if key.name in source.content
    }
    count = given.get("dimensions-count", 1)
    columns = {
        key.name: _column(key, changed if key.name in overrides else source, count, remarks) for key in _LISTS
    }
    links_in = changed if "links-count" in overrides else source
    levels = tuple(
        _level(
            {name: column[number] for name, column in columns.items() if column}, number, links_in, remarks
        )
        for number in range(count)
    )
    if math.prod(level.npus for level in levels) > MOST_RANKS:
        counts_in = changed if "units-count" in overrides else source
        cause = f'key "units-count" is {show(columns["units-count"])}'
        raise counts_in.fault(cause, f"allowed: at most {MOST_RANKS} NPUs in all")
    rates, latencies = ([getattr(level, name) for level in levels] for name in ("bytes_per_ns", "latency_ns"))
    credits = read_credits(source, rates, latencies, remarks)
    return replace(Network.of_levels(levels), credits=credits)


def _refuse_files_of_2020(source: Section) -> None:
    name = source.content.get("topology-name")
    if isinstance(name, str) and name in _OF_2020:
        dimensions = f'"topologies-per-dim": {_OF_2020[name]}, with sizes in "units-count"'
        raise source.fault(
            f'key "topology-name" is "{name}", as in files of 2020', f'write "Hierarchical", and {dimensions}'
        )


def _column(key: Key, section: Section, count: int, remarks: Remarks) -> list[Any]:
    """Return one checked entry per dimension, or an empty list without the key.

    Entries after the last dimension are not read, as in 1.0.
    """
    if key.name not in section.content and not key.required:
        return []
    entries = listed(key, section)
    if len(entries) < count:
        form = f"allowed: a list with one entry per dimension, each {key.allowed}"
        entered = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
        raise section.fault(f'key "{key.name}" has {entered}, and "dimensions-count" is {count}', form)
    if len(entries) > count:
        text = (
            f'{len(entries)} entries, and "dimensions-count" is {count}: the others are not read, as in 1.0'
        )
        remarks.warn(section.place, key.name, text)
    return [Slot(key, section, remarks, index).value(entry) for index, entry in enumerate(entries[:count])]


def _level(of: Mapping[str, Any], number: int, section: Section, remarks: Remarks) -> Level:
    level = made(Level, of)
    shape, npus, links = level.shape, level.npus, level.links
    per_peer = max(npus - 1, 1)
    used = {
        DimensionShape.RING: links // 2 * 2,
        DimensionShape.FULLY_CONNECTED: links // per_peer * per_peer,
        DimensionShape.SWITCH: links,
    }[shape]
    if used == 0:
        least = "2 links" if shape is DimensionShape.RING else f"{per_peer} links, one per peer"
        raise section.fault(
            f'key "links-count" index {number} is {links}: too few for a {shape.value} of {npus} NPUs',
            f"allowed: at least {least}",
        )
    if used < links:
        text = (
            f"index {number}: {used} of {links} links are used in a {shape.value} of {npus} NPUs, as in 1.0"
        )
        remarks.warn(section.place, "links-count", text)
    if level.memory_scale and not level.memory_bandwidth:
        cause = f'key "hbm-bandwidth" index {number} is 0, and "hbm-scale" is not'
        raise section.fault(cause, "allowed: a number > 0, in GB/s (10^9 bytes)")
    return replace(level, links_used=used)


# The local memory of 1.0, a constant there, which bounds reductions.
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
        "Order of collectives that wait for the same queue.",
        choices=(StreamPolicy.LIFO.value, StreamPolicy.FIFO.value),
        becomes=StreamPolicy,
        required=True,
    ),
    *(_SHARED[name] for name in _SAME_AS_LATER),
    Key(
        "inter-dimension-scheduling",
        CHOICE,
        "Order in which chunks visit the dimensions.",
        choices=tuple(DIMENSION_ORDERS),
        default=DimensionOrder.ASCENDING.value,
    ),
    Key(
        "intra-dimension-scheduling",
        CHOICE,
        "Order in which chunks wait for a reduce-scatter or all-gather in a dimension.",
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
        "Reduced the NPUs that 1.0 simulated, which changed the order of messages that arrive in one "
        "nanosecond. Here it changes only that order: equal ranks are always simulated once.",
        default=False,
    ),
    Key("seprate-log", INTEGER, "No effect; switched the output files of 1.0 on (the spelling is 1.0's)."),
    Key("total-stat-rows", INTEGER, "No effect; rows in the output files of 1.0, which runs could share."),
    Key("stat-row", INTEGER, "No effect; row of a run in these files."),
    Key("run-name", TEXT, "No effect; name of that row."),
)
NETWORK_OVERRIDES = {
    "units-count": int,
    "links-count": int,
    "link-bandwidth": float,
    "link-latency": float,
}


def read_system_1(source: Section, remarks: Remarks) -> tuple[System, LayerSettings, dict[str, list[Any]]]:
    """Read the system, the settings of layer files, and lists that override the network's."""
    content = {name: _typed(name, value) for name, value in source.content.items()}
    overrides = {name: content.pop(name) for name in NETWORK_OVERRIDES if name in content}
    given = read_keys(structs.replace(source, content=content), SYSTEM_1_KEYS, remarks)
    values = note_defaults(given, SYSTEM_1_KEYS, source, remarks)
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
    """Convert a word of the text file to its value; leave invalid words to later checks."""
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


class Prices(NamedTuple):
    """Dollars per GB/s."""

    link: float
    switch: float
    card: float


PRICES = {
    "Tile": Prices(1, 0, 0),
    "Package": Prices(4, 13, 0),
    "Node": Prices(4, 13, 0),
    "Pod": Prices(7.4, 23.7, 47.8),
}


def price_of(network: Network) -> float:
    """Return the price of all levels of a network in dollars."""
    return sum(_per_bandwidth(level, network.ranks) * level.link_bandwidth for level in network.levels)


def _per_bandwidth(level: Level, ranks: int) -> float:
    prices = PRICES.get(level.built_of, PRICES["Node"])
    if level.shape is DimensionShape.RING:
        return ranks * (level.links // 2) * prices.link
    if level.shape is DimensionShape.FULLY_CONNECTED:
        peers = max(level.npus - 1, 1)
        return ranks * peers // 2 * (level.links // peers) * prices.link
    return ranks * level.links * sum(prices)


__all__ = ["LEVEL_KEYS", "SYSTEM_1_KEYS", "read_hierarchy", "read_system_1"]
