"""What carries messages over links: packets of a transport, flits with credits, or the constants of LogGOPS.

Each field is the key of the network file that sets it (`protocol`, `credits`, `loggops`). A new constant of
the packet model is one field here, and what uses it: the tables of compiled code follow from these classes
(`et_sim.network.settings`).

Not here: the networks themselves (`model`), presets (`protocol_presets`), and what models make of it
(`et_sim.network`).
"""

# ruff: noqa: RUF009 - the calls declare fields, like dataclasses.field
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.documents.keys import Remarks, Section, inline, key
from et_sim.documents.kinds import (
    BITS_PER_S,
    choice,
    count,
    flag,
    number,
    picoseconds,
    sections,
    time,
)

MOST_BYTES = 1 << 20  # of a packet
MOST_CHANNELS = 1 << 12
MOST_NPUS = 1 << 24
LONGEST = 1 << 40  # ns, of a constant of LogGOPS
PS_PER_NS = 1000

in_bytes = partial(count, unit="bytes")
packet_size = partial(in_bytes, maximum=MOST_BYTES)
span = partial(picoseconds, above_minimum=True)  # above zero


def rate(meaning: str, default: int = 0, **more: Any) -> Any:
    """A field in bits per second."""
    return key(BITS_PER_S, meaning, default, **more)


class Completion(StrEnum):
    """When a message is there, for both its ends."""

    RECEIPT = "receipt"
    ACKNOWLEDGEMENT = "acknowledgement"


class Window(StrEnum):
    """How many bytes of a message may be under way without being acknowledged."""

    NONE = "none"
    PAIR = "pair"  # what fits on its way there and back
    LARGEST = "largest"  # the same of the longest way in the network


class CongestionControl(StrEnum):
    """How senders react to congestion."""

    NONE = "none"
    DCQCN = "dcqcn"
    HPCC = "hpcc"
    TIMELY = "timely"
    DCTCP = "dctcp"


class TcpControl(StrEnum):
    """How TCP's congestion window grows and shrinks."""

    NEWRENO = "newreno"
    RENO = "reno"  # as in Linux
    CUBIC = "cubic"
    DCTCP = "dctcp"


@quick_dataclass(frozen=True)
class Marking:
    """When packets that leave a queue are marked (ECN), for ports up to a bandwidth."""

    bits_per_s: int = rate("Of ports up to it.", name="bandwidth", required=True)
    least_bytes: int = in_bytes(
        "Bytes in a queue from which on packets are marked.", name="from", required=True
    )
    most_bytes: int = in_bytes("Bytes from which on all are.", name="to", required=True)
    probability: float = number(
        "The probability with which packets are marked just below `to`; it is 0 at `from`, and grows evenly.",
        maximum=1,
        required=True,
    )

    def check(self, _: Mapping[str, Any], section: Section, __: Remarks) -> None:
        """Refuse what ends before it begins."""
        if self.most_bytes < self.least_bytes:
            raise section.fault('"to" is less than "from"', "give the larger number as to")


@quick_dataclass(frozen=True)
class Control:
    """The constants of congestion control; times in ns, rates in bits per second."""

    algorithm: CongestionControl = choice(
        "How senders react to marks, queues or round-trip times; see [packets](packet.md). HPCC's packets "
        "have 42 bytes more, its acknowledgements 28, TIMELY's packets 8, unless sizes are given.",
        CongestionControl.NONE,
        name="congestion-control",
        choices=CongestionControl,
    )
    least_rate: int = rate("No sender becomes slower.", 100_000_000)
    step: int = rate("By which rates rise (DCQCN's target, HPCC, TIMELY).", 50_000_000, name="rate-step")
    large_step: int = rate(
        "The same when they have risen for a while (DCQCN, TIMELY).", 100_000_000, name="large-rate-step"
    )
    dctcp_step: int = rate("By which DCTCP's rates rise.", 1_000_000_000)
    gain: float = number("How fast alpha follows marks (DCQCN, DCTCP).", 1 / 256, maximum=1)
    alpha_ns: float = span("Until alpha follows (DCQCN).", 1000.0, name="alpha-interval")
    decrease_ns: float = span("Until rates may fall again (DCQCN).", 4000.0, name="decrease-interval")
    increase_ns: float = span("Until rates rise (DCQCN).", 900_000.0, name="increase-interval")
    recoveries: int = count("Rises before the target rises (DCQCN).", 1)
    clamps_target: bool = flag("The target falls at every decrease (DCQCN).", False, name="clamp-target")
    wanted_use: float = number(
        "How full links are to be, as a part of 1 (HPCC).", 0.95, above_minimum=True, maximum=1
    )
    most_steps: int = count("Rises in a row (HPCC).", 0)
    reacts_fast: bool = flag("Every acknowledgement counts (HPCC).", True, name="fast-reaction")
    samples: bool = flag("Between rounds, empty queues do not count (HPCC).", False, name="sampled")
    units: int = count(
        "Of 128 bytes sent and 80 queued, in which ports are described (HPCC).",
        1,
        name="telemetry-units",
        minimum=1,
    )
    timely_alpha: float = 0.875
    timely_beta: float = 0.8
    low_ns: float = span("Below it, rates rise (TIMELY).", 50_000.0, name="low-rtt")
    high_ns: float = span("Above it, rates fall (TIMELY).", 500_000.0, name="high-rtt")
    least_rtt_ns: float = span("Of which gradients are a part (TIMELY).", 20_000.0)


@quick_dataclass(frozen=True)
class Buffers:
    """What switches keep of packets that wait; sizes in bytes."""

    size: int = in_bytes("Of each switch, shared by its ports.", 32 << 20, name="buffer", minimum=1)
    pauses: bool = flag(
        "Priority flow control: switches tell those before them to pause, and lose nothing.", True
    )
    reserve: int = in_bytes("Of the buffer, for each port, before it uses what is shared.", 4096)
    resume_below: int = in_bytes("So much below the threshold, a pause ends.", 3072)
    threshold_shift: int = count(
        "A port pauses those before it when it uses 2^-shift of what is free.", 3, maximum=30
    )
    queue_packets: int = count("Without pauses: how many wait at most at a port.", 1 << 30, minimum=1)
    queue_bytes: int = in_bytes("The same in bytes.", 1 << 60, minimum=1)
    share: float = number(
        "Without pauses: a queue may be so many times as large as what is free of the buffer.",
        1.0,
        name="queue-share",
        above_minimum=True,
    )
    counts_sending: bool = flag(
        "Without pauses: a packet is in its queue until it has been sent, of those in bytes.",
        False,
        name="queue-counts-sending",
    )
    random_from: int = in_bytes(
        "Without pauses: of a queue that is longer, packets are dropped at random.",
        1 << 60,
        name="random-drop-from",
    )
    random_drop: float = number("The probability with which such a packet is dropped.", 0.0, maximum=1)
    marking: tuple[Marking, ...] = sections(
        "ECN: what is marked when it leaves a queue, by the bandwidth of the port.", (), of=Marking
    )


@quick_dataclass(frozen=True)
class Tcp:
    """What TCP needs besides; times in ns, windows in packets unless they say bytes."""

    control: TcpControl = choice(
        "How windows grow and shrink: `newreno` (RFC 5681), `reno` as in Linux, `cubic` (RFC 8312, with "
        "hybrid slow start), `dctcp` (RFC 8257).",
        TcpControl.NEWRENO,
        name="congestion-control",
        choices=TcpControl,
    )
    sack: bool = flag("Selective acknowledgements (RFC 2018, 6675, 6937).", True)
    first_window: int = count("The congestion window at first, in packets.", 10, minimum=1)
    first_threshold: int = count("Where slow start ends at first, in packets; 0: only at a loss.", 0)
    keeps: int = in_bytes(
        "What sender and receiver keep of a connection: no more is under way.",
        1 << 20,
        name="window",
        minimum=1,
    )
    per_message: bool = flag(
        "Each message has a connection of its own, with a handshake; otherwise, each ordered pair of NPUs "
        "has one from the beginning.",
        False,
    )
    opening: int = in_bytes("A packet that opens a connection, and its answer.", 58, minimum=1)
    handshake: bool = flag("The connection of a pair is opened by its first message.", False)
    answers_after: int = count(
        "Packets that are acknowledged together.", 1, name="acknowledge-after", minimum=1
    )
    delays_ns: float = picoseconds(
        "How long a packet waits for others at most.", 40e6, name="acknowledge-within"
    )
    least_timeout_ns: float = span("Before packets are sent again.", 10e6)
    first_timeout_ns: float = span("The same before anything came back.", 1e9)
    scan_ns: float = picoseconds(
        "How often timeouts are looked for; 0: always.", 0.0, name="timeout-interval"
    )
    clock_ns: float = picoseconds(
        "Of which round-trip times are multiples, at least 1 us; 0: they are exact.", 0.0
    )
    bypass: bool = flag(
        "Acknowledgements take no time, and no links.", False, name="instant-acknowledgements"
    )
    pads: bool = flag(
        "Packets are full, and a message has as many as if it were a packet longer, less a byte (htsim).",
        False,
        name="full-packets",
    )
    takes_turns: bool = flag(
        "At an NPU's port, connections take turns; otherwise, packets leave in the order in which they came.",
        False,
        name="turns",
    )
    injection_ns: float = picoseconds(
        "Until a message that is sent is at the NIC.", 0.0, name="injection-latency"
    )
    copying_ns_per_byte: float = number(
        "How long NPUs copy a byte, message by message, at both ends.", 0.0, name="copying", unit="ns"
    )
    gain: float = number("How fast alpha follows marks (DCTCP).", 1 / 16, maximum=1)


@quick_dataclass(frozen=True)
class Packets:
    """What the packet model needs of a transport besides."""

    window: Window = choice(
        "How many bytes may be under way without being acknowledged: what fits on the way there and back "
        "of the `pair`, what fits on the `largest` such way in the network, or no limit (`none`).",
        Window.PAIR,
        choices=Window,
    )
    window_shrinks: bool = flag("The window falls and rises with the rate.", True)
    paced: bool = flag("Packets leave at the rate that congestion control sets.", True)
    answers_pass: bool = flag(
        "Acknowledgements leave NPUs that were told to pause.", False, name="acknowledgements-pass"
    )
    refuses_ns: float = 500_000.0  # between two requests for the same packet
    timeout_ns: float = picoseconds(
        "So long after the last acknowledgement, all that was not acknowledged is sent again; 0: never, as "
        "in ns-3, `roce` and without a preset.",
        0.0,
        name="retransmission-timeout",
    )
    seed: int = count("Of random numbers.", 1)
    control: Control = inline(Control)
    buffers: Buffers = inline(Buffers)
    skips_repeats: bool = flag(
        "What repeats itself while long messages are sent is skipped, and not simulated packet by packet; "
        "results are the same.",
        True,
        name="skip-repeats",
    )
    as_ns3: bool = flag(
        "Details of ns-3: its random numbers; a rate wakes a port only if no other pair could send as far as "
        "its rate goes; TIMELY's packets do not say when they were sent.",
        False,
    )
    tcp: Tcp | None = None  # None: RoCE


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a transport makes of messages; sizes in bytes. This one leaves them as they are."""

    payload: int = packet_size(  # 0: messages are not cut into packets
        "Bytes of a message in a packet. Required without a preset.", 0, minimum=1
    )
    header: int = packet_size("Bytes that a packet has besides.", 0)
    acknowledgement: int = packet_size(
        "Bytes that go back for each packet; 0: acknowledgements take no part of the links.", 0
    )
    store_and_forward: bool = flag(
        "Switches and NICs pass on packets when they have all of them: a message takes one packet's time "
        "longer on every link but the narrowest.",
        False,
    )
    completion: Completion = choice(
        "`receipt`: a message is there with its last packet, and has left when that is on the way. "
        "`acknowledgement`: both when the last acknowledgement is back.",
        Completion.RECEIPT,
        choices=Completion,
    )
    whole_ns: bool = flag(
        "A full packet, and an acknowledgement, takes whole nanoseconds on each link, rounded, as in ns-3.",
        False,
        name="whole-ns",
    )
    packets: Packets = Packets()
    of_packets_only: tuple[str, ...] = field(default=(), compare=False)  # keys that were given


class LogGopsRules(StrEnum):
    """Whose rules say what a message takes at its target, and when."""

    ATLAHS = "atlahs"
    LOGGOPSIM = "loggopsim"


@quick_dataclass(frozen=True)
class LogGops:
    """Constants of the LogGOPS model, in ns, and in ns per byte after the first."""

    npus: int = count("How many NPUs there are.", minimum=1, maximum=MOST_NPUS, required=True)
    latency: int = count("Latency.", name="L", unit="ns", maximum=LONGEST, required=True)
    overhead: int = count(
        "Overhead: processor time of a message.", name="o", unit="ns", maximum=LONGEST, required=True
    )
    gap: int = count("Gap: NIC time of a message.", name="g", unit="ns", maximum=LONGEST, required=True)
    gap_per_byte: float = number(
        "Gap per byte: NIC time of each byte after the first, which is also how much later it arrives.",
        name="G",
        unit="ns per byte",
        maximum=1 << 20,
        required=True,
    )
    overhead_per_byte: int = count(
        "Overhead per byte: processor time of each byte after the first.",
        0,
        stated=True,
        name="O",
        unit="ns per byte",
        maximum=1 << 20,
    )
    most_eager: int = in_bytes(
        "The largest eager message. A send of more is done when its message has been received; with 0, so is "
        "every send.",
        name="S",
        required=True,
    )
    rules: LogGopsRules = choice(
        "What a message takes at its target, and when: as in ATLAHS (`atlahs`), or as in LogGOPSim before it "
        "(`loggopsim`).",
        LogGopsRules.ATLAHS,
        stated=True,
        choices=LogGopsRules,
    )


PACKET, FLIT = "packet", "flit"


def _whole_ps(cycle_ns: float) -> int | None:
    """A cycle in picoseconds; None: they are not whole."""
    from fractions import Fraction

    exact = Fraction(str(cycle_ns)) * PS_PER_NS
    return int(exact) if exact.denominator == 1 else None


@quick_dataclass(frozen=True)
class Credits:
    """Links that carry flits for which there is a place at the other end."""

    flit: int = packet_size("Bytes that move at a time; 256 unless given.", 256, minimum=1)
    packet: int = packet_size(
        "Bytes of a message in a packet, which takes one channel of each link; 4096 unless given.",
        4096,
        minimum=1,
    )
    channels: int | None = count(
        "Virtual channels of each class of a link; a packet holds one until it is known at the link's "
        "beginning that it has left it. Unless given, as many as keep the longest link busy.",
        None,
        minimum=1,
        maximum=MOST_CHANNELS,
    )
    buffer: int | None = count(
        "Flits for which a channel has places; those of a packet unless given.",
        None,
        unit="flits",
        minimum=1,
        maximum=MOST_BYTES,
    )
    router_cycles: int = count(
        "Cycles of a router's pipeline; 1 unless given.", 1, unit="cycles", minimum=1, maximum=MOST_BYTES
    )
    cycle_ps: int | None = time(
        "How long a cycle takes, in whole picoseconds; unless given, at most 1 ns, so that a flit takes "
        "whole cycles on the fastest link.",
        None,
        name="cycle",
        above_minimum=True,
        maximum=MOST_BYTES,
        becomes=_whole_ps,
    )
    pads: bool = flag(
        "The last packet of a message is as long as the others; unless given, it is as long as what is left.",
        False,
        name="padding",
    )
    turns_of_flits: bool = choice(
        "When a port turns to another packet that waits for it: after each `packet` (unless given), or after "
        "each `flit`.",
        False,
        name="turns",
        choices=(PACKET, FLIT),
        becomes=FLIT.__eq__,
    )

    @property
    def flits(self) -> int:
        """Of a full packet."""
        return -(-self.packet // self.flit)

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse what no link can carry."""
        if "cycle" in given and self.cycle_ps is None:
            cause = f"a cycle of {section.content['cycle']} is not a whole number of picoseconds"
            raise section.fault(cause, 'such as "0.5ns"', key="cycle")
        if self.flit > self.packet:
            raise section.fault(
                f"a flit of {self.flit} bytes is longer than a packet, which has {self.packet}",
                "make packets longer, or flits shorter",
                key="flit" if "flit" in given else "packet",
            )
