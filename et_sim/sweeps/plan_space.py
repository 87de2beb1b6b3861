"""The space of all plans of a language model on a machine by name, as the description of a search.

A plan cuts the model into equal stages. Tensor parallelism stays within a node, and within the innermost
dimension of a network without switches. All plans have the same global batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.machine.presets import Preset, preset
from et_sim.workloads.models.model import Model
from et_sim.workloads.software.reading import read_software

OBJECTIVES = MappingProxyType(
    {
        "tokens": ("maximise", "tokens_per_s"),
        "price": ("minimise", "price_per_million_tokens"),
        "energy": ("minimise", "joules_per_million_tokens"),
    }
)
FEWEST_SEQUENCES = 128  # of a global batch, unless there are more NPUs
MOST_BATCH = 8  # sequences of a micro-batch
FEWEST_TOKENS = 2048  # of a sequence on a rank, with context parallelism
RECOMPUTE = ("none", "selective", "full")
RUNNERS_UP = 10
USUAL_WITHIN = 0.1
AT_ONCE = 2


class Cut(NamedTuple):
    """A plan: the values of the axes of its search."""

    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    chunks: int
    batch: int
    zero: int
    recompute: str

    @property
    def fields(self) -> dict[str, Any]:
        """Return the values of the keys of a plan that follow from the others."""
        return {
            "schedule": "interleaved" if self.chunks > 1 else "1f1b",
            "sequence-parallel": self.tp > 1,
        }


class PlanSearch(Struct, frozen=True):
    """A search for the best plan of a model on a machine."""

    model: Model
    named: str  # the name or the file of the model
    machine: str
    objective: str = "tokens"
    sequence: int = 0  # 0: that of the model
    global_batch: int = 0  # 0: as many sequences as NPUs
    software: str = ""
    within: float = USUAL_WITHIN
    budget: int | None = None

    @property
    def sequences(self) -> int:
        """Return the sequences of the global batch."""
        return self.global_batch or max(preset(self.machine).npus, FEWEST_SEQUENCES)

    @property
    def tokens(self) -> int:
        """Return the tokens of a sequence."""
        return self.sequence or self.model.sequence

    @property
    def assumed(self) -> str:
        """Return what the search takes for granted, in words."""
        usual = "" if self.global_batch else " (--global-batch gives another number)"
        return (
            f"{self.model.name} on {self.machine}: {self.sequences:,} sequences of {self.tokens:,} tokens in"
            f" a step{usual}, stages of equal layers, micro-batches of up to {MOST_BATCH} sequences"
        )

    def description(self) -> dict[str, Any]:
        """Return the description of the search."""
        if self.objective not in OBJECTIVES:
            remedy = did_you_mean(self.objective, tuple(OBJECTIVES)) or f"known: {', '.join(OBJECTIVES)}"
            raise UsageError(f"there is no objective {self.objective!r}", remedy=remedy)
        if self.software:
            read_software(self.software)  # raises if there is none
        cuts = list(self._cuts())
        if not cuts:
            raise self._impossible()
        direction, column = OBJECTIVES[self.objective]
        plan: dict[str, Any] = {"global-batch": self.sequences}
        if self.software:
            plan["software"] = self.software
        workload = {"make": "llm", "model": self.named, "sequence": self.tokens, "plan": plan}
        keys = [*Cut._fields, *cuts[0].fields]
        columns = zip(*((*cut, *cut.fields.values()) for cut in cuts), strict=True)
        axes = {
            key: {"field": f"workload.plan.{key}", "values": list(values)}
            for key, values in zip(keys, columns, strict=True)
        }
        search: dict[str, Any] = {direction: [column], "within": self.within, "runners-up": RUNNERS_UP}
        search |= {"at-once": AT_ONCE, **({} if self.budget is None else {"budget": self.budget})}
        return {
            "base": {"workload": workload, "machine": self.machine, "ties-alike": True},
            "axes": axes,
            "zip": [keys],
            "search": search,
        }

    def _cuts(self) -> Iterator[Cut]:
        machine, model = preset(self.machine), self.model
        npus, experts = machine.npus, model.experts
        for tp in divisors(npus):
            if tp > tensor_ranks(machine) or model.attention.heads % tp or model.feed_forward.width % tp:
                continue
            for cp in divisors(npus // tp):
                if cp > 1 and (self.tokens % (2 * cp) or self.tokens // cp < FEWEST_TOKENS):
                    continue
                for pp in divisors(npus // (tp * cp)):
                    if model.layers % pp:
                        continue
                    dp = npus // (tp * cp * pp)
                    for ep in divisors(tp * cp * dp) if experts is not None else (1,):
                        if experts is None or experts.count % ep == 0:
                            yield from self._of_cut(tp, cp, pp, dp, ep)

    def _of_cut(self, tp: int, cp: int, pp: int, dp: int, ep: int) -> Iterator[Cut]:
        if self.sequences % dp:
            return
        batches = [1 << power for power in range(MOST_BATCH.bit_length())]
        for batch in batches:
            if self.sequences // dp % batch:
                continue
            micro_batches = self.sequences // dp // batch
            for chunks in divisors(self.model.layers // pp):
                if chunks > 1 and (pp == 1 or micro_batches % pp):
                    continue
                for zero in range(4 if dp * cp > 1 else 1):
                    for recompute in RECOMPUTE:
                        yield Cut(tp, cp, pp, dp, ep, chunks, batch, zero, recompute)

    def _impossible(self) -> UsageError:
        npus, layers = preset(self.machine).npus, self.model.layers
        return UsageError(
            f"no plan of equal stages divides {self.sequences:,} sequences and {layers} layers among"
            f" {npus:,} NPUs",
            remedy=f"give --global-batch a multiple of {npus:,}, such as {npus:,}",
        )


def divisors(number: int) -> list[int]:
    """Return all divisors of a number, the least first."""
    low = [of for of in range(1, int(number**0.5) + 1) if number % of == 0]
    return sorted({*low, *(number // of for of in low)})


def tensor_ranks(machine: Preset) -> int:
    """Return the most tensor-parallel ranks of a plan on a machine."""
    return machine.node
