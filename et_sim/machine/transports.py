"""Transports of messages over links: packets of a protocol, flits with credits, or the constants of LogGOPS.

Each field is the key of the network file that sets it (`protocol`, `credits`, `loggops`, `recovery`). A new
constant of the packet model is one field here, and the code that uses it: the tables of compiled code follow
from these classes (`et_sim.network.settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any

from msgspec import Struct

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
from et_sim.documents.kinds import size as in_bytes
from et_sim.machine.congestion import ROCE, TCP

MOST_BYTES = 1 << 20  # limit of a packet
MOST_CHANNELS = 1 << 12
MOST_NPUS = 1 << 24
LONGEST = 1 << 40  # ns, limit of a constant of LogGOPS
PS_PER_NS = 1000

packet_size = partial(in_bytes, maximum=MOST_BYTES)
span = partial(picoseconds, above_minimum=True)  # above zero
Constants = tuple[tuple[str, Any], ...]  # given keys of single congestion controls, with their values


def rate(meaning: str, default: int = 0, **more: Any) -> Any:
    """Declare a field in bits per second."""
    return key(BITS_PER_S, meaning, default, **more)


class Completion(StrEnum):
    """The event that completes a message for both its ends."""

    RECEIPT = "receipt"
    ACKNOWLEDGEMENT = "acknowledgement"


class Window(StrEnum):
    """The limit of the unacknowledged bytes of a message."""

    NONE = "none"
    PAIR = "pair"  # bandwidth times delay of its path there and back
    LARGEST = "largest"  # the same for the longest path of the network


class Marking(Struct, frozen=True):
    """The marking (ECN) of packets that leave a queue, for ports up to a bandwidth."""

    bits_per_s: int = rate("Highest bandwidth of the ports.", name="bandwidth", required=True)
    least_bytes: int = in_bytes("Bytes in a queue from which packets are marked.", name="from", required=True)
    most_bytes: int = in_bytes(
        "Bytes in a queue from which all packets are marked.", name="to", required=True
    )
    probability: float = number(
        "Probability of marks just below `to`; it is 0 at `from`, and grows linearly.",
        maximum=1,
        required=True,
    )

    def check(self, _: Mapping[str, Any], section: Section, __: Remarks) -> None:
        """Refuse a range that ends before it begins."""
        if self.most_bytes < self.least_bytes:
            raise section.fault('"to" is less than "from"', "give the larger number as to")


class Control(Struct, frozen=True):
    """The congestion control of RoCE, and the constants that several controls have, in bits per second."""

    algorithm: str = choice(
        "Reaction of senders to marks, queues or round-trip times; see [packets](packet.md). HPCC's and "
        "PowerTCP's packets have 42 bytes more, their acknowledgements 28, TIMELY's packets 8, unless sizes "
        "are given.",
        "none",
        name="congestion-control",
        choices=tuple(ROCE),
    )
    least_rate: int = rate("Lowest rate of a sender.", 100_000_000)
    step: int = rate("Step by which rates rise (DCQCN's target, HPCC, TIMELY).", 50_000_000, name="rate-step")
    large_step: int = rate("Step after several rises (DCQCN, TIMELY).", 100_000_000, name="large-rate-step")
    gain: float = number("Gain of alpha from marks (DCQCN, DCTCP).", 1 / 256, maximum=1)
    constants: Constants = ()


class SwitchBuffers(Struct, frozen=True):
    """The buffers of switches for packets that wait; sizes in bytes."""

    size: int = in_bytes("Buffer of each switch, shared by its ports.", 32 << 20, name="buffer", minimum=1)
    pauses: bool = flag("Priority flow control: switches pause upstream ports, and lose no packets.", True)
    reserve: int = in_bytes("Part of the buffer that is reserved for each port.", 4096)
    resume_below: int = in_bytes("Bytes below the threshold at which a pause ends.", 3072)
    threshold_shift: int = count(
        "A port pauses upstream ports when it uses 2^-shift of the free buffer.", 3, maximum=30
    )
    queue_packets: int = count("Without pauses: most packets that wait at a port.", 1 << 30, minimum=1)
    queue_bytes: int = in_bytes("Without pauses: most bytes that wait at a port.", 1 << 60, minimum=1)
    share: float = number(
        "Without pauses: largest queue, as a multiple of the free buffer.",
        1.0,
        name="queue-share",
        above_minimum=True,
    )
    counts_sending: bool = flag(
        "Without pauses: `queue-bytes` counts a packet until it has been sent.",
        False,
        name="queue-counts-sending",
    )
    random_from: int = in_bytes(
        "Without pauses: queue length from which packets are dropped at random.",
        1 << 60,
        name="random-drop-from",
    )
    random_drop: float = number("Probability of random drops.", 0.0, maximum=1)
    marking: tuple[Marking, ...] = sections(
        "ECN: marking of packets that leave a queue, by the bandwidth of the port.", (), of=Marking
    )


class Tcp(Struct, frozen=True):
    """The constants of TCP; times in ns, windows in packets unless bytes are named."""

    control: str = choice(
        "Growth and reduction of windows: `newreno` (RFC 5681), `reno` as in Linux, `cubic` (RFC 8312, with "
        "hybrid slow start), `dctcp` (RFC 8257).",
        "newreno",
        name="congestion-control",
        choices=tuple(TCP),
    )
    sack: bool = flag("Selective acknowledgements (RFC 2018, 6675, 6937).", True)
    first_window: int = count("Initial congestion window, in packets.", 10, minimum=1)
    first_threshold: int = count("Initial threshold of slow start, in packets; 0: only a loss ends it.", 0)
    keeps: int = in_bytes(
        "Buffers of sender and receiver, which limit the bytes in flight of a connection.",
        1 << 20,
        name="window",
        minimum=1,
    )
    per_message: bool = flag(
        "Each message has its own connection, with a handshake; otherwise, each ordered pair of NPUs has one "
        "from the beginning.",
        False,
    )
    opening: int = in_bytes("Size of a packet that opens a connection, and of its answer.", 58, minimum=1)
    handshake: bool = flag("The first message of a pair opens its connection.", False)
    answers_after: int = count(
        "Packets that are acknowledged together.", 1, name="acknowledge-after", minimum=1
    )
    delays_ns: float = picoseconds("Longest delay of an acknowledgement.", 40e6, name="acknowledge-within")
    least_timeout_ns: float = span("Lowest retransmission timeout.", 10e6)
    first_timeout_ns: float = span("Retransmission timeout before the first acknowledgement.", 1e9)
    scan_ns: float = picoseconds(
        "Interval of checks for timeouts; 0: timeouts are exact.", 0.0, name="timeout-interval"
    )
    clock_ns: float = picoseconds("Clock of round-trip times, at least 1 us; 0: exact times.", 0.0)
    bypass: bool = flag(
        "Acknowledgements take no time, and use no links.", False, name="instant-acknowledgements"
    )
    pads: bool = flag(
        "All packets are full; their number is that of a message longer by a packet less a byte (htsim).",
        False,
        name="full-packets",
    )
    takes_turns: bool = flag(
        "Connections take turns at an NPU's port; otherwise, packets leave in order of arrival.",
        False,
        name="turns",
    )
    injection_ns: float = picoseconds(
        "Time from the send of a message until it is at the NIC.", 0.0, name="injection-latency"
    )
    copying_ns_per_byte: float = number(
        "Time of copying a byte, message by message, at both ends.", 0.0, name="copying", unit="ns"
    )
    constants: Constants = ()


class Packets(Struct, frozen=True):
    """The settings of a transport on the packet model."""

    window: Window = choice(
        "Most bytes in flight without an acknowledgement: bandwidth times delay of the `pair`, or of the "
        "`largest` pair in the network, or no limit (`none`).",
        Window.PAIR,
        choices=Window,
    )
    window_shrinks: bool = flag("The window falls and rises with the rate.", True)
    paced: bool = flag("Packets leave at the rate that congestion control sets.", True)
    answers_pass: bool = flag(
        "Acknowledgements leave NPUs that are paused.", False, name="acknowledgements-pass"
    )
    refuses_ns: float = 500_000.0  # between two requests for the same packet
    timeout_ns: float = picoseconds(
        "Time after the last acknowledgement at which all unacknowledged packets are sent again; 0: never, "
        "as in ns-3, `roce` and without a preset.",
        0.0,
        name="retransmission-timeout",
    )
    seed: int = count("Seed of random numbers.", 1)
    control: Control = inline(Control)
    buffers: SwitchBuffers = inline(SwitchBuffers)
    skips_repeats: bool = flag(
        "Repeating states of long messages are skipped, not simulated packet by packet; results are the "
        "same.",
        True,
        name="skip-repeats",
    )
    steady: float = number(
        "Largest part by which times may differ by estimate: messages that are like earlier ones are "
        "skipped; 0: none is.",
        0.0,
        maximum=0.05,
    )
    all_packets: bool = False  # although `steady` allows others: a run with fewer of them was wrong
    as_ns3: bool = flag(
        "Details of ns-3: its random numbers; a rate wakes a port only if the rates of all other pairs "
        "forbid to send; TIMELY's packets carry no time of sending.",
        False,
    )
    tcp: Tcp | None = None  # None: RoCE


class PacketProtocol(Struct, frozen=True):
    """The packets of a transport; sizes in bytes. The default leaves messages whole."""

    payload: int = packet_size(  # 0: messages are not cut into packets
        "Bytes of a message in a packet. Required without a preset.", 0, minimum=1
    )
    header: int = packet_size("Additional bytes of a packet.", 0)
    acknowledgement: int = packet_size(
        "Bytes of the acknowledgement of each packet; 0: acknowledgements use no links.", 0
    )
    store_and_forward: bool = flag(
        "Switches and NICs forward packets only when they are complete: a message takes the time of one "
        "packet longer on every link but the slowest.",
        False,
    )
    completion: Completion = choice(
        "`receipt`: a message is complete with its last packet, and its send when that packet has left. "
        "`acknowledgement`: both are complete with the last acknowledgement.",
        Completion.RECEIPT,
        choices=Completion,
    )
    whole_ns: bool = flag(
        "A full packet, and an acknowledgement, takes whole nanoseconds on each link, rounded, as in ns-3.",
        False,
        name="whole-ns",
    )
    packets: Packets = Packets()
    of_packets_only: tuple[str, ...] = ()  # keys that were given


class LogGopsRules(StrEnum):
    """The simulator whose rules time messages at their targets."""

    ATLAHS = "atlahs"
    LOGGOPSIM = "loggopsim"


class LogGops(Struct, frozen=True):
    """Constants of the LogGOPS model, in ns, and in ns per byte after the first."""

    npus: int = count("Number of NPUs.", minimum=1, maximum=MOST_NPUS, required=True)
    latency: int = count("Latency.", name="L", unit="ns", maximum=LONGEST, required=True)
    overhead: int = count(
        "Overhead: processor time of a message.", name="o", unit="ns", maximum=LONGEST, required=True
    )
    gap: int = count("Gap: NIC time of a message.", name="g", unit="ns", maximum=LONGEST, required=True)
    gap_per_byte: float = number(
        "Gap per byte: NIC time of each byte after the first, which also delays its arrival.",
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
        "The largest eager message. The send of a larger one completes when the message has been received; "
        "with 0, every send does.",
        name="S",
        required=True,
    )
    rules: LogGopsRules = choice(
        "Timing of messages at their targets: as in ATLAHS (`atlahs`), or as in LogGOPSim before it "
        "(`loggopsim`).",
        LogGopsRules.ATLAHS,
        stated=True,
        choices=LogGopsRules,
    )


PACKET, FLIT = "packet", "flit"


def _whole_ps(cycle_ns: float) -> int | None:
    """Convert a cycle to picoseconds; return None if they are not whole."""
    from fractions import Fraction

    exact = Fraction(str(cycle_ns)) * PS_PER_NS
    return int(exact) if exact.denominator == 1 else None


class Credits(Struct, frozen=True):
    """Links that carry flits for which the other end has a buffer."""

    flit: int = packet_size("Bytes of a flit. Without the key: 256.", 256, minimum=1)
    packet: int = packet_size(
        "Bytes of a packet, which takes one channel of each link. Without the key: 4096.",
        4096,
        minimum=1,
    )
    channels: int | None = count(
        "Virtual channels of each class of a link; a packet holds one until the credit of its last flit is "
        "back. Without the key: as many as keep the longest link busy.",
        None,
        minimum=1,
        maximum=MOST_CHANNELS,
    )
    buffer: int | None = count(
        "Flits in the buffer of a channel. Without the key: those of a packet.",
        None,
        unit="flits",
        minimum=1,
        maximum=MOST_BYTES,
    )
    router_cycles: int = count(
        "Cycles of a router's pipeline. Without the key: 1.", 1, unit="cycles", minimum=1, maximum=MOST_BYTES
    )
    cycle_ps: int | None = time(
        "Time of a cycle, in whole picoseconds. Without the key: at most 1 ns, so that a flit takes whole "
        "cycles on the fastest link.",
        None,
        name="cycle",
        above_minimum=True,
        maximum=MOST_BYTES,
        becomes=_whole_ps,
    )
    pads: bool = flag(
        "The last packet of a message is as long as the others. Without the key: it has the remaining bytes.",
        False,
        name="padding",
    )
    turns_of_flits: bool = choice(
        "Times at which a port turns to another waiting packet: after each `packet` (without the key), or "
        "after each `flit`.",
        False,
        name="turns",
        choices=(PACKET, FLIT),
        becomes=FLIT.__eq__,
    )

    @property
    def flits(self) -> int:
        """Return the flits of a full packet."""
        return -(-self.packet // self.flit)

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse a cycle that is not whole, and flits that are longer than packets."""
        if "cycle" in given and self.cycle_ps is None:
            cause = f"a cycle of {section.content['cycle']} is not a whole number of picoseconds"
            raise section.fault(cause, 'give one such as "0.5ns"', key="cycle")
        if self.flit > self.packet:
            raise section.fault(
                f"a flit of {self.flit} bytes is longer than a packet, which has {self.packet}",
                "make packets longer, or flits shorter",
                key="flit" if "flit" in given else "packet",
            )


class Recovery(Struct, frozen=True):
    """The time-outs of senders whose path is dead, and their fail-over."""

    detection_ns: float = time(
        "Time of a try: after it, a sender sends again what was lost. Default: 4.096 us x 2^20, NCCL's "
        "`IB_TIMEOUT`.",
        float(1 << 32),
        name="detection",
    )
    retries: int = count("Further tries before the sender gives up; NCCL's `IB_RETRY_CNT`.", 7)
    fail_over: bool = flag(
        "A sender that gives up takes another port; NCCL's `IB_RESILIENCY_PORT_FAILOVER`.",
        False,
        name="fail-over",
    )
    probe_ns: float = time("Time from giving up to the other port.", 10e6, name="probe")
    fail_back_ns: float = time("Time from the repair of a port to its use.", 200e6, name="fail-back")
    watchdog_ns: float = time(
        "Longest wait of a message for a path; PyTorch's watchdog.", 600e9, name="watchdog"
    )

    @property
    def given_up_ns(self) -> int:
        """Return the time from the loss of bytes to the error of the transport."""
        return (self.retries + 1) * int(self.detection_ns)

    @property
    def last_try_ns(self) -> int:
        """Return the time from the loss of bytes to the last try, on another port with fail-over."""
        return self.given_up_ns + (int(self.probe_ns) if self.fail_over else 0)
