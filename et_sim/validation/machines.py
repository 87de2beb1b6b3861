"""Which preset machine is the hardware that a table names, and what its text says of the links between nodes.

Not here: the machines (`machine.presets`).
"""

from __future__ import annotations

import re
from typing import Any

from et_sim.machine.presets import known_as, preset

_CARDS = re.compile(r"(\d+)\s*x\s[^;,]*?(\d+)\s?Gb/s|(\d+)x(\d+)\s?Gb/s|(\d+)\s?Gb/s per node")
OTHER_BOARDS = ("PCIE", "NVL72")  # of GPUs with the same name


def machine_named(hardware: str) -> str | None:
    """The preset whose words all stand in the text, the one with the most letters; None: there is none."""
    text = hardware.upper().replace("_", "-")
    best = ""
    found = None
    for name, words in known_as().items():
        letters = "".join(words)
        others = [one for one in OTHER_BOARDS if one in text and one not in letters]
        if words and not others and all(word in text for word in words) and len(letters) > len(best):
            best, found = letters, name
    return found


def network_between(text: str, machine: str, npus: int) -> dict[str, Any] | None:
    """The preset's network with what the text says of the cards of a node; None: as the preset has it."""
    network = preset(f"{machine}:{npus}").network
    match = _CARDS.search(text)
    if len(network["npus_count"]) < 2 or match is None:
        return None
    cards, rate, cards_too, rate_too, whole = match.groups()
    total = int(whole) if whole else int(cards or cards_too) * int(rate or rate_too)
    share = total / network["npus_count"][0] / 8
    return {**network, "bandwidth": [*network["bandwidth"][:-1], f"{share:g}GB/s"]}
