"""The keys of a description of software, each with its meaning, its limits and its default.

Defaults describe software that fuses all it can and copies nothing. The traffic of a part of a layer is given
for each of its values: accesses in the datatype of values, and accesses in fp32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from et_sim.basics.kernel_names import ATTENTION_KERNELS
from et_sim.documents.descriptions import notes, refuse_many_fitted
from et_sim.documents.keys import Remarks, Section, Slot, ValueKind, key
from et_sim.documents.kinds import choice, count, flag, number, section, text, time
from et_sim.workloads.exchange_names import EXCHANGES

FP32_BYTES = 4
MIXED = 2  # least kernels of a part, if some compute the places of numbers and some do not
BEST, UNFUSED = "best", "unfused"
ATTENTIONS = (BEST, UNFUSED, *ATTENTION_KERNELS)
WEIGHTS, GRADIENTS = "weights", "gradients"
ALL = (WEIGHTS, GRADIENTS)
ROUTER, HEAD = "router", "head"

_accesses = partial(number, minimum=0, maximum=1000)
_launches = partial(count, minimum=0, maximum=100_000)


def _words(slot: Slot, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) and word for word in value):
        raise slot.refusal(value)
    return tuple(value)


WORDS = ValueKind("words", lambda _: "a list of texts", _words)


class KernelPass(Struct, frozen=True):
    """The kernels of one direction, and their accesses for each value."""

    values: float = _accesses("Reads and writes of each value, in the datatype of values.", 0.0, stated=True)
    fp32: float = _accesses("Reads and writes of each value, in fp32.", 0.0, stated=True)
    strided: float = _accesses(
        "Part of `values` for kernels that compute the place of every number, since rows are parts of wider "
        "ones, or are repeated.",
        0.0,
        stated=True,
    )
    launches: int = _launches("Number of kernels.", 1, stated=True)

    def check(self, _given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse more strided accesses than there are, and one kernel with accesses of both kinds."""
        if self.strided > self.values:
            raise section.fault(
                f'key "strided" is {self.strided:g}, and "values" {self.values:g}',
                "give at most as many: they are a part of them",
                key="strided",
            )
        if 0 < self.strided < self.values + self.fp32 and self.launches < MIXED:
            raise section.fault(
                f'key "launches" is {self.launches}, and only some accesses are "strided"',
                f"give at least {MIXED}: strided accesses are of kernels of their own",
                key="launches",
            )

    def parts(self) -> tuple[KernelPass, ...]:
        """Return the kernels without strided accesses, and those with, if any; accesses divide launches."""
        if not self.strided:
            return (self,)
        accesses = self.values + self.fp32
        if self.strided == accesses:
            return (self,)
        apart = min(max(round(self.launches * self.strided / accesses), 1), self.launches - 1)
        rest = replace(self, values=self.values - self.strided, strided=0.0, launches=self.launches - apart)
        return rest, KernelPass(self.strided, strided=self.strided, launches=apart)

    def bytes(self, value_bytes: int) -> int:
        """Return the bytes that memory moves for each value, rounded up."""
        return -int(-(self.values * value_bytes + self.fp32 * FP32_BYTES) // 1)


class BothWays(Struct, frozen=True):
    """The kernels of a part, forward and backward."""

    forward: KernelPass = section("Kernels of the forward pass.", required=True, of=KernelPass)
    backward: KernelPass = section("Kernels of the backward pass.", required=True, of=KernelPass)


class ElementWise(Struct, frozen=True):
    """Parts that are not fused; a part that is left out is one fused kernel in each direction."""

    rms_norm: BothWays | None = section("RMSNorm.", None, of=BothWays)
    rotary: BothWays | None = section("Queries and keys turned by their positions.", None, of=BothWays)
    scaled_rotary: BothWays | None = section(
        "Queries and keys turned and scaled, in models with the factor of YaRN, if the fused kernel only "
        "turns them; default: as `rotary`.",
        None,
        of=BothWays,
    )
    gate: BothWays | None = section("The activation of gated feed-forward parts.", None, of=BothWays)
    loss: BothWays | None = section("The loss, for each score of a word.", None, of=BothWays)
    dropout: KernelPass | None = section("Dropout before a sum, in kernels of its own.", None, of=KernelPass)


class Casts(Struct, frozen=True):
    """Casts of values for products in fp8 and fp4."""

    reads: int = count(
        "Reads of each value: 1, or 2 if its scale comes from the values first.", 1, minimum=1, stated=True
    )
    launches: int = _launches("Kernels of a cast.", 1, stated=True)
    kept: bool = flag(
        "The backward pass uses the casts of the forward pass; else it casts inputs again.",
        True,
        stated=True,
    )
    fused: tuple[str, ...] = key(
        WORDS, "Products whose inputs are cast by the kernel before them, such as a norm.", (), stated=True
    )
    exchanged: bool = flag(
        "Values are cast before they are exchanged: weights that replicas share, and inputs of products and "
        "gradients of outputs that tensor-parallel ranks gather.",
        False,
        stated=True,
    )
    wide_products: tuple[str, ...] = key(
        WORDS, "Products that keep the datatype of values.", (ROUTER, HEAD), stated=True
    )


class Shares(Struct, frozen=True):
    """Copies and order of the exchanges of weights that replicas share (ZeRO-3, FSDP)."""

    after_gather: KernelPass = section("Copies of gathered weights.", KernelPass(launches=0), of=KernelPass)
    before_reduce: KernelPass | None = section(
        "Copies of gradients before they are reduced. Without the key: one, to the type of the exchange.",
        None,
        of=KernelPass,
    )
    kept_units: int = count(
        "Number of last units of a forward pass whose weights stay for the backward pass.", 0, stated=True
    )
    beside: tuple[str, ...] = key(WORDS, "Tensors that are exchanged beside kernels.", ALL, stated=True)
    updated_ahead: bool = flag(
        "Weights that replicas have updated (zero 1 and 2) are gathered beside the first forward pass, "
        "instead of after the update.",
        False,
        stated=True,
    )

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse unknown exchanges."""
        for word in given.get("beside", ()):
            if word not in ALL:
                raise section.fault(
                    f'key "beside" names "{word}"', f"allowed: {', '.join(ALL)}", key="beside"
                )


class ExpertKernels(Struct, frozen=True):
    """Kernels of experts beside those of their products and their activation."""

    bias: BothWays | None = section(
        "The bias of outputs, added to the rows of each expert by kernels of its own; for each output. "
        "Launches are those of one expert.",
        None,
        of=BothWays,
    )
    limits: BothWays | None = section(
        "Limits of a clipped activation, for each of its outputs.", None, of=BothWays
    )
    padding: BothWays | None = section(
        "Copies of the rows of each expert to as many rows as products in fewer bits need, before its "
        "products, and back after them, for each value; of tokens that come by all-to-all.",
        None,
        of=BothWays,
    )
    counting: int = _launches(
        "Kernels that count the tokens for each expert, whose numbers all ranks gather before an all-to-all; "
        "0: none, and no numbers are exchanged.",
        0,
        stated=True,
    )
    weights_apart: bool = flag(
        "Gradients of the routing weights, which multiply outputs of the activation, come from a separate "
        "kernel, which reads inputs and gradients of the activation again.",
        False,
        stated=True,
    )


class Host(Struct, frozen=True):
    """Times of the host."""

    launch_ns: float = time("Time to launch a kernel or collective.", 0.0, stated=True)
    step_ns: float = time("Time before the first launch of a step.", 0.0, stated=True)
    waits: bool = flag(
        "The host waits for the messages between stages that kernels wait for, as after a synchronisation "
        "of the device; else it launches further kernels.",
        False,
        stated=True,
    )
    graphs: bool = flag("Graphs launch all kernels at once, which hides single launches.", False, stated=True)

    @property
    def each_ns(self) -> float:
        """Return the effective time of a launch."""
        return 0.0 if self.graphs else self.launch_ns


class Optimizer(Struct, frozen=True):
    """Accesses of the update for each weight."""

    gradients: float = _accesses(
        "Reads and writes of a gradient: set to zero, scaled, clipped, used.", 7.0, stated=True
    )
    states: float = _accesses("Reads and writes of all states of a weight.", 2.0, stated=True)
    copies: bool = flag(
        "The update writes weights in the datatype of values from those in fp32.", True, stated=True
    )
    launches: int = _launches("Number of kernels.", 4, stated=True)


class PlanDefaults(Struct, frozen=True):
    """Defaults of a plan's options."""

    zero: int | None = count("Level of sharing among replicas, as the option `zero`.", None, maximum=3)
    prefetch: int | None = count("Layers whose weights are gathered ahead.", None)
    gradient_bytes: int | None = count("Bytes of a gradient that replicas exchange.", None, minimum=1)
    sum_bytes: int | None = count("Bytes of a gradient in sums.", None, minimum=1)
    master_bytes: int | None = count("Bytes of the optimizer for each weight.", None)
    bucket: int | None = count("Bytes of gradients that are reduced together.", None, minimum=1)
    tensor_overlap: int | None = count(
        "Chunks in which products overlap with their own exchange, if ranks share tokens.", None, minimum=1
    )
    expert_exchange: str | None = choice(
        "Exchange of tokens with experts on other ranks.", None, choices=EXCHANGES
    )
    overlap_tensor: bool | None = flag("Exchanges of tensor parallelism run beside kernels.", None)
    overlap_pipeline: bool | None = flag("Exchanges between stages run beside kernels.", None)
    scatter_gather: bool | None = flag("Tensor-parallel ranks send a share each to the next stage.", None)
    fused_attention: bool | None = flag("Attention is one kernel.", None)


class Software(Struct, frozen=True):
    """A description of software."""

    about: str = text("Name and version of the software, in a few words.", required=True)
    plan: PlanDefaults = section("Defaults of a plan's options.", PlanDefaults(), of=PlanDefaults)
    element_wise: ElementWise = section("Parts that are not fused.", ElementWise(), of=ElementWise)
    attention: str = choice("Kernel of attention.", BEST, stated=True, choices=ATTENTIONS)
    expands_keys: bool = flag("Keys and values are copied for every query head.", False, stated=True)
    splits_products: bool = flag(
        "Queries, keys and values, and the halves of a gated part, are separate products.",
        False,
        stated=True,
    )
    splits_copy: bool = flag(
        "Rotary attention copies queries, keys and values out of the outputs of one product, and joins their "
        "gradients again.",
        False,
        stated=True,
    )
    sums_in_products: bool = flag(
        "Products add gradients of weights to their sums over micro-batches themselves, also if sums have "
        "the datatype of values; in a wider one, they always do.",
        False,
        stated=True,
    )
    reduces_whole: bool = flag(
        "If products overlap with their exchange, gradients of gathered inputs are reduced as a whole beside "
        "the gradients of weights, instead of in chunks after their own product.",
        False,
        stated=True,
    )
    sums_fused: bool = flag(
        "One kernel adds the gradients that several products have of one input.",
        True,
        stated=True,
    )
    selective: str = text(
        "Mode or modules of recomputation that the option `selective` stands for.",
        "core-attention",
        stated=True,
    )
    casts: Casts = section("Casts for products in fp8 and fp4.", Casts(), of=Casts)
    experts: ExpertKernels = section("Kernels of experts.", ExpertKernels(), of=ExpertKernels)
    shares: Shares = section("Weights that replicas share.", Shares(), of=Shares)
    optimizer: Optimizer = section("The update.", Optimizer(), of=Optimizer)
    host: Host = section("The host.", Host(), of=Host)
    kernels: float = number(
        "Factor on the times of kernels: work that no other key describes, fitted to measured steps.",
        1.0,
        stated=True,
        above_minimum=True,
        maximum=100,
    )
    processors: int = count(
        "Processors (SMs) that a collective takes from kernels at most; 0: the number of its library.",
        0,
        stated=True,
    )
    fitted: Mapping[str, str] = notes("Fitted figures, and the measured rows that they fit.")
    sources: Mapping[str, str] = notes("Sources of figures.")
    estimates: Mapping[str, str] = notes("Figures without a source, and their reasons.")
    name: str = ""

    MOST_FITTED = 6

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse more fitted figures than a description may have."""
        refuse_many_fitted(given, section, self.MOST_FITTED)

    @property
    def plan_options(self) -> dict[str, Any]:
        """Return the options of a plan that the description sets."""
        return {name: value for name, value in asdict(self.plan).items() if value is not None}


def is_named(part: str, words: Sequence[str]) -> bool:
    """Return whether the name of a part is one of some words, or ends with one."""
    return any(part == word or part.endswith(f" {word}") for word in words)
