"""Options of a machine by name: `h100-dgx:64,node=4,cards=2x200Gbps,network=efa`.

They set the NPUs of a node, its network cards with the ports and rate of each, the kind of network
between nodes, and the price of an hour of an NPU (`price=7.4`).
"""

from __future__ import annotations

import math
import re
from typing import Any

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.units import parse_bandwidth
from et_sim.machine.collective_library.between import KINDS

NODE, CARDS, NETWORK, PRICE = OPTIONS = ("node", "cards", "network", "price")
PRICE_KEY = "price-per-hour"  # of the costs of a machine
OUTER_BANDWIDTH = "bandwidth of dimension 1"  # as sources name it
_CARDS_FORM = re.compile(r"([0-9]{1,9})(?:(?:x([0-9]{1,3}))?x([0-9.]+[A-Za-z/]+))?", re.ASCII)


def with_options(name: str, machine: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the machine with other nodes, cards, or another kind of network between nodes."""
    given = _given(text)
    for option in given:
        if option not in OPTIONS:
            raise UsageError(
                f"machines have no option {option!r}",
                remedy=f"known: {', '.join(OPTIONS[:-1])} and {OPTIONS[-1]}",
            )
    if PRICE in given:
        costs = {**machine["costs"], PRICE_KEY: _price(given.pop(PRICE), text)}
        machine = {**machine, "costs": costs}
    if not given:
        return machine
    node = _whole_number(given[NODE], text) if NODE in given else 0
    if len(machine.get("dimensions", ())) != 2 or (node == 0 and NODE in given):
        raise UsageError(
            f"{name} has no nodes of {text[1:]}", remedy="name a machine of nodes, and 1 or more of each"
        )
    inner, outer = machine["dimensions"]
    preset_node = machine["node"]
    in_node, had = node or preset_node, machine.get("library", {}).get("cards", preset_node)
    count, rate = had * in_node // preset_node or 1, parse_bandwidth(outer["bandwidth"]) * preset_node / had
    if CARDS in given:
        count, rate = _cards(given[CARDS], text, in_node, rate)
    shared = {**outer, "bandwidth": f"{rate * count / in_node:g}GB/s"}
    changed = {**machine, "node": in_node, "dimensions": [inner, shared]}
    if "library" in machine:
        changed["library"] = {**machine["library"], "cards": count}
    if NETWORK in given:
        changed["library"] = {**changed.get("library", {}), "between": _kind_of_network(name, machine, given)}
    return changed


def without_replaced(sources: dict[str, str], text: str) -> dict[str, str]:
    """Return sources without those of figures that the options replace."""
    replaced = {CARDS: OUTER_BANDWIDTH, NODE: "node", PRICE: PRICE_KEY}
    gone = {replaced[option] for option in _given(text) if option in replaced}
    return {subject: source for subject, source in sources.items() if subject not in gone}


def _given(text: str) -> dict[str, str]:
    """Return the values of options, without spaces."""
    return dict(option.replace(" ", "").split("=") for option in text.split(",") if option)


def _whole_number(text: str, options: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"{options[1:]}: {text!r} is not a number of NPUs", remedy="write it as in node=4")
    return int(text)


def _price(text: str, options: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not 0 <= price < math.inf:
        raise UsageError(f"{options[1:]}: {text!r} is not a price", remedy="write it as in price=7.4")
    return price


def _cards(text: str, options: str, node: int, rate: float) -> tuple[int, float]:
    """Return the cards of a node and the GB/s of each; several cards of one NPU count as one.

    The text is a number, `4`; with a rate, `4x200Gbps`; or with ports of each as well, `8x2x100Gbps`.
    """
    match = _CARDS_FORM.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise UsageError(
            f"{options[1:]}: {text!r} does not describe network cards",
            remedy="write cards=4, cards=4x200Gbps, or with their ports cards=8x2x100Gbps",
        )
    count = int(match[1])
    if match[3]:
        rate = parse_bandwidth(match[3]) * int(match[2] or 1)
    if count > node and not match[3]:
        raise UsageError(
            f"{count} cards for {node} NPUs: several cards of an NPU count as one",
            remedy=f"name {node} or fewer, or their rate: cards={count}x100Gbps",
        )
    return min(count, node), rate * max(count / node, 1)


def _kind_of_network(name: str, machine: dict[str, Any], given: dict[str, str]) -> dict[str, str]:
    kind = given[NETWORK]
    if "library" not in machine:
        raise UsageError(
            f"{NETWORK}= requires a collective library, and {name} has none",
            remedy=f"leave {NETWORK}= out",
        )
    if kind not in KINDS:
        raise UsageError(
            f"kind of network {kind!r} is not known",
            remedy=did_you_mean(kind, KINDS) or f"known: {', '.join(KINDS)}",
        )
    return {"kind": kind}
