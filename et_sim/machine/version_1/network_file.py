"""The network file of ASTRA-sim 1.0: one list per property, one entry per dimension.

A message pays for the highest dimension in which its ends differ, and for the bundle of all links that an
NPU has there. Not here: that rule in compiled code (`et_sim.network.levels`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from et_sim.documents.keys import Key, Remarks, Section, Slot, check_names, keys_of, made, show
from et_sim.documents.kinds import CHOICE, COUNT
from et_sim.machine.networks import MOST_RANKS, Level, Network, Shape

_SCALARS = (
    Key("topology-name", CHOICE, "Only `Hierarchical` exists.", choices=("Hierarchical",)),
    Key("dimensions-count", COUNT, "How many dimensions there are; 1 if not given.", minimum=1),
)
_LISTS = keys_of(Level)
LEVEL_KEYS = (*_SCALARS, *_LISTS)


def read_hierarchy(
    source: Section, overrides: Mapping[str, list[Any]], remarks: Remarks, overrides_place: str = ""
) -> Network:
    """The network that the source describes; `overrides` are lists that stand in place of the file's."""
    changed = Section(overrides_place, dict(overrides))
    check_names(source, LEVEL_KEYS, remarks)
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
    return Network.of_levels(levels)


def _column(key: Key, section: Section, count: int, remarks: Remarks) -> list[Any]:
    """One checked entry per dimension, none if the key is not there.

    Entries beyond the last dimension are not read, as in 1.0.
    """
    form = f"allowed: a list with one entry per dimension, each {key.allowed}"
    if key.name not in section.content:
        if key.required:
            raise section.fault(f'key "{key.name}" is missing', form)
        return []
    entries = section.content[key.name]
    if not isinstance(entries, list):
        raise section.fault(f'key "{key.name}" is {show(entries)}', form)
    if len(entries) < count:
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
        Shape.RING: links // 2 * 2,
        Shape.FULLY_CONNECTED: links // per_peer * per_peer,
        Shape.SWITCH: links,
    }[shape]
    if used == 0:
        least = "2 links" if shape is Shape.RING else f"{per_peer} links, one per peer"
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
