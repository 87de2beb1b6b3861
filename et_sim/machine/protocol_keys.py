"""The key `protocol` of the network file: the transport of messages, by preset and single constants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from et_sim.documents.keys import Remarks, Section, inner_section, keys_of, made, read_keys
from et_sim.machine.congestion import ROCE, TCP, keys_of_control, own_keys, telemetry, with_constants
from et_sim.machine.protocol_presets import PRESETS, PROTOCOL_KEY, PROTOCOL_KEYS, packet_keys, tcp_keys
from et_sim.machine.transports import Control, PacketProtocol, Packets, Tcp

OF_ROCE = ("window", "window-shrinks", "paced", "acknowledgements-pass", "skip-repeats", "steady", "as-ns3")
OF_PAUSES = ("reserve", "resume-below", "threshold-shift")
WITHOUT_PAUSES = (
    *("queue-packets", "queue-bytes", "queue-share", "queue-counts-sending"),
    *("random-drop-from", "random-drop"),
)


def read_protocol(source: Section, remarks: Remarks) -> PacketProtocol | None:
    """Read the protocol that a source describes, if any."""
    section = inner_section(source, PROTOCOL_KEY, remarks)
    if section is None:
        return None
    of_packets = packet_keys()
    given = read_keys(section, (*PROTOCOL_KEYS, *of_packets), remarks)
    if "preset" in given and "file" in given:
        raise section.fault('key "protocol" has both a preset and a file', "leave out one of them")
    if not {"preset", "file", "payload"} & given.keys():
        raise section.fault(
            'key "protocol" has no packet size',
            f"give a payload in bytes, or a preset: {', '.join(PRESETS)}",
        )
    base = PRESETS[given["preset"]] if "preset" in given else PacketProtocol()
    if "file" in given:
        folder = Path() if source.place.startswith("<") else Path(source.place).parent
        from et_sim.machine.ns3_keys import read_ns3_keys

        base = read_ns3_keys(folder / given["file"], remarks)
    tcp = given.pop("tcp", None)
    packets = made(Packets, given, base.packets)
    packets = replace(packets, control=with_constants(packets.control, ROCE, given))
    protocol = made(PacketProtocol, {**_with_telemetry(base, given), "packets": packets}, base)
    if tcp is not None:
        protocol = _with_tcp(protocol, section.entry("tcp", tcp), remarks)
    _check_use(protocol, given, section)
    _check_together(protocol, given, section, remarks)
    _warn_of_losses(protocol, section.at(), remarks)
    names = tuple(key.name for key in of_packets if key.name in given)
    return replace(protocol, of_packets_only=(*names, "tcp") if tcp is not None else names)


def _with_telemetry(base: PacketProtocol, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the sizes of headers that the congestion control needs."""
    before = telemetry(base.packets.control.algorithm)
    after = telemetry(given.get("congestion-control", base.packets.control.algorithm))
    sizes = {"header": base.header, "acknowledgement": base.acknowledgement}
    more = {
        name: size + new - old for (name, size), old, new in zip(sizes.items(), before, after, strict=True)
    }
    return more | dict(given)


def _with_tcp(protocol: PacketProtocol, section: Section, remarks: Remarks) -> PacketProtocol:
    """Return the protocol with TCP in place of RoCE, or with some keys of TCP changed."""
    packets = protocol.packets
    if packets.tcp is None:
        packets = replace(packets, buffers=replace(packets.buffers, pauses=False))
    given = read_keys(section, tcp_keys(), remarks)
    tcp = with_constants(made(Tcp, given, packets.tcp), TCP, given)
    return replace(protocol, packets=replace(packets, tcp=tcp))


def _check_use(protocol: PacketProtocol, given: Mapping[str, Any], section: Section) -> None:
    """Refuse keys that would have no effect."""
    packets = protocol.packets
    of_roce = (*OF_ROCE, *(key.name for key in (*keys_of(Control), *own_keys(ROCE))))
    unused = (
        (packets.tcp is not None, of_roce, "is for RoCE only", 'leave it out, or give it in "tcp"'),
        (not packets.buffers.pauses, OF_PAUSES, "has no effect without pauses", "leave it out"),
        (packets.buffers.pauses, WITHOUT_PAUSES, "has no effect with pauses", 'add "pauses": false'),
    )
    for holds, names, why, remedy in unused:
        for name in names:
            if holds and name in given:
                raise section.fault(f'key "{name}" {why}', remedy, key=name)


def _check_together(
    protocol: PacketProtocol, given: Mapping[str, Any], section: Section, remarks: Remarks
) -> None:
    """Refuse values that contradict each other."""
    control, buffers = protocol.packets.control, protocol.packets.buffers
    for name in ROCE:
        keys = keys_of_control(ROCE, name, control.constants)
        if hasattr(keys, "check"):
            keys.check(given, section, remarks)
    if "resume-below" in given and buffers.resume_below > buffers.size:
        raise section.fault(
            f"resume-below is {buffers.resume_below:,} bytes, and the buffer has {buffers.size:,}",
            "give a smaller resume-below, or a larger buffer",
            key="resume-below",
        )


def _warn_of_losses(protocol: PacketProtocol, place: str, remarks: Remarks) -> None:
    """Warn if packets may be lost and not sent again."""
    packets = protocol.packets
    if packets.tcp is None and not packets.buffers.pauses and packets.timeout_ns == 0:
        text = (
            "without pauses, packets are lost on the packet model, and with retransmission-timeout 0 the "
            "last packet of a message is not sent again, and the run does not end: give a timeout such as 1ms"
        )
        remarks.warn(place, PROTOCOL_KEY.name, text)
