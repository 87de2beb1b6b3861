"""Which preset machine is the hardware that a table names, and what its text says of the links between nodes.

Not here: the machines (`machine.presets`).
"""

from __future__ import annotations

import re
from typing import Any

from et_sim.machine.presets import known_as, preset

_RATE = r"(\d+(?:\.\d+)?)\s?G(?:b/s|bps|bit/s)"
_CARDS = re.compile(rf"(\d+)\s?[x\u00d7]\s?(?:[^;,\d]|ConnectX-\d|HDR|NDR)*?{_RATE}(?! each way)")
_WHOLE = re.compile(rf"(?<![\d,.x\u00d7]){_RATE} per node")
OTHER_BOARDS = {"pci": r"PCI", "nvl": r"NVL(?!INK)"}  # of GPUs with the same name


def machine_named(hardware: str) -> str | None:
    """The preset whose words all stand in the text, the one with the most letters; None: there is none."""
    text = re.sub(r"(\d) ?GB?\b", r"\1GB", hardware.upper().replace("_", "-"))
    best = ""
    machine = None
    for name, words in known_as().items():
        letters = "".join(words)
        is_other = any(word not in name and re.search(board, text) for word, board in OTHER_BOARDS.items())
        stand = all(re.search(rf"(?<![A-WYZ]){word}(?![0-9A-Z])", text) for word in words)
        if words and stand and not is_other and len(letters) > len(best):
            best, machine = letters, name
    return machine


def network_between(text: str, machine: str, npus: int) -> dict[str, Any] | None:
    """The preset's network with what the text says of the cards of a node; None: as the preset has it.

    A text that names several kinds of cards says nothing of one machine.
    """
    network = preset(f"{machine}:{npus}").network
    rails: dict[str, Any] = network.get("graph", {})
    whole, cards = _WHOLE.search(text), _CARDS.findall(text)
    is_between = len(network.get("npus_count", ())) > 1 or "npus-per-nic" in rails
    if not is_between or len(cards) > 1 or not (cards or whole):
        return None
    total = int(cards[0][0]) * float(cards[0][1]) if cards else float(whole[1] if whole else 0)
    if rails:
        ports = rails["npus-per-node"] // rails["npus-per-nic"]
        return {"graph": {**rails, "bandwidth": f"{total / 8 / ports:g}GB/s"}}
    share = total / network["npus_count"][0] / 8
    return {**network, "bandwidth": [*network["bandwidth"][:-1], f"{share:g}GB/s"]}
