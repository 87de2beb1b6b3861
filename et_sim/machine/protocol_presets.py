"""Presets of the network file's `protocol`, and all its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType

from et_sim.documents.keys import Key, keys_of
from et_sim.documents.kinds import CHOICE, OBJECT, TEXT
from et_sim.machine.congestion import ROCE, TCP, own_keys
from et_sim.machine.transports import (
    Completion,
    Control,
    Marking,
    PacketProtocol,
    Packets,
    SwitchBuffers,
    Tcp,
)

# ECN by bandwidth, as HPCC's authors chose it: Gb/s, and the kB at which marking starts and is complete.
MARKING = tuple(
    Marking(rate * 10**9, least * 1000, most * 1000, 0.2)
    for rate, least, most in (
        (25, 100, 400),
        (40, 200, 800),
        (100, 400, 1600),
        (200, 600, 2400),
        (400, 800, 3200),
        (2400, 800, 3200),
    )
)
LOSSY = SwitchBuffers(pauses=False)
DEFAULT_PRESET = "datacenter"  # of the packet model

PRESETS = MappingProxyType(
    {
        "roce": PacketProtocol(1000, 36, 48, store_and_forward=True, completion=Completion.ACKNOWLEDGEMENT),
        "tcp": PacketProtocol(
            1448, 54, 54, store_and_forward=True, packets=Packets(tcp=Tcp(), buffers=LOSSY)
        ),
        "datacenter": PacketProtocol(
            4096,
            62,
            66,
            store_and_forward=True,
            packets=Packets(timeout_ns=1e7, control=Control("dcqcn"), buffers=SwitchBuffers(marking=MARKING)),
        ),
        "ns3-parity": PacketProtocol(
            1000,
            36,
            48,
            store_and_forward=True,
            completion=Completion.ACKNOWLEDGEMENT,
            whole_ns=True,
            packets=Packets(as_ns3=True, buffers=SwitchBuffers(marking=MARKING)),
        ),
        "ns3-tcp-parity": PacketProtocol(
            1448,
            54,
            54,
            store_and_forward=True,
            whole_ns=True,
            packets=Packets(tcp=Tcp(first_timeout_ns=3e9, clock_ns=1e6, injection_ns=1), buffers=LOSSY),
        ),
        "htsim-parity": PacketProtocol(
            1500,
            0,
            40,
            store_and_forward=True,
            packets=Packets(
                tcp=Tcp(
                    sack=False,
                    first_window=11,  # one of them is the answer to the handshake
                    first_threshold=100,
                    keeps=1 << 40,
                    opening=1,
                    per_message=True,
                    least_timeout_ns=250e6,
                    first_timeout_ns=3e9,
                    scan_ns=10e6,
                    bypass=True,
                    pads=True,
                    takes_turns=True,
                ),
                buffers=SwitchBuffers(
                    size=1 << 40,
                    pauses=False,
                    queue_bytes=8 * 1500,
                    counts_sending=True,
                    random_from=5 * 1500,
                    random_drop=0.1,
                ),
            ),
        ),
    }
)


def packet_keys() -> tuple[Key, ...]:
    """Return the keys of the packet model, with those of single congestion controls."""
    return (*keys_of(Packets), *own_keys(ROCE))


def tcp_keys() -> tuple[Key, ...]:
    """Return the keys of TCP, with those of single congestion controls."""
    return (*keys_of(Tcp), *own_keys(TCP))


class _Names:
    """Names of keys, which import congestion controls when they are listed."""

    def __init__(self, keys: Callable[[], Iterable[Key]]) -> None:
        self._keys = keys

    def __iter__(self) -> Iterator[str]:
        return (key.name for key in self._keys())


PROTOCOL_KEYS = (
    Key(
        "preset",
        CHOICE,
        "Values of the keys that are not given: `roce` as ns-3 models it (1000, 36, 48, true, "
        "`acknowledgement`), `tcp` over IPv4 with timestamps (1448, 54, 54, true, `receipt`), `datacenter` "
        "for RoCE in production (4096, 62, 66, true, `receipt`; DCQCN), `ns3-parity` as `roce` with all "
        "packet rules of ns-3, `ns3-tcp-parity` as `tcp` with ns-3's clock, `htsim-parity` for htsim's TCP.",
        choices=tuple(PRESETS),
    ),
    Key(
        "file",
        TEXT,
        "ns-3's key file (`CC_MODE`, `KMAX_MAP`, …), relative to the network file, in place of a preset; "
        "other keys override it.",
    ),
    *keys_of(PacketProtocol),
    Key(
        "tcp",
        OBJECT,
        "TCP in place of RoCE, on the packet model; see [below](#tcp).",
        choices=_Names(tcp_keys),
    ),
)
PROTOCOL_KEY = Key(
    "protocol",
    OBJECT,
    "The transport of messages on the flow and packet models; see [networks](network-features.md#packets).",
    "Not known there.",
    choices=_Names(lambda: (*PROTOCOL_KEYS, *packet_keys())),
)
