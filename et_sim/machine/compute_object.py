"""The key `compute` of the system file: which model times which kernels.

A new model is one entry in `READERS`, and one class in `et_sim.compute.registry`. Not here: the keys
(`compute_tables`), and whether operations and attributes exist that rules name (`et_sim.compute`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.machine.checks import fill_defaults, nearest, read_keys, show
from et_sim.machine.compute_rules import ComputeRule, Recorded, Settings, Where, WorkOf
from et_sim.machine.compute_tables import (
    LABEL,
    MODEL,
    NAME,
    OPERATOR_TABLE_KEYS,
    ROOFLINE_KEYS,
    RULE_KEYS,
    SYSTOLIC_KEYS,
    WHERE,
    WHERE_KEYS,
)
from et_sim.machine.datatypes import BITS, datatype_named
from et_sim.machine.keys import Key, Remarks
from et_sim.machine.operator_times_file import read_operator_times
from et_sim.machine.roofline_object import read_roofline
from et_sim.machine.sources import Source
from et_sim.machine.stragglers import entry_place, read_ranks
from et_sim.machine.systolic import Array, Bandwidth, ClockedArray, Dataflow, Rules

Files = list[tuple[str, str]]
MOST_RULES = 100


def _array(values: dict[str, Any], *_: Any) -> ClockedArray:
    bandwidth = values.get("bandwidth")
    array = Array(
        height=values["array-height"],
        width=values["array-width"],
        ifmap_kb=values["ifmap-sram-kb"],
        filter_kb=values["filter-sram-kb"],
        ofmap_kb=values["ofmap-sram-kb"],
        dataflow=Dataflow(values["dataflow"]),
        mode=Bandwidth.CALCULATED if bandwidth is None else Bandwidth.GIVEN,
        bandwidths=(bandwidth or 10,),
        rules=Rules(values["rules"]),
    )
    return ClockedArray(array, values["clock-ghz"])


def _recorded(*_: Any) -> Recorded:
    return Recorded()


Reader = Callable[[dict[str, Any], str, Files, Remarks], Settings]
# By model: its keys, and what makes settings of their values.
READERS: Mapping[str, tuple[tuple[Key, ...], Reader]] = MappingProxyType(
    {
        "systolic": (SYSTOLIC_KEYS, _array),
        "roofline": (ROOFLINE_KEYS, read_roofline),
        "table": (OPERATOR_TABLE_KEYS, read_operator_times),
        "replay": ((), _recorded),
    }
)


def read_compute(given: dict[str, Any], place: str, remarks: Remarks) -> tuple[ComputeRule, ...]:
    """The rules of the key `compute`; a single model is one rule."""
    entries: list[dict[str, Any]] = given.get(NAME, [])
    if len(entries) > MOST_RULES:
        raise MachineError(
            f'key "{NAME}" has {len(entries)} rules', place=place, remedy=f"allowed: at most {MOST_RULES}"
        )
    if any(WHERE not in entry for entry in entries) and given.get("roofline-enabled"):
        raise MachineError(
            f'keys "{NAME}" and "roofline-enabled" both say what times kernels',
            place=place,
            remedy='leave one of them out, or say with "where" which kernels "compute" is for',
        )
    if len(entries) == 1:
        return (_rule(entries[0], f'{place}: "{NAME}"', place, remarks),)
    return tuple(
        _rule(entry, entry_place(place, NAME, index), place, remarks) for index, entry in enumerate(entries)
    )


def _rule(entry: dict[str, Any], place: str, system: str, remarks: Remarks) -> ComputeRule:
    model = entry.get(MODEL)
    if isinstance(model, str) and model not in READERS:
        remedy = f"{nearest(model, tuple(READERS))} allowed: {', '.join(READERS)}".strip()
        raise MachineError(f'key "{MODEL}" is {show(model)}', place=place, remedy=remedy)
    keys, reader = READERS[model] if isinstance(model, str) else ((), _recorded)
    table = (*RULE_KEYS, *keys)
    said = read_keys(Source(place, entry, ""), table, remarks)
    for key in table:
        if key.needs and key.name in said and key.needs not in said:
            raise MachineError(
                f'key "{key.name}" has no effect without "{key.needs}"', place=place, remedy="give both"
            )
    values = fill_defaults(said, table, place, remarks)
    files: Files = []
    settings = reader({**values, "": system}, place, files, remarks)
    where = _where(values[WHERE], f'{place}: "{WHERE}"', remarks) if WHERE in values else None
    return ComputeRule(settings, values.get(LABEL, values[MODEL]), where, place, tuple(files))


def _where(entry: dict[str, Any], place: str, remarks: Remarks) -> Where:
    given = read_keys(Source(place, entry, ""), WHERE_KEYS, remarks)
    if not given:
        raise MachineError("nothing is said of the kernels", place=place, remedy='leave "where" out for all')
    if "value" in given and "attribute" not in given:
        raise MachineError('key "value" has no effect without "attribute"', place=place, remedy="give both")
    if "name" in given and "name-regex" in given:
        raise MachineError('keys "name" and "name-regex" are both given', place=place, remedy="leave one out")
    name = given.get("name-regex")
    if "name" in given:
        name = ".*".join(map(re.escape, given["name"].split("*")))
    try:
        re.compile(name or "")
    except re.error as error:
        raise MachineError(
            f'key "name-regex" is {show(name)}: {error}', place=place, remedy="give a regular expression"
        ) from None
    return Where(
        name=name,
        kind=WorkOf(given["kind"]) if "kind" in given else None,
        operations=tuple(word.strip() for word in given.get("operation", "").split(",") if word.strip()),
        datatype=_datatype(given["dtype"], place) if "dtype" in given else None,
        attribute=given.get("attribute"),
        value=given.get("value"),
        ranks=read_ranks(given.get("ranks", "all"), place),
    )


def _datatype(word: str, place: str) -> str:
    known = datatype_named(word)
    if known is None:
        remedy = f"{nearest(word, tuple(BITS))} known: {', '.join(BITS)}".strip()
        raise MachineError(f'key "dtype" is {show(word)}', place=place, remedy=remedy)
    return known
