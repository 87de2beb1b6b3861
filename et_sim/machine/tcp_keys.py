"""Keys of `tcp` in the network file's `protocol`, which the packet model reads.

Not here: presets (`protocol_tables`).
"""

from __future__ import annotations

from et_sim.machine.keys import Key, Kind
from et_sim.machine.transports import TcpControl


def _time(name: str, field: str, meaning: str, *, above_zero: bool = False) -> Key:
    return Key(name, Kind.TIME, meaning, field=field, unit="ns", above_minimum=above_zero)


TCP_KEYS = (
    Key(
        "congestion-control",
        Kind.CHOICE,
        "How windows grow and shrink: `newreno` (RFC 5681), `reno` as in Linux, `cubic` (RFC 8312, with "
        "hybrid slow start), `dctcp` (RFC 8257).",
        field="control",
        choices=tuple(one.value for one in TcpControl),
    ),
    Key("sack", Kind.FLAG, "Selective acknowledgements (RFC 2018, 6675, 6937).", field="sack"),
    Key(
        "first-window",
        Kind.COUNT,
        "The congestion window at first, in packets.",
        field="first_window",
        minimum=1,
    ),
    Key(
        "first-threshold",
        Kind.COUNT,
        "Where slow start ends at first, in packets; 0: only at a loss.",
        field="first_threshold",
    ),
    Key(
        "window",
        Kind.COUNT,
        "What sender and receiver keep of a connection: no more is under way.",
        field="keeps",
        unit="bytes",
        minimum=1,
    ),
    Key(
        "per-message",
        Kind.FLAG,
        "Each message has a connection of its own, with a handshake; otherwise, each ordered pair of NPUs "
        "has one from the beginning.",
        field="per_message",
    ),
    Key(
        "opening",
        Kind.COUNT,
        "A packet that opens a connection, and its answer.",
        field="opening",
        unit="bytes",
        minimum=1,
    ),
    Key(
        "handshake", Kind.FLAG, "The connection of a pair is opened by its first message.", field="handshake"
    ),
    Key(
        "acknowledge-after",
        Kind.COUNT,
        "Packets that are acknowledged together.",
        field="answers_after",
        minimum=1,
    ),
    _time("acknowledge-within", "delays_ns", "How long a packet waits for others at most."),
    _time("least-timeout", "least_timeout_ns", "Before packets are sent again.", above_zero=True),
    _time("first-timeout", "first_timeout_ns", "The same before anything came back.", above_zero=True),
    _time("timeout-interval", "scan_ns", "How often timeouts are looked for; 0: always."),
    _time("clock", "clock_ns", "Of which round-trip times are multiples, at least 1 us; 0: they are exact."),
    Key(
        "instant-acknowledgements", Kind.FLAG, "Acknowledgements take no time, and no links.", field="bypass"
    ),
    Key(
        "full-packets",
        Kind.FLAG,
        "Packets are full, and a message has as many as if it were a packet longer, less a byte (htsim).",
        field="pads",
    ),
    Key(
        "turns",
        Kind.FLAG,
        "At an NPU's port, connections take turns; otherwise, packets leave in the order in which they came.",
        field="takes_turns",
    ),
    _time("injection-latency", "injection_ns", "Until a message that is sent is at the NIC."),
    Key(
        "copying",
        Kind.NUMBER,
        "How long NPUs copy a byte, message by message, at both ends.",
        field="copying_ns_per_byte",
        unit="ns",
    ),
    Key(
        "gain",
        Kind.NUMBER,
        "How fast alpha follows marks (DCTCP).",
        field="gain",
        maximum=1,
    ),
)
