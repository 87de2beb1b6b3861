"""The key `protocol` of the network file: what a transport adds to messages, by preset and single constants.

Not here: what that means for messages (`et_sim.network.flow`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from et_sim.basics.errors import MachineError, UsageError
from et_sim.basics.units import parse_bandwidth
from et_sim.machine.checks import read_keys
from et_sim.machine.keys import Key, Kind, Remarks
from et_sim.machine.packet_keys import MARKING_KEYS, OF_PAUSES, OF_ROCE, PACKET_KEYS, TCP_KEYS, WITHOUT_PAUSES
from et_sim.machine.protocol_tables import PRESETS, PROTOCOL_KEY, PROTOCOL_KEYS, TELEMETRY
from et_sim.machine.sources import Source
from et_sim.machine.topology.generators import place_of, read_inner
from et_sim.machine.topology.ns3_keys import read_ns3_keys
from et_sim.machine.transports import (
    Completion,
    CongestionControl,
    Marking,
    Protocol,
    Tcp,
    TcpControl,
    Window,
)

NS_PER_PS = 0.001
Where = Callable[[str], str]  # where a key stands


def read_protocol(source: Source, remarks: Remarks) -> Protocol | None:
    """The one that the source describes, if any."""
    values = read_inner(source, PROTOCOL_KEY, (*PROTOCOL_KEYS, *PACKET_KEYS), remarks)
    if values is None:
        return None
    preset, file = values.pop("preset", None), values.pop("file", None)
    if preset is not None and file is not None:
        raise MachineError(
            'key "protocol" has both a preset and a file',
            place=place_of(source, PROTOCOL_KEY),
            remedy="leave out one of them",
        )
    if preset is None and file is None and "payload" not in values:
        raise MachineError(
            'key "protocol" does not say how large packets are',
            place=place_of(source, PROTOCOL_KEY),
            remedy=f"give a payload in bytes, or a preset: {', '.join(PRESETS)}",
        )
    base = Protocol() if preset is None else PRESETS[preset]
    if file is not None:
        base = read_ns3_keys(_folder(source) / file, remarks)
    tcp, place = values.pop("tcp", None), place_of(source, PROTOCOL_KEY)
    base = _changed(base, values, place)
    of_packets = tuple(key.name for key in PACKET_KEYS if key.name in values)
    if tcp is not None:
        base = _with_tcp(base, tcp, place_of(source, PROTOCOL_KEY, "tcp"), remarks)
        of_packets = (*of_packets, "tcp")
    for refuse in (_check_use, _check_times, _check_together):
        refuse(base, values, lambda name: place_of(source, PROTOCOL_KEY, name))
    _warn_of_losses(base, place, remarks)
    return replace(base, of_packets_only=of_packets)


def _with_tcp(base: Protocol, given: dict[str, Any], place: str, remarks: Remarks) -> Protocol:
    """TCP in place of RoCE, or with other values for single keys."""
    values = read_keys(Source(f"{place}: tcp", given, ""), TCP_KEYS, remarks)
    _check_picoseconds(TCP_KEYS, values, lambda _: f"{place}: tcp")
    change: dict[str, Any] = {key.field: values[key.name] for key in TCP_KEYS if key.name in values}
    if "control" in change:
        change["control"] = TcpControl(change["control"])
    packets = base.packets
    if packets.tcp is None:
        packets = replace(packets, buffers=replace(packets.buffers, pauses=False))
    return replace(base, packets=replace(packets, tcp=replace(packets.tcp or Tcp(), **change)))


def _check_use(protocol: Protocol, values: dict[str, Any], where: Where) -> None:
    """Refuse keys that would have no effect."""
    packets = protocol.packets
    unused = (
        (packets.tcp is not None, OF_ROCE, "is RoCE's", 'leave it out, or say it in "tcp"'),
        (not packets.buffers.pauses, OF_PAUSES, "has no effect without pauses", "leave it out"),
        (packets.buffers.pauses, WITHOUT_PAUSES, "has no effect with pauses", 'add "pauses": false'),
    )
    for holds, names, why, remedy in unused:
        for name in names:
            if holds and name in values:
                raise MachineError(f'key "{name}" {why}', place=where(name), remedy=remedy)


def _check_times(_protocol: Protocol, values: dict[str, Any], where: Where) -> None:
    _check_picoseconds(PACKET_KEYS, values, where)


def _check_picoseconds(keys: tuple[Key, ...], values: dict[str, Any], where: Where) -> None:
    """Refuse times that are too short to be any."""
    for key in keys:
        if key.kind is Kind.TIME and 0 < values.get(key.name, 0) < NS_PER_PS:
            raise MachineError(
                f'key "{key.name}" is less than a picosecond',
                place=where(key.name),
                remedy="give a longer time; a number without a unit is in ns",
            )


def _check_together(protocol: Protocol, values: dict[str, Any], where: Where) -> None:
    """Refuse values that contradict each other."""
    control, buffers = protocol.packets.control, protocol.packets.buffers
    if control.low_ns > control.high_ns:
        raise MachineError(
            f"low-rtt is {control.low_ns:g} ns, and high-rtt is less, {control.high_ns:g} ns",
            place=where("low-rtt" if "low-rtt" in values else "high-rtt"),
            remedy="give the longer time as high-rtt",
        )
    if "resume-below" in values and buffers.resume_below > buffers.size:
        raise MachineError(
            f"resume-below is {buffers.resume_below:,} bytes, and the buffer has {buffers.size:,}",
            place=where("resume-below"),
            remedy="give a smaller resume-below, or a larger buffer",
        )


def _warn_of_losses(protocol: Protocol, place: str, remarks: Remarks) -> None:
    """Say that packets may be lost that nobody sends again."""
    packets = protocol.packets
    if packets.tcp is None and not packets.buffers.pauses and packets.timeout_ns == 0:
        text = (
            "without pauses, packets are lost on the packet model, and with retransmission-timeout 0 nobody "
            "sends a lost last packet of a message again, and the run does not end: give one such as 1ms"
        )
        remarks.warn(place, PROTOCOL_KEY.name, text)


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
