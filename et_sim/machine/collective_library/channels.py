"""The channels of a collective library: how many rings or trees it finds room for, and at what speed each.

The library looks for the speed, of a list, at which most bytes fit: so many channels as the links of a GPU
and the cards of a node carry. Where it found fewer and faster ones, it makes two of each.

Not here: what a collective takes on them (`candidates`).
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

MOST_UNDOUBLED = 4  # channels that later GPUs double although they are slower than `SLOW_LATER`
MOST_FOUND = 32
SLOW, SLOW_LATER = 25.0, 50.0  # GB/s: channels that are slower stay as they are
CARD_EFFICIENCY = 0.96  # the library counts a card of 100 Gb/s as 12 GB/s


class Channels(Struct, frozen=True):
    """So many rings or trees, and the GB/s of each within nodes and between them."""

    count: int
    within: float
    between: float


class Wires(Struct, frozen=True):
    """What a library sees of a machine: GB/s, each way."""

    gpu: float  # of a GPU's links to its node, as the library counts them; in a mesh, of that to each other
    is_nvlink: bool  # as opposed to PCI
    cards: int = 1  # of a node
    card: float = 0.0  # of one, as the network file has it; 0: there is no network
    line_rate: float = math.inf  # of those links, as the network file has it
    is_mesh: bool = False  # a link to each of the others, in place of a switch

    def times(self, inner: float, outer: float) -> Wires:
        """With bandwidths multiplied, of links of a node and of cards."""
        return replace(self, gpu=self.gpu * inner, line_rate=self.line_rate * inner, card=self.card * outer)


class Speeds(Struct, frozen=True):
    """Those that are tried, in GB/s, the fastest first."""

    within: tuple[float, ...]
    between: tuple[float, ...]
    is_later: bool  # than Ampere


def rings_of(wires: Wires, speeds: Speeds, *, nodes: int, ppn: int, cards: int) -> Channels:
    """The rings of a group that has the given number of each node's cards."""
    if nodes == 1 and wires.is_mesh:
        return Channels(max(ppn - 1, 1), wires.gpu, wires.gpu)
    if nodes == 1:
        count, speed = _most(speeds.within, wires.gpu, wires.gpu, MOST_FOUND)
        return _doubled(count, speed, speeds)
    card = wires.card * CARD_EFFICIENCY
    inside = wires.gpu * max(ppn - 1, 1) if wires.is_mesh else wires.gpu
    count, speed = _most(speeds.between, inside, card, MOST_FOUND, cards)
    return _doubled(count, speed, speeds)


def speed_within(wires: Wires, speeds: Speeds, count: int, most: float = float("inf")) -> float:
    """The fastest at which these channels fit into the links of a GPU."""
    return next(
        (speed for speed in speeds.within if speed * count <= wires.gpu and speed <= most), wires.gpu / count
    )


def speed_between(wires: Wires, speeds: Speeds) -> float:
    """The fastest that a card carries."""
    card = wires.card * CARD_EFFICIENCY
    return next((speed for speed in speeds.between if speed <= card), card)


def _most(
    tried: tuple[float, ...], gpu: float, most_each: float, most_channels: int, cards: int = 0
) -> tuple[int, float]:
    """The number and speed of channels that carry most in all, the fastest of those.

    With cards, each of which may have several, these carry them.
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
