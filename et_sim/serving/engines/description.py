"""The keys of a description of an engine, each with its meaning, its limits and its default.

Defaults describe an engine without a cost: its host takes no time, and graphs have the size of their batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.engine_names import ENGINES, SEPARATE
from et_sim.documents.descriptions import notes, refuse_many_fitted
from et_sim.documents.keys import Remarks, Section, Slot, ValueKind, key
from et_sim.documents.kinds import (
    choice,
    choices,
    count,
    counts,
    flag,
    number,
    section,
    sections,
    size,
    text,
    time,
)
from et_sim.workloads.inference.batch import Batch, Segment
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.plan import Plan

TOTAL, FREE = "total", "free"
_limit = partial(count, minimum=1, maximum=10**9)
_factor = partial(number, maximum=100, above_minimum=True)
ACTIVATION_BYTES = 2
PADDING = Segment(1, 1, is_sampled=False)  # an unused place of a graph


def _ratios(slot: Slot, value: Any) -> tuple[float, float]:
    match value:
        case [int() | float() as low, int() | float() as high] if 0 < low <= high <= 100:
            return float(low), float(high)
    raise slot.refusal(value)


RATIOS = ValueKind("two ratios", lambda _: "two numbers > 0, the lower one first", _ratios)


class EngineHost(Struct, frozen=True):
    """Times of the host."""

    eager_layer_ns: float = time(
        "Time for a layer of a pass that has prompts, whose kernels are launched one by one.",
        0.0,
        stated=True,
    )
    eager_expert_layer_ns: float = time(
        "Further time for a layer with experts of a pass that has prompts.", 0.0, stated=True
    )
    overlaps: bool = flag(
        "Kernels are launched while earlier ones run: a pass takes the longer of both times, else their sum.",
        True,
        stated=True,
    )
    layer_ns: float = time(
        "Time of a layer beside its kernels: gaps between kernels of a graph, and kernels that no model has.",
        0.0,
        stated=True,
    )
    expert_layer_ns: float = time(
        "Further time of a layer with experts, such as kernels that choose and sort, which no model has.",
        0.0,
        stated=True,
    )
    prepares: bool = flag(
        "The next pass is prepared while one runs: requests that come meanwhile wait for the one after it.",
        False,
        stated=True,
    )
    pass_ns: float = time("Time between two passes.", 0.0, stated=True)
    unprepared_ns: float = time(
        "Further time between two passes, if no pass is prepared while another one runs.", 0.0, stated=True
    )
    prompt_pass_ns: float = time("Further time of a pass that has prompts.", 0.0, stated=True)
    before_ns: float = time("Time of a request before it may be in a pass.", 0.0, stated=True)
    before_layer_ns: float = time(
        "Further time of a request before it may be in a pass, for each layer of the model.", 0.0, stated=True
    )
    before_expert_layer_ns: float = time(
        "Further time of a request before it may be in a pass, for each layer with experts.", 0.0, stated=True
    )
    after_ns: float = time("Time from a pass until the client has its token.", 0.0, stated=True)

    @property
    def between_ns(self) -> float:
        """Return the time between two passes."""
        return self.pass_ns + (0 if self.prepares else self.unprepared_ns)


class Activations(Struct, frozen=True):
    """Values that a token of the largest pass keeps at a time, as a factor on the width of the model."""

    ranks: int = _limit("Tensor-parallel ranks from which this holds on.", required=True)
    dense: float = number("Factor of models without experts.", required=True, maximum=1000)
    experts: float = number("Factor of models with experts.", required=True, maximum=1000)


class EngineMemory(Struct, frozen=True):
    """The rule of the memory for the cache."""

    share: float = number("Share of the memory.", 0.9, stated=True, above_minimum=True, maximum=1)
    of: str = choice(
        "The memory of which it is a share: all of it, or the rest after weights and activations.",
        TOTAL,
        stated=True,
        choices=(TOTAL, FREE),
    )
    kept_bytes: int = size("Memory that neither weights nor caches fill.", 0, stated=True)
    activations: tuple[Activations, ...] = sections(
        "Activations of the largest pass, which the cache cannot fill, by tensor-parallel ranks.",
        (),
        of=Activations,
        may_be_empty=True,
    )

    def activation_bytes(self, model: Model, plan: Plan, tokens: int) -> int:
        """Return the bytes of activations of a rank in a pass of this many tokens."""
        factor = 0.0
        for of in self.activations:
            if of.ranks <= plan.tensor:
                factor = of.dense if model.experts is None else of.experts
        return int(factor * tokens * model.hidden * ACTIVATION_BYTES)

    def cache_bytes(self, whole: int, weights: int, activations: int) -> int:
        """Return the bytes of an NPU for the cache; `whole`: its memory, without reserved parts."""
        if self.of == FREE:
            return int((whole - self.kept_bytes - weights - activations) * self.share)
        return int(whole * self.share) - self.kept_bytes - weights - activations


class EngineErrors(Struct, frozen=True):
    """Ratios of measured to simulated times that hold 80 % of the rows that no figure is fitted to."""

    ttft: tuple[float, float] = key(RATIOS, "Ratios of times to first token.", (1.0, 1.0))
    tpot: tuple[float, float] = key(RATIOS, "Ratios of times per output token.", (1.0, 1.0))


class Engine(Struct, frozen=True):
    """A description of an engine."""

    about: str = text("Name and versions of the engine, in a few words.", required=True)
    policy: str = text("Order of prompts and tokens, as the option --policy.", "chunked", stated=True)
    token_budget: int = _limit("Tokens of a pass, as the option --token-budget.", 2048, stated=True)
    wait_passes: int = count(
        "Passes of single tokens in which prompts wait for more of them.", 0, maximum=10**9, stated=True
    )
    wait_share: float = number(
        "Share of the tokens of a pass that prompts and single tokens have before; then prompts do not wait.",
        0.0,
        maximum=1,
        stated=True,
    )
    balance_passes: int = count(
        "Passes of single tokens in which prompts wait until each data-parallel group has one.",
        0,
        maximum=10**9,
        stated=True,
    )
    max_batch: int = _limit("Sequences that run at a time, as the option --max-batch.", 256, stated=True)
    block: int = _limit("Tokens whose cache is allocated together, as the option --block.", 16, stated=True)
    graphs: tuple[int, ...] = counts(
        "Sequences of the graphs that launch all kernels of a pass without prompts; a pass uses the smallest "
        "one that holds its sequences. Larger passes, or all without any, have the size of their batch.",
        (),
        may_be_empty=True,
        minimum=1,
        maximum=10**9,
    )
    exchanges: str = choice(
        "The engine whose own all-reduces run within nodes; without it, those of the machine's library.",
        "",
        choices=ENGINES,
    )
    separate: tuple[str, ...] = choices(
        "Work that it does in kernels of its own, where others do it within other kernels.",
        (),
        choices=SEPARATE,
        may_be_empty=True,
    )
    memory: EngineMemory = section("The rule of the cache's memory.", EngineMemory(), of=EngineMemory)
    host: EngineHost = section("Times of the host.", EngineHost(), of=EngineHost)
    prompt_factor: float = _factor("Factor on the times of passes that have prompts.", 1.0, stated=True)
    unpacking_factor: float = _factor(
        "Further factor on passes that have prompts, if products unpack weights of less than 8 bits.",
        1.0,
        stated=True,
    )
    token_factor: float = _factor("Factor on the times of passes without prompts.", 1.0, stated=True)
    errors: EngineErrors | None = section(
        "Ratios of measured to simulated times of rows that no figure is fitted to.", None, of=EngineErrors
    )
    fitted: Mapping[str, str] = notes("Fitted figures, and the measured rows that they fit.")
    sources: Mapping[str, str] = notes("Sources of figures.")
    estimates: Mapping[str, str] = notes("Figures without a source, and their reasons.")
    name: str = ""

    MOST_FITTED = 8

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse more fitted figures than a description may have."""
        refuse_many_fitted(given, section, self.MOST_FITTED)

    def unpacking(self) -> Engine:
        """Return the engine for a model whose products unpack weights of less than 8 bits."""
        return replace(self, prompt_factor=self.prompt_factor * self.unpacking_factor, unpacking_factor=1.0)

    def before_ns(self, layers: int, expert_layers: int) -> int:
        """Return the time of a request before it may be in a pass of a model with so many layers."""
        host = self.host
        of_layers = layers * host.before_layer_ns + expert_layers * host.before_expert_layer_ns
        return round(host.before_ns + of_layers)

    def padded(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """Return the segments of a pass, with unused places of the graph that launches it."""
        tokens = sum(segment.tokens for segment in segments)
        at = bisect_left(self.graphs, tokens)
        if at == len(self.graphs) or any(segment.is_prompt for segment in segments):
            return segments
        drafts = segments[0].drafts if segments else 0
        unused = -(-(self.graphs[at] - tokens) // (1 + drafts))
        padding = PADDING._replace(tokens=1 + drafts, drafts=drafts) if drafts else PADDING
        return [*segments, *[padding] * unused]

    def pass_ns(self, device_ns: int, batch: Batch, layers: int, expert_layers: int = 0) -> int:
        """Return the time of a pass whose kernels take `device_ns`, until the next one may begin."""
        between = layers * self.host.layer_ns + expert_layers * self.host.expert_layer_ns
        if not batch.prefill.segments:
            return round(device_ns * self.token_factor + between + self.host.between_ns)
        host = layers * self.host.eager_layer_ns + expert_layers * self.host.eager_expert_layer_ns
        device = device_ns * self.prompt_factor + between
        both = max(device, host) if self.host.overlaps else device + host
        return round(both + self.host.between_ns + self.host.prompt_pass_ns)


FREE_OF_COST = Engine(about="no engine: its host takes no time")
