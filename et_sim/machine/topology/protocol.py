"""The key `protocol` of the network file: what a transport adds to messages, by preset and single constants.

Not here: what that means for messages (`et_sim.network.flow`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from et_sim.errors import MachineError, UsageError
from et_sim.machine.checks import check, check_names, read_keys
from et_sim.machine.keys import Key, Kind, Remarks
from et_sim.machine.model import Completion, CongestionControl, Marking, Protocol, Window
from et_sim.machine.packet_keys import MARKING_KEYS, PACKET_KEYS
from et_sim.machine.protocol_tables import PRESETS, PROTOCOL_KEY, PROTOCOL_KEYS, TELEMETRY
from et_sim.machine.sources import Source
from et_sim.machine.topology.fields import line_of
from et_sim.machine.topology.ns3_keys import read_ns3_keys
from et_sim.units import parse_bandwidth


def read_protocol(source: Source, remarks: Remarks) -> Protocol | None:
    """The one that the source describes, if any."""
    if PROTOCOL_KEY.name not in source.content:
        return None
    given: dict[str, Any] = check(PROTOCOL_KEY, source.content[PROTOCOL_KEY.name], _place(source), remarks)
    table = (*PROTOCOL_KEYS, *PACKET_KEYS)
    keys = {key.name: key for key in table}
    values = {}
    for name, value in given.items():
        place = _place(source, name)
        check_names(Source(place, {name: value}, ""), table, remarks)
        if name in keys:
            values[name] = check(keys[name], value, place, remarks)
    preset, file = values.pop("preset", None), values.pop("file", None)
    if preset is not None and file is not None:
        raise MachineError(
            'key "protocol" has both a preset and a file',
            place=_place(source),
            remedy="leave out one of them",
        )
    if preset is None and file is None and "payload" not in values:
        raise MachineError(
            'key "protocol" does not say how large packets are',
            place=_place(source),
            remedy=f"give a payload in bytes, or a preset: {', '.join(PRESETS)}",
        )
    base = Protocol() if preset is None else PRESETS[preset]
    if file is not None:
        base = read_ns3_keys(_folder(source) / file, remarks)
    return _changed(base, values, _place(source))


def _changed(base: Protocol, values: dict[str, Any], place: str) -> Protocol:
    """A protocol with other values for single keys."""
    packets, control, buffers = base.packets, base.packets.control, base.packets.buffers
    fields = {key.name: key for key in PACKET_KEYS}
    for name, value in values.items():
        if name not in fields:
            own: dict[str, Any] = {name.replace("-", "_"): value}
            if name == "completion":
                own = {name: Completion(value)}
            base = replace(base, **own)
            continue
        group, _, field = fields[name].field.rpartition(".")
        change = {field: _in_units(fields[name], value, place)}
        if group == "control":
            control = replace(control, **change)
        elif group == "buffers":
            buffers = replace(buffers, **change)
        else:
            packets = replace(packets, **change)
    before, after = (TELEMETRY.get(one.algorithm, (0, 0)) for one in (base.packets.control, control))
    for name, old, new in zip(("header", "acknowledgement"), before, after, strict=True):
        if name not in values:
            base = replace(base, **{name: getattr(base, name) + new - old})
    return replace(base, packets=replace(packets, control=control, buffers=buffers))


def _in_units(key: Key, value: Any, place: str) -> Any:
    """A checked value as the model has it."""
    if key.name == "window":
        return Window(value)
    if key.name == "congestion-control":
        return CongestionControl(value)
    if key.kind is Kind.TEXT:
        return _rate(value, f"{place}: {key.name}")
    if key.kind is Kind.OBJECTS:
        return tuple(_marking(entry, f"{place}: {key.name}") for entry in value)
    return value


def _marking(entry: dict[str, Any], place: str) -> Marking:
    found = read_keys(Source(place, entry, ""), MARKING_KEYS, Remarks())
    if found["to"] < found["from"]:
        raise MachineError('"to" is less than "from"', place=place, remedy="give the larger number as to")
    return Marking(_rate(found["bandwidth"], place), found["from"], found["to"], found["probability"])


def _rate(text: str, place: str) -> int:
    """A bandwidth in bits per second."""
    try:
        return round(parse_bandwidth(text) * 8e9)
    except UsageError as error:
        raise MachineError(str(error), place=place) from None


def _folder(source: Source) -> Path:
    """Where relative paths begin."""
    return Path() if source.place.startswith("<") else Path(source.place).parent


def _place(source: Source, key: str = "") -> str:
    """Where it stands."""
    if source.place.startswith("<"):
        return f'{source.place}: "{PROTOCOL_KEY.name}"'
    text = Path(source.place).read_text(encoding="utf-8-sig")
    return f"{source.place}: line {line_of(text, (PROTOCOL_KEY.name, key))}"
