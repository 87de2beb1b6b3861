"""Keys of the network file's `protocol` that only the packet model reads.

Not here: those that the flow model reads, too, and presets (`protocol_tables`).
"""

from __future__ import annotations

from et_sim.machine.keys import Key, Kind
from et_sim.machine.transports import CongestionControl, TcpControl, Window


def _time(name: str, field: str, meaning: str, *, above_zero: bool = False) -> Key:
    return Key(name, Kind.TIME, meaning, field=field, unit="ns", above_minimum=above_zero)


def _time_above_zero(name: str, field: str, meaning: str) -> Key:
    return _time(name, field, meaning, above_zero=True)


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


RATE = "A bandwidth with its unit."


def _rate(name: str, field: str, meaning: str) -> Key:
    return Key(name, Kind.TEXT, f"{meaning} {RATE}", field=field)


def _bytes(name: str, field: str, meaning: str, minimum: int = 0) -> Key:
    return Key(name, Kind.COUNT, meaning, field=field, unit="bytes", minimum=minimum)


PACKET_KEYS = (
    Key(
        "window",
        Kind.CHOICE,
        "How many bytes may be under way without being acknowledged: what fits on the way there and back "
        "of the `pair`, what fits on the `largest` such way in the network, or no limit (`none`).",
        field="window",
        choices=tuple(one.value for one in Window),
    ),
    Key("window-shrinks", Kind.FLAG, "The window falls and rises with the rate.", field="window_shrinks"),
    Key("paced", Kind.FLAG, "Packets leave at the rate that congestion control sets.", field="paced"),
    Key(
        "acknowledgements-pass",
        Kind.FLAG,
        "Acknowledgements leave NPUs that were told to pause.",
        field="answers_pass",
    ),
    Key(
        "retransmission-timeout",
        Kind.TIME,
        "So long after the last acknowledgement, all that was not acknowledged is sent again; 0: never, as "
        "in ns-3, `roce` and without a preset.",
        field="timeout_ns",
        unit="ns",
    ),
    Key("seed", Kind.COUNT, "Of random numbers.", field="seed"),
    Key(
        "congestion-control",
        Kind.CHOICE,
        "How senders react to marks, queues or round-trip times; see [packets](packet.md). HPCC's packets "
        "have 42 bytes more, its acknowledgements 28, TIMELY's packets 8, unless sizes are given.",
        field="control.algorithm",
        choices=tuple(one.value for one in CongestionControl),
    ),
    _rate("least-rate", "control.least_rate", "No sender becomes slower."),
    _rate("rate-step", "control.step", "By which rates rise (DCQCN's target, HPCC, TIMELY)."),
    _rate(
        "large-rate-step", "control.large_step", "The same when they have risen for a while (DCQCN, TIMELY)."
    ),
    _rate("dctcp-step", "control.dctcp_step", "By which DCTCP's rates rise."),
    Key(
        "gain",
        Kind.NUMBER,
        "How fast alpha follows marks (DCQCN, DCTCP).",
        field="control.gain",
        maximum=1,
    ),
    _time_above_zero("alpha-interval", "control.alpha_ns", "Until alpha follows (DCQCN)."),
    _time_above_zero("decrease-interval", "control.decrease_ns", "Until rates may fall again (DCQCN)."),
    _time_above_zero("increase-interval", "control.increase_ns", "Until rates rise (DCQCN)."),
    Key("recoveries", Kind.COUNT, "Rises before the target rises (DCQCN).", field="control.recoveries"),
    Key(
        "clamp-target",
        Kind.FLAG,
        "The target falls at every decrease (DCQCN).",
        field="control.clamps_target",
    ),
    Key(
        "wanted-use",
        Kind.NUMBER,
        "How full links are to be, as a part of 1 (HPCC).",
        field="control.wanted_use",
        above_minimum=True,
        maximum=1,
    ),
    Key("most-steps", Kind.COUNT, "Rises in a row (HPCC).", field="control.most_steps"),
    Key("fast-reaction", Kind.FLAG, "Every acknowledgement counts (HPCC).", field="control.reacts_fast"),
    Key("sampled", Kind.FLAG, "Between rounds, empty queues do not count (HPCC).", field="control.samples"),
    Key(
        "telemetry-units",
        Kind.COUNT,
        "Of 128 bytes sent and 80 queued, in which ports are described (HPCC).",
        field="control.units",
        minimum=1,
    ),
    _time_above_zero("low-rtt", "control.low_ns", "Below it, rates rise (TIMELY)."),
    _time_above_zero("high-rtt", "control.high_ns", "Above it, rates fall (TIMELY)."),
    _time_above_zero("least-rtt", "control.least_rtt_ns", "Of which gradients are a part (TIMELY)."),
    _bytes("buffer", "buffers.size", "Of each switch, shared by its ports.", minimum=1),
    Key(
        "pauses",
        Kind.FLAG,
        "Priority flow control: switches tell those before them to pause, and lose nothing.",
        field="buffers.pauses",
    ),
    _bytes("reserve", "buffers.reserve", "Of the buffer, for each port, before it uses what is shared."),
    _bytes("resume-below", "buffers.resume_below", "So much below the threshold, a pause ends."),
    Key(
        "threshold-shift",
        Kind.COUNT,
        "A port pauses those before it when it uses 2^-shift of what is free.",
        field="buffers.threshold_shift",
        maximum=30,
    ),
    Key(
        "queue-packets",
        Kind.COUNT,
        "Without pauses: how many wait at most at a port.",
        field="buffers.queue_packets",
        minimum=1,
    ),
    _bytes("queue-bytes", "buffers.queue_bytes", "The same in bytes.", minimum=1),
    Key(
        "queue-share",
        Kind.NUMBER,
        "Without pauses: a queue may be so many times as large as what is free of the buffer.",
        field="buffers.share",
        above_minimum=True,
    ),
    Key(
        "queue-counts-sending",
        Kind.FLAG,
        "Without pauses: a packet is in its queue until it has been sent, of those in bytes.",
        field="buffers.counts_sending",
    ),
    _bytes(
        "random-drop-from",
        "buffers.random_from",
        "Without pauses: of a queue that is longer, packets are dropped at random.",
    ),
    Key(
        "random-drop",
        Kind.NUMBER,
        "The probability with which such a packet is dropped.",
        field="buffers.random_drop",
        maximum=1,
    ),
    Key(
        "marking",
        Kind.OBJECTS,
        "ECN: what is marked when it leaves a queue, by the bandwidth of the port.",
        field="buffers.marking",
        choices=("bandwidth", "from", "to", "probability"),
    ),
    Key(
        "skip-repeats",
        Kind.FLAG,
        "What repeats itself while long messages are sent is skipped, and not simulated packet by packet; "
        "results are the same.",
        field="skips_repeats",
    ),
    Key(
        "as-ns3",
        Kind.FLAG,
        "Details of ns-3: its random numbers; a rate wakes a port only if no other pair could send as far as "
        "its rate goes; TIMELY's packets do not say when they were sent.",
        field="as_ns3",
    ),
)
OF_ROCE = (
    "window",
    "window-shrinks",
    "paced",
    "acknowledgements-pass",
    "skip-repeats",
    "as-ns3",
    *(key.name for key in PACKET_KEYS if key.field.startswith("control.")),
)
OF_PAUSES = ("reserve", "resume-below", "threshold-shift")
WITHOUT_PAUSES = (
    "queue-packets",
    "queue-bytes",
    "queue-share",
    "queue-counts-sending",
    "random-drop-from",
    "random-drop",
)
MARKING_KEYS = (
    Key("bandwidth", Kind.TEXT, f"Of ports up to it. {RATE}", required=True),
    Key(
        "from", Kind.COUNT, "Bytes in a queue from which on packets are marked.", unit="bytes", required=True
    ),
    Key("to", Kind.COUNT, "Bytes from which on all are.", unit="bytes", required=True),
    Key(
        "probability",
        Kind.NUMBER,
        "The probability with which packets are marked just below `to`; it is 0 at `from`, and grows evenly.",
        maximum=1,
        required=True,
    ),
)
