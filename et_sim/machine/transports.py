"""What carries messages over links: packets of a transport, flits with credits, or the constants of LogGOPS.

Not here: the networks themselves (`model`), and what models make of it (`et_sim.network`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class Marking:
    """When packets that leave a queue are marked (ECN), for ports up to a bandwidth."""

    bits_per_s: int
    least_bytes: int
    most_bytes: int
    probability: float  # at the most


@dataclass(frozen=True, slots=True)
class Control:
    """The constants of congestion control; times in ns, rates in bits per second."""

    algorithm: CongestionControl = CongestionControl.NONE
    least_rate: int = 100_000_000
    step: int = 50_000_000
    large_step: int = 100_000_000
    gain: float = 1 / 256
    alpha_ns: float = 1000.0
    decrease_ns: float = 4000.0
    increase_ns: float = 900_000.0
    recoveries: int = 1
    clamps_target: bool = False
    wanted_use: float = 0.95
    most_steps: int = 0
    reacts_fast: bool = True
    samples: bool = False
    units: int = 1
    dctcp_step: int = 1_000_000_000
    timely_alpha: float = 0.875
    timely_beta: float = 0.8
    low_ns: float = 50_000.0
    high_ns: float = 500_000.0
    least_rtt_ns: float = 20_000.0


@dataclass(frozen=True, slots=True)
class Buffers:
    """What switches keep of packets that wait; sizes in bytes."""

    size: int = 32 << 20  # of a switch
    pauses: bool = True  # priority flow control
    reserve: int = 4096  # of each port, before what all share is used
    resume_below: int = 3072  # the threshold
    threshold_shift: int = 3  # a port may use 2^-shift of what is free
    queue_packets: int = 1 << 30  # of a port, without pauses; this and the next two
    queue_bytes: int = 1 << 60
    share: float = 1.0  # of what is free
    counts_sending: bool = False  # a packet is in its queue until it has been sent
    random_from: int = 1 << 60  # bytes in a queue above which packets are dropped at random
    random_drop: float = 0.0  # with this probability
    marking: tuple[Marking, ...] = ()


class TcpControl(StrEnum):
    """How TCP's congestion window grows and shrinks."""

    NEWRENO = "newreno"
    RENO = "reno"  # as in Linux
    CUBIC = "cubic"
    DCTCP = "dctcp"


@dataclass(frozen=True, slots=True)
class Tcp:
    """What TCP needs besides; times in ns, windows in packets unless they say bytes."""

    control: TcpControl = TcpControl.NEWRENO
    sack: bool = True
    first_window: int = 10
    first_threshold: int = 0  # of slow start; 0: none
    keeps: int = 1 << 20  # bytes, at either end
    opening: int = 58  # bytes of a packet that opens a connection, and of its answer
    per_message: bool = False  # a connection for each message, else for each ordered pair of ranks
    handshake: bool = False  # connections are not open from the beginning
    answers_after: int = 1  # packets
    delays_ns: float = 40e6  # before a packet is acknowledged
    least_timeout_ns: float = 10e6
    first_timeout_ns: float = 1e9  # before anything was acknowledged
    scan_ns: float = 0.0  # timeouts are looked for this often; 0: always
    clock_ns: float = 0.0  # of which round-trip times are multiples; 0: they are exact
    bypass: bool = False  # acknowledgements take no time
    pads: bool = False  # messages are full packets
    takes_turns: bool = False  # connections at a host's port, else first come, first served
    injection_ns: float = 0.0  # until a message is with its NIC
    copying_ns_per_byte: float = 0.0  # at both ends
    gain: float = 1 / 16  # of DCTCP


@dataclass(frozen=True, slots=True)
class Packets:
    """What the packet model needs of a transport besides."""

    window: Window = Window.PAIR
    window_shrinks: bool = True  # with the rate
    paced: bool = True  # by the rate; else by the line
    answers_pass: bool = False  # acknowledgements leave a host that is paused
    refuses_ns: float = 500_000.0  # between two requests for the same packet
    timeout_ns: float = 0.0  # without an acknowledgement, until packets are sent again; 0: never
    seed: int = 1
    as_ns3: bool = False  # random numbers, what wakes a port, and TIMELY's packets are as in ns-3
    skips_repeats: bool = True  # what repeats itself is not simulated packet by packet
    control: Control = Control()
    buffers: Buffers = Buffers()
    tcp: Tcp | None = None  # None: RoCE


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a transport makes of messages; sizes in bytes. This one leaves them as they are."""

    payload: int = 0  # of a packet; 0: messages are not cut into packets
    header: int = 0  # of a packet
    acknowledgement: int = 0  # of each packet, on the way back; 0: none
    store_and_forward: bool = False  # devices pass on packets when they have all of them
    completion: Completion = Completion.RECEIPT
    whole_ns: bool = False  # the time of a packet on a link is rounded to whole ns
    packets: Packets = Packets()
    of_packets_only: tuple[str, ...] = field(default=(), compare=False)  # keys that were given


@dataclass(frozen=True, slots=True)
class LogGops:
    """Constants of the LogGOPS model, in ns, and in ns per byte after the first."""

    latency: int  # L
    overhead: int  # o, of a processor for a message
    gap: int  # g, of a NIC between messages
    gap_per_byte: float  # G
    overhead_per_byte: int  # O
    most_eager: int  # S: the bytes of the largest message that nobody has to be ready for


@dataclass(frozen=True, slots=True)
class Credits:
    """Links that carry flits for which there is a place at the other end."""

    flit: int = 256  # bytes
    packet: int = 4096  # bytes; messages are cut into packets, and these into flits
    channels: int | None = None  # of each class of a link; None: enough for a link that is never idle
    buffer: int | None = None  # flits in each; None: a packet
    router_cycles: int = 1
    cycle_ps: int | None = None  # None: at most 1 ns, for whole cycles on the fastest link
    pads: bool = False  # the last packet of a message is as long as the others
    turns_of_flits: bool = False  # ports turn to another packet after each flit, not after a packet

    @property
    def flits(self) -> int:
        """Of a full packet."""
        return -(-self.packet // self.flit)
