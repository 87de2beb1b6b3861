"""The constants by which collective libraries choose, by GPU and by library.

Figures of NCCL 2.30.7 (NVIDIA/nccl, commit 5067397c, Apache-2.0: src/graph/tuning.cc, search.cc, topo.h) and
of RCCL of October 2024 (ROCm/rccl, 0cbce2a7). Microseconds and GB/s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from msgspec import Struct

from et_sim.machine.collective_library.channels import Speeds


class LibraryProtocol(IntEnum):
    """Protocols that pass bytes on: short lines with flags, or chunks with fences."""

    LL = 0
    LL128 = 1
    SIMPLE = 2


PROTOCOL_NAMES: Mapping[LibraryProtocol, str] = MappingProxyType(
    {LibraryProtocol.LL: "LL", LibraryProtocol.LL128: "LL128", LibraryProtocol.SIMPLE: "Simple"}
)
RING, TREE, NVLS, NVLS_TREE, COLLNET_DIRECT, COLLNET_CHAIN, PAT = (
    "ring",
    "tree",
    "nvls",
    "nvls-tree",
    "collnet-direct",
    "collnet-chain",
    "pat",
)
ALGORITHMS = (RING, TREE, NVLS, NVLS_TREE, COLLNET_DIRECT, COLLNET_CHAIN, PAT)


def protocols_named(names: tuple[str, ...]) -> tuple[LibraryProtocol, ...]:
    """Return the protocols of these names."""
    return tuple(protocol for protocol, name in PROTOCOL_NAMES.items() if name in names)


def name_of(algorithm: str, protocol: LibraryProtocol) -> str:
    """Return the name of an algorithm with a protocol, as it is shown."""
    return f"{algorithm} {PROTOCOL_NAMES[protocol]}"


ByProtocol = tuple[float, float, float]
ByNodes = tuple[float, float, float]  # one, two, more


class StepTimes(Struct, frozen=True):
    """Microseconds of a step over one kind of link."""

    tree: ByProtocol
    ring: ByProtocol
    collnet_direct: float = 0.0
    collnet_chain: float = 0.0
    nvls: float = 0.0
    nvls_tree: float = 0.0
    pat: float = 0.0


class Gpu(Struct, frozen=True):
    """The constants of a generation of GPUs that the choice depends on."""

    speeds: Speeds
    ll_most: float  # on one node
    ring_ll128: float  # of a channel
    tree_ll128: ByNodes
    tree: ByNodes
    nvls_tree: ByNodes = (0.0, 0.0, 0.0)
    nvls_efficiency: float = 0.0  # 0: it has none
    nvls_tree_by_size: bool = False  # NVLS trees have the factors of trees with Simple, except with `ARM`
    ring_plateau: float = 1.4  # factor of the steps of large all-reduces by ring between nodes
    tree_simple_on_a_node: bool = True
    ll128: bool = True


class LibraryRules(Struct, frozen=True):
    """The constants of a library."""

    tree_base: ByProtocol
    ring_base: ByProtocol
    nvlink: StepTimes
    pci: StepTimes
    network: StepTimes
    gpus: Mapping[str, Gpu]
    tree_factors: tuple[tuple[float, ...], ...]  # by protocol, for each power of two from 64 B on
    ratios: Mapping[str, ByProtocol] | None = None  # of the bus bandwidth, in place of caps
    threads: tuple[int, int, int] | None = None  # of a channel, by protocol; None: not known
    ring_between: float = math.inf  # measured GB/s of a ring channel over cards with Simple


def _speeds(within: str, between: str, *, is_later: bool) -> Speeds:
    values = [tuple(float(word) for word in text.split()) for text in (within, between)]
    return Speeds(values[0], values[1], is_later)


_TO_AMPERE = _speeds(
    "40 30 20 18 15 12 10 9 7 6 5 4 3",
    "48 30 28 24 20 18 15 12 10 9 7 6 5 4 3 2.4 1.2 .24 .12",
    is_later=False,
)
_HOPPER = _speeds(
    "60 50 40 30 24 20 15 12 11 6 3", "48 45 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 .24 .12", is_later=True
)
_BLACKWELL = _speeds(
    "90 80 70 60 50 45 40 30 24 20 19 18",
    "96 86 80 48 45.1 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 .24 .12",
    is_later=True,
)


def _factors(*rows: str) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(word) for word in row.split()) for row in rows)


ARM = "arm"  # Grace
# Bytes for each thread of a channel, by protocol, below which fewer channels run; LL rings: for each rank.
FEWEST_BYTES = (8, 8, 64)
MOST_CHANNELS = 64
LL_MOST_BETWEEN: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"intel": (39.0, 20.4), "amd": (22.5, 19.0), ARM: (39.0, 20.4)}  # by the CPU; two nodes, more
)
NETWORK_US: Mapping[str, float] = MappingProxyType({"intel": 1.0, "amd": 2.0, ARM: 1.0})  # us of a card

NCCL = LibraryRules(
    tree_base=(6.8, 14.0, 8.4),
    ring_base=(6.6, 14.0, 8.4),
    nvlink=StepTimes((0.6, 1.25, 4.0), (0.6, 1.9, 3.4), 3.7, 2.8, 25.0, 25.0, 4.0),
    pci=StepTimes((1.0, 1.9, 4.0), (1.0, 2.5, 5.7), 3.7, 2.8, 0.0, 0.0, 4.0),
    network=StepTimes((5.0, 8.5, 14.0), (2.7, 4.0, 14.0), 31.0, 30.0, 18.0, 20.9, 14.0),
    gpus=MappingProxyType(
        {
            "volta": Gpu(_TO_AMPERE, 39.0, 20.0, (20.0,) * 3, (26.5, 18.5, 10.0), ring_plateau=1.9),
            "ampere": Gpu(_TO_AMPERE, 87.7, 20.0, (20.0,) * 3, (24.0, 23.6, 17.8)),
            "hopper": Gpu(
                _HOPPER,
                141.0,
                36.7,
                (36.7, 36.7, 29.0),
                (38.7, 41.4, 36.0),
                (0.0, 57.7, 45.5),
                0.85,
            ),
            "blackwell": Gpu(
                _BLACKWELL,
                282.0,
                40.0,
                (55.6, 31.67, 20.0),
                (70.0, 42.8, 24.0),
                (0.0, 96.0, 80.0),
                0.74,
                nvls_tree_by_size=True,
            ),
        }
    ),
    tree_factors=_factors(
        "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1 1",
        "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1 1",
        ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9",
    ),
    threads=(512, 640, 512),
    ring_between=40.0,
)

# The set that AMD measured for boards of MI300; its values for more than two nodes are not known to us. With
# Simple, it has steps of 25 and 320 us between nodes, which would choose trees up to 16 MiB; 16 MI300X were
# measured to use rings from 2 MiB on, with steps no longer than with LL (hisohara/ai-scripts 7b8b1ec290).
RCCL = LibraryRules(
    tree_base=(12.0, 12.0, 17.0),
    ring_base=(12.0, 12.0, 17.0),
    nvlink=StepTimes((0.9, 0.9, 2.3), (0.8, 0.8, 2.1)),
    pci=StepTimes((0.9, 0.9, 2.3), (0.8, 0.8, 2.1)),
    network=StepTimes((10.5, 10.5, 10.5), (9.5, 9.5, 9.5)),
    gpus=MappingProxyType(
        {
            "cdna3": Gpu(_HOPPER, 0.0, 0.0, (0.0,) * 3, (0.0,) * 3, tree_simple_on_a_node=False, ll128=False),
        }
    ),
    tree_factors=_factors("1", "1", "1"),
    ratios=MappingProxyType({TREE: (0.06, 0.0, 0.11), RING: (0.08, 0.0, 1.0)}),
)

LIBRARIES: Mapping[str, LibraryRules] = MappingProxyType({"nccl-2.30": NCCL, "rccl-2.21": RCCL})
