"""The channels of a collective library: the number of rings or trees, and the speed of each.

The library searches a list of speeds for the one at which most bytes pass over the links of a GPU and the
cards of a node. If it finds few fast channels, it splits each into two.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

MOST_UNDOUBLED = 4  # number of channels up to which later GPUs split ones slower than `SLOW_LATER`
MOST_FOUND = 32
SLOW, SLOW_LATER = 25.0, 50.0  # GB/s: slower channels are not split
CARD_EFFICIENCY = 0.96  # the library counts a card of 100 Gb/s as 12 GB/s


class Channels(Struct, frozen=True):
    """The number of rings or trees, and the GB/s of each within nodes and between them."""

    count: int
    within: float
    between: float


class LibraryWires(Struct, frozen=True):
    """The links of a machine as a library sees them, in GB/s each way."""

    gpu: (
        float  # links of a GPU to its node, as the library counts them; in a mesh, the link to each other GPU
    )
    is_nvlink: bool  # as opposed to PCI
    cards: int = 1  # of a node
    card: float = 0.0  # one card, as in the network file; 0: there is no network
    line_rate: float = math.inf  # links of a GPU, as in the network file
    is_mesh: bool = False  # a link to each of the others, in place of a switch

    def times(self, inner: float, outer: float) -> LibraryWires:
        """Return wires with the bandwidths of node links and of cards multiplied."""
        return replace(self, gpu=self.gpu * inner, line_rate=self.line_rate * inner, card=self.card * outer)


class Speeds(Struct, frozen=True):
    """The speeds that are tried in GB/s, the fastest first."""

    within: tuple[float, ...]
    between: tuple[float, ...]
    is_later: bool  # than Ampere


def rings_of(wires: LibraryWires, speeds: Speeds, *, nodes: int, ppn: int, cards: int) -> Channels:
    """Return the rings of a group that has the given number of each node's cards."""
    if nodes == 1 and wires.is_mesh:
        return Channels(max(ppn - 1, 1), wires.gpu, wires.gpu)
    if nodes == 1:
        count, speed = _most(speeds.within, wires.gpu, wires.gpu, MOST_FOUND)
        return _doubled(count, speed, speeds)
    card = wires.card * CARD_EFFICIENCY
    inside = wires.gpu * max(ppn - 1, 1) if wires.is_mesh else wires.gpu
    count, speed = _most(speeds.between, inside, card, MOST_FOUND, cards)
    return _doubled(count, speed, speeds)


def speed_within(wires: LibraryWires, speeds: Speeds, count: int, most: float = float("inf")) -> float:
    """Return the highest speed at which this many channels fit into the links of a GPU."""
    return next(
        (speed for speed in speeds.within if speed * count <= wires.gpu and speed <= most), wires.gpu / count
    )


def speed_between(wires: LibraryWires, speeds: Speeds) -> float:
    """Return the highest speed that a card carries."""
    card = wires.card * CARD_EFFICIENCY
    return next((speed for speed in speeds.between if speed <= card), card)


def _most(
    tried: tuple[float, ...], gpu: float, most_each: float, most_channels: int, cards: int = 0
) -> tuple[int, float]:
    """Return the number and speed of channels with the highest total rate; the faster ones if equal.

    With `cards`, the channels must also fit into the cards, each of which may carry several.
    """
    best = (0, 0.0)
    for speed in tried:
        if speed > most_each:
            continue
        count = min(int(gpu / speed), most_channels)
        if cards:
            count = min(count, cards * int(most_each / speed))
        if count * speed > best[0] * best[1]:
            best = (count, speed)
    return best if best[0] else (1, min(gpu, most_each))


def _doubled(count: int, speed: float, speeds: Speeds) -> Channels:
    stays = speed < SLOW or (speeds.is_later and speed < SLOW_LATER and count > MOST_UNDOUBLED)
    return Channels(count, speed, speed) if stays else Channels(2 * count, speed / 2, speed / 2)
