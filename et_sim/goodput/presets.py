"""Published rates of failures, each with its source.

A count belongs to the days and nodes of its preset. `recalled` marks a count that was not compared with its
source.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

DAY = 86400.0


class KnownPart(Struct, frozen=True):
    """A kind of part with its failures."""

    name: str
    failures: float
    nodes: int = 1  # that need a repair; an assumption
    effect: str = "stops"
    recalled: bool = False
    is_link: bool = False  # of one port; an assumption for switches, of which two serve a GPU with two ports


class Preset(Struct, frozen=True):
    """The failures of a job or a cluster."""

    source: str
    days: float
    nodes: int
    parts: tuple[KnownPart, ...]
    planned: int = 0  # interruptions for maintenance

    def rate(self, part: KnownPart) -> float:
        """Return the failures for 1,000 node-days."""
        return 1000 * part.failures / (self.days * self.nodes)


_LLAMA = (
    KnownPart("gpu", 148),
    KnownPart("hbm", 72),
    KnownPart("software", 54, 0, recalled=True),
    KnownPart("switch or cable", 35, is_link=True),
    KnownPart("host maintenance", 32, recalled=True),
    KnownPart("gpu sram", 19),
    KnownPart("gpu system processor", 17),
    KnownPart("nic", 7, recalled=True),
    KnownPart("nccl time-out", 7, 0, recalled=True),
    KnownPart("silent corruption", 6, 1, "corrupts", recalled=True),
    KnownPart("thermal", 6, recalled=True),
    KnownPart("ssd", 3, recalled=True),
    KnownPart("power", 3, recalled=True),
    KnownPart("others", 10, recalled=True),
)
PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "llama3-2024": Preset(
            "Grattafiori et al., The Llama 3 Herd of Models (2024), table 5: 54 days on 16,384 H100",
            54.0,
            2048,
            _LLAMA,
            planned=47,
        ),
        "rsc-1": Preset(
            "Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters (HPCA "
            "2025): 6.50 failures for 1,000 node-days of RSC-1",
            1000.0,
            1,
            (KnownPart("node", 6.50, recalled=True),),
        ),
    }
)
