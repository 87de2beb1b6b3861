"""The network between nodes that a table states in words, as options of a machine by name.

Words name cards (`8x2x100 Gb/s`, `4x HDR 200 Gb/s IB per node`, `400 Gb/s per GPU`), a kind of network
(InfiniBand, RoCE, EFA, Slingshot, TCPX), or a system whose network is published. Figures that are not stated
are those of the machine; only the band is then that of an unknown network.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import InputError
from et_sim.machine.presets import as_one_file, names, widths_between
from et_sim.machine.presets.options import CARDS, NETWORK, NODE

_RATE = r"(\d+(?:\.\d+)?)\s?G(?:b/s|bps|bit/s)"
_TIMES, _NOT_A_FACTOR = r"\s?[x\u00d7]\s?", r"(?<![\d,.x\u00d7])"
_NAMES = r"(?:ConnectX-?\d+|CX-?\d|Thor ?2|Slingshot[- ]?\d+|BlueField-?\d)"
_WORDS = rf"(?:[^;,.()\d]|{_NAMES})*?"
_WITH_PORTS = re.compile(rf"(\d+){_TIMES}(\d+){_TIMES}{_RATE}")
_WITH_RATE = re.compile(rf"{_NOT_A_FACTOR}(\d+){_TIMES}{_WORDS}{_RATE}(?! each way)")
_WITH_NAME = re.compile(rf"{_NOT_A_FACTOR}(\d+){_TIMES}{_WORDS}(?:[EHNX]DR\b|Pollara|{_NAMES})")
_OF_NODE = re.compile(rf"{_NOT_A_FACTOR}{_RATE}[^;,.()\d]*?per node")
_OF_GPU = re.compile(rf"{_NOT_A_FACTOR}{_RATE}[^;,.()\d]*?per GPU")
_SEEN = re.compile(r"\bNIC\b[^;,\d]*?(\d+(?:\.\d+)?) GB/s seen")
_KINDS = (
    ("tcpx", r"TCPX|FasTrak"),
    ("efa", r"\bEFA|Elastic Fabric"),
    ("slingshot", r"Slingshot|\bCXI\b"),
    ("roce", r"RoCE|Thor ?2|Pollara|Spectrum-?X"),
    ("infiniband", r"Infini-?Band|\bIB\b|\b[EHNX]DR\b|\bQuantum-?2"),
)
_RATES = (  # Gb/s of a card, by its name
    (r"\bXDR\b|ConnectX-?8", 800),
    (r"\bNDR\b|ConnectX-?7|CX-?7|Thor ?2|Pollara|BlueField-?3|Slingshot[- ]?400", 400),
    (r"\bHDR\b|ConnectX-?6|CX-?6|Slingshot", 200),
    (r"\bEDR\b|ConnectX-?5|CX-?5", 100),
)
_OF_BOARD = re.compile(r"(?<![\dA-Z.])(\d+)\s?[x\u00d7]\s?(?:NVIDIA |AMD )?[A-Z]{1,2}\d{2,3}", re.IGNORECASE)
_NODES_OF = re.compile(r"\bnodes? of (\d+)\b(?! ?(?:Gb|GB|x))|\b(\d+) (?:GPUs )?per node\b", re.IGNORECASE)
FIRST_EFA = ("volta", "ampere")  # generations of GPUs with the first generation of EFA
UNKNOWN = "unknown"


class NodeCards(Struct, frozen=True):
    """Network cards of a node."""

    count: int  # 0: as many as GPUs
    gbps: float  # of each card, or of a node
    is_of_node: bool = False

    def option(self, node: int, part: Fraction) -> str:
        """Return the option of a machine by name, for nodes of `node` GPUs that use a part of the cards."""
        count = self.count or node
        used = max(int(count * part), 1) if self.count else node
        each = self.gbps / count if self.is_of_node else self.gbps
        return f"{used}x{each:g}Gbps"


class Stated(Struct, frozen=True):
    """The network of a machine, as stated in words."""

    cards: NodeCards | None = None
    kind: str = ""


def stated(text: str, hardware: str = "") -> Stated:
    """Return the network that a text states; empty if it names several kinds."""
    kinds = [kind for kind, words in _KINDS if re.search(words, text, re.IGNORECASE)]
    cards = _all_cards(text)
    if len(kinds) > 1 or len(cards) > 1:
        return Stated()
    known = {} if cards else _published(f"{hardware}; {text}")
    if known:
        return Stated(NodeCards(known["cards"], known["gbps"]), known["network"])
    return Stated(cards[0] if cards else None, kinds[0] if kinds else "")


def _all_cards(text: str) -> list[NodeCards]:
    """Return the different cards that a text names, by the first form of words that matches."""
    rest, cards = text, list[NodeCards]()
    for count, ports, rate in _WITH_PORTS.findall(text):
        cards.append(NodeCards(int(count), int(ports) * float(rate)))
        rest = _WITH_PORTS.sub("", rest)
    cards += [NodeCards(int(count), float(rate)) for count, rate in _WITH_RATE.findall(rest)]
    named = _WITH_NAME.search(rest)
    if not cards and (whole := _OF_NODE.search(rest)):
        cards.append(NodeCards(int(named[1]) if named else 0, float(whole[1]), True))
    if not cards and (each := _OF_GPU.search(rest)):
        cards.append(NodeCards(0, float(each[1])))
    if not cards and (seen := _SEEN.search(rest)):
        cards.append(NodeCards(1, 8 * float(seen[1])))
    rate = next((rate for words, rate in _RATES if re.search(words, rest, re.IGNORECASE)), 0)
    if not cards and named and rate:
        cards.append(NodeCards(int(named[1]), rate))
    return list(dict.fromkeys(cards))


@cache
def _systems() -> tuple[dict[str, Any], ...]:
    path = files("et_sim.validation") / "systems.json"
    return tuple(json.loads(path.read_text(encoding="utf-8")))


def _published(text: str) -> dict[str, Any]:
    """Return the published network of the system that a text names."""
    return next((system for system in _systems() if re.search(system["words"], text, re.IGNORECASE)), {})


class MeasuredMachine(Struct, frozen=True):
    """The machine by name for a measured one."""

    text: str
    is_stated: bool  # cards and kind of network are stated, or there is one node

    @property
    def accuracy(self) -> dict[str, Any]:
        """Return the accuracy of an unknown network, if the network is not stated."""
        return {} if self.is_stated else widths_between(UNKNOWN)


def node_in_words(hardware: str) -> int:
    """Return the GPUs of a node that a text states; 0: none."""
    words = _NODES_OF.search(hardware)
    return int(words[1] or words[2]) if words else 0


def nodes_in_words(hardware: str, ranks: int) -> int:
    """Return the nodes of a job on nodes of the size that a text states; 0: it states none."""
    node = node_in_words(hardware)
    if ranks <= node:
        return 1
    if node and ranks % node:
        raise InputError(
            f"gpus is {ranks}, which is not a multiple of the {node} of a node",
            remedy="state whole nodes, or leave out the size of a node",
        )
    return ranks // node if node else 0


def machine_measured(name: str, ranks: int, nodes: int, hardware: str, network: str) -> MeasuredMachine:
    """Return the machine `name` with the nodes and the network of a table; 0 nodes: not stated.

    Each node has equally many GPUs. For NVLink racks, nodes may be their trays: a job takes as few racks as
    possible.
    """
    machine = as_one_file(name)
    size = node_in_words(hardware)
    per_node = _per_node(machine, ranks, nodes)
    board = _OF_BOARD.search(hardware)
    size = size or (int(board[1]) if board else 0)
    if nodes > 1 and per_node < ranks and machine["node"] != per_node:
        is_board = "dimensions" not in machine or not machine["dimensions"] or size == per_node
        name = (_board(machine, per_node) if is_board else None) or name
        machine = as_one_file(name)
    if per_node >= ranks or len(machine.get("dimensions", ())) != 2:
        return MeasuredMachine(f"{name}:{ranks}", is_stated=True)
    described = stated(network, hardware)
    options = {NODE: str(per_node)} if per_node != machine["node"] else {}
    if described.cards is not None:
        whole = max(size or machine["node"], per_node)
        options[CARDS] = described.cards.option(per_node, Fraction(per_node, whole))
    if "library" in machine:
        kind = (
            "efa-1"
            if described.kind == "efa" and machine["library"].get("gpu") in FIRST_EFA
            else described.kind
        )
        options[NETWORK] = kind or UNKNOWN
    text = "".join(f",{option}={value}" for option, value in options.items())
    return MeasuredMachine(f"{name}:{ranks}{text}", is_stated=bool(described.cards and described.kind))


def node_of(name: str, ranks: int) -> int:
    """Return the GPUs of a job that share a node, or a rack joined by NVLink, of the machine `name`."""
    return min(_per_node(as_one_file(name), ranks, 0), ranks)


def _per_node(machine: dict[str, Any], ranks: int, nodes: int) -> int:
    """Return the GPUs of a job that share a node, or a rack joined by NVLink."""
    node = machine.get("node", ranks)
    if not isinstance(node, int):
        return ranks
    if "tray" in machine and (not nodes or nodes * machine["tray"] >= ranks):
        racks = -(-ranks // node)
        return ranks // racks if ranks % racks == 0 else node
    if nodes and ranks % nodes == 0:
        return ranks // nodes
    return min(node, ranks)


def _board(machine: dict[str, Any], node: int) -> str | None:
    """Return a machine with nodes of `node` of these GPUs, or of the same GPUs with other memory."""
    gpu = machine["device"]["about"].split()[:3]
    others = {other: as_one_file(other) for other in names()}
    return next(
        (
            other
            for other, file in others.items()
            if file.get("node") == node
            and file["device"]["about"].split()[:3] == gpu
            and not file["known-as"]
        ),
        None,
    )
