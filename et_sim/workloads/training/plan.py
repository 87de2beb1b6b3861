"""A plan of training: the placement of a model on ranks, and the order of their work.

Ranks are counted along the axes in the order of `order`, the first one innermost, as Megatron does. Experts
are spread over the ranks of tensor, context and data together, which are then `expert` x `expert-data` ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import prod
from operator import not_
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import force_setattr

from et_sim.basics.errors import FieldError
from et_sim.basics.units import plural
from et_sim.documents.keys import check_fields, keys_by_field
from et_sim.documents.kinds import choice, count, counts, flag, number, text
from et_sim.workloads import exchange_names
from et_sim.workloads.models.formats import FORMATS
from et_sim.workloads.pipeline import DUAL, SCHEDULES, PipelineShape, schedule
from et_sim.workloads.software import DEFAULT
from et_sim.workloads.training import expert_plan
from et_sim.workloads.training.expert_loads import is_zipf
from et_sim.workloads.training.recomputation import (
    MODES,
    MODULES,
    OPERATORS,
    SELECTIVE,
    check_recompute,
    run_length,
)
from et_sim.workloads.training.value_types import BF16, BY_BYTES, CACHE_BITS, HALVES, check_value_type

if TYPE_CHECKING:
    from et_sim.workloads.axes import Axes
    from et_sim.workloads.models.model import Model
    from et_sim.workloads.software import Software


TENSOR, CONTEXT, DATA, PIPELINE = "tensor", "context", "data", "pipeline"
EXPERT, EXPERT_DATA = expert_plan.EXPERT, "expert-data"
SHARD, REPLICA = "shard", "replica"
EXPERT_AXES = {
    EXPERT: (expert_plan.EXPERT_TENSOR, EXPERT),
    DATA: (EXPERT_DATA,),
}  # they replace these axes of the order
ORDER = "tp-cp-ep-dp-pp"
AXIS_OF = {"tp": TENSOR, "cp": CONTEXT, "ep": EXPERT, "dp": DATA, "pp": PIPELINE}
RING, ALL_GATHER, ALL_TO_ALL = CONTEXT_ATTENTION = ("ring", "all-gather", "all-to-all")
ZIGZAG, IN_ORDER = CONTEXT_BALANCE = ("zigzag", "none")
AS_VALUES = "values"
PRODUCTS = (AS_VALUES, *FORMATS)  # the last ones only in inference
CACHE_TYPES = (AS_VALUES, *CACHE_BITS)
MOST = 10**9
SMALLEST = 1e-9


class Piece(Struct, frozen=True):
    """Layers that one chunk of one place of the pipeline has."""

    first: int
    layers: int
    has_embedding: bool
    has_head: bool

    @property
    def all_layers(self) -> range:
        """Return the numbers of the layers."""
        return range(self.first, self.first + self.layers)


_positive = partial(count, stated=True, minimum=1, maximum=MOST)
_amount = partial(count, maximum=MOST)  # 0 by default: none, or not limited
_rate = partial(number, stated=True, form="a number > 0", minimum=SMALLEST, maximum=MOST)
_on = partial(flag, default=True, becomes=not_)  # the option switches it off


@contextmanager
def naming_fields(named: Callable[[str], str] = str) -> Iterator[None]:
    """Name keys in refusals of fields of a plan; `named` returns the text for a key."""
    try:
        yield
    except FieldError as error:
        keys = keys_by_field(Plan).items()
        raise error.with_names({field: named(key.name) for field, key in keys}) from None


def plan_of(given: Mapping[str, Any], **usual: Any) -> Plan:
    """Return a plan of the given fields; others come from the software's description, or else `usual`."""
    if given.get("global_batch") and "micro_batches" in given:
        raise FieldError(
            f"`micro_batches` is {given['micro_batches']}, and `global_batch` {given['global_batch']}",
            remedy="give one of them: the other follows",
        )
    from et_sim.workloads.software import read_software

    described = read_software(given.get("software") or DEFAULT).plan_options
    chosen = {**usual, **described, **given}
    fit = {
        "tensor_overlap": _can_overlap(chosen),
        "expert_exchange": _can_exchange(chosen),
        "overlap_tensor": given.get("tensor_overlap", 1) == 1,
    }
    return Plan(**{name: value for name, value in chosen.items() if name in given or fit.get(name, True)})


def _can_overlap(chosen: Mapping[str, Any]) -> bool:
    """Return whether the other options allow products to overlap with their own exchange."""
    shares_tokens = chosen.get("tensor", 1) > 1 and chosen.get("sequence_parallel", False)
    return bool(shares_tokens and chosen.get("overlap_tensor", True) and not chosen.get("lora_rank"))


def _can_exchange(chosen: Mapping[str, Any]) -> bool:
    """Return whether experts are on several ranks that nodes divide into equal parts."""
    ranks, node = chosen.get("expert", 1), chosen.get("node_ranks", 8)
    return bool(ranks > 1 and (ranks % node == 0 or node % ranks == 0))


class Plan(Struct, frozen=True):
    """The distribution of one step of training over ranks and time."""

    tensor: int = _positive("ranks that share every layer (tensor parallelism)", 1, name="tp")
    context: int = _positive("ranks that share every sequence (context parallelism)", 1, name="cp")
    data: int = _positive(
        "replicas of the model (data parallelism); in inference, groups of ranks that have sequences of their"
        " own and share the experts",
        1,
        name="dp",
    )
    pipeline: int = _positive("stages of the pipeline", 1, name="pp")
    expert: int = _positive(
        "ranks that the experts are spread over, among those of tp x cp x dp", 1, name="ep"
    )
    expert_skew: str = text(
        "loads of experts: zipf:S, or a JSON list of them (default: even)", "", may_be_empty=True
    )
    expert_seed: int = _amount("seed that chooses the busy experts, with zipf", 0)
    expert_tensor: int = _positive(
        "ranks that share every expert, each of which has a share of it", 1, name="etp"
    )
    expert_exchange: str = choice(
        "exchange of tokens with their experts",
        exchange_names.ALL_TO_ALL,
        stated=True,
        choices=exchange_names.EXCHANGES,
    )
    expert_nodes: int = _amount(
        "nodes that the experts of a token are on (default: as the model limits them)", 0
    )
    node_ranks: int = _positive("ranks of a node, for exchanges of experts (default: of --machine, or 8)", 8)
    dispatch: str = choice(
        "numbers in which tokens are sent to experts", AS_VALUES, stated=True, choices=expert_plan.DISPATCH
    )
    capacity_factor: float = number(
        "most tokens that an expert takes of a rank, as a factor on the mean (default: all)",
        0.0,
        maximum=MOST,
    )
    fused_routing: bool = _on(
        "choose, sort and weigh the tokens of experts in many kernels", name="unfused-routing"
    )
    overlap_experts: bool = flag(
        "exchange the tokens of a forward pass while a backward pass computes, and the other way round; in"
        " inference, those of half of a batch while the other half computes",
        False,
    )
    mtp_layers: int = _amount("layers that predict further tokens, each with a head", 0)
    order: str = text(
        f"order of the axes of ranks, the innermost first: {ORDER}", ORDER, may_be_empty=True, stated=True
    )
    schedule: str = choice("schedule of the pipeline", "1f1b", stated=True, choices=tuple(SCHEDULES))
    chunks: int = _positive("parts of the model on each rank, for the schedule interleaved", 1)
    micro_batches: int = _positive("micro-batches of a step, in every replica", 8)
    global_batch: int = _amount("sequences of a step in all replicas, in place of --micro-batches", 0)
    batch: int = _positive("sequences, images or samples in a micro-batch", 1)
    stage_layers: tuple[int, ...] = counts(
        "layers of each part of the pipeline, as in 7,8,8,7 (default: all equal)", (), may_be_empty=True
    )
    sequence_parallel: bool = flag("tensor-parallel ranks share the tokens between their products", False)
    context_attention: str = choice(
        "exchange of keys and values, with cp", RING, stated=True, choices=CONTEXT_ATTENTION
    )
    context_balance: str = choice(
        "with cp and a causal mask: zigzag, a piece from either end for each rank; or none, pieces in order",
        ZIGZAG,
        stated=True,
        choices=CONTEXT_BALANCE,
    )
    document_tokens: int = _amount(
        "tokens of a document, which limits attention (default: whole sequences)", 0
    )
    recompute: str = text(
        f"activations in the backward pass: {', '.join(MODES)}, or modules, as in norms+activation:"
        f" {', '.join(MODULES)}",
        "none",
        may_be_empty=True,
        stated=True,
    )
    recompute_layers: str = text(
        "recomputed layers: every:N or first:N of a stage (default: all), or runs: uniform:N",
        "",
        may_be_empty=True,
    )
    offload_activations: bool = flag(
        "activations of layers wait in remote memory for their backward pass", False
    )
    zero: int = _amount(
        "sharing among replicas: 1 optimizer states, 2 also gradients, 3 also weights (FSDP)",
        0,
        maximum=3,
        form="0, 1, 2 or 3",
    )
    shard: int = _amount("number of replicas that share (default: all of them)", 0)
    prefetch: int = _amount("layers whose shared weights are gathered ahead", 1, stated=True)
    bucket: int = _positive("bytes of gradients that are reduced together", 25 << 20)
    overlap_tensor: bool = _on(
        "exchange gradients of inputs before those of weights are computed", name="no-overlap-tensor"
    )
    overlap_pipeline: bool = _on(
        "stages wait for their sends and receives before they go on", name="no-overlap-pipeline"
    )
    scatter_gather: bool = flag(
        "tensor-parallel ranks send a share each to the next stage, which gathers all", False
    )
    tensor_overlap: int = _positive("chunks in which products overlap with their own exchange (async TP)", 1)
    causal: bool = _on("count masked scores, too", name="full-attention")
    fused_attention: bool = _on(
        "write the scores of attention to memory, and keep them", name="unfused-attention"
    )
    dropout: bool = _on("leave out dropout, of models that have it", name="no-dropout")
    value_bytes: int = _positive("bytes of a weight or activation", 2)
    value_type: str = text(
        f"numbers of values of 2 bytes: {' or '.join(HALVES)} (default: {BF16}, unless --machine has only"
        " the other)",
        "",
        may_be_empty=True,
    )
    lora_rank: int = _amount(
        "freeze all weights, and train adapters of this rank beside products (LoRA); in inference, adapters"
        " that the sequences of a batch use",
        0,
    )
    adapters: int = _amount(
        "adapters that a replica has, one of which each sequence uses, in inference (default: 1)", 0
    )
    products: str = choice(
        "numbers that products with weights compute with; in inference, that weights are stored in (default:"
        f" {AS_VALUES}; in inference, those that the model's file states)",
        "",
        choices=PRODUCTS,
        may_be_empty=True,
    )
    expert_products: str = choice(
        "the same of routed experts alone, in inference", "", choices=PRODUCTS, may_be_empty=True
    )
    redundant_experts: int = _amount(
        "copies of experts, in inference: experts and copies are spread evenly over the ranks", 0
    )
    experts_apart: bool = flag(
        "experts on ep ranks of their own, beside the tp x dp ranks of attention, in inference", False
    )
    cache_type: str = choice(
        "numbers of cached keys and values (default: those that the model's file states, or values)",
        "",
        choices=CACHE_TYPES,
        may_be_empty=True,
    )
    computes: str = text(
        "datatypes that devices multiply in, as in bf16,fp8; weights stored in others are read so, and"
        " products compute with values (default: of --machine, or all)",
        "",
        may_be_empty=True,
    )
    gather_cast: bool = flag(
        "with zero 3 and products fp8 or fp4: replicas cast their shares, then gather", False
    )
    gradient_bytes: int = _positive("bytes of a gradient that replicas exchange", 2)
    sum_bytes: int = _positive(
        "bytes of a gradient that micro-batches are added up in, as Megatron's main gradients", 4
    )
    master_bytes: int = _amount(
        "bytes of the optimizer for each weight: a copy and two moments", 12, stated=True
    )
    tflops: float = _rate("rate of a rank's kernels, in 10^12 operations per second", 200.0)
    memory_gbps: float = _rate("memory rate of a rank's kernels, in 10^9 bytes per second", 2000.0)
    software: str = text(
        f"software of the step: a description by name, or a JSON file (default: {DEFAULT})",
        "",
        may_be_empty=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)
        check_recompute(self.recompute, self.recompute_layers)
        if run_length(self.recompute_layers) > 1 and (self.zero == 3 or self.offload_activations):
            other, remedy = (
                ("`zero` is 3", "give `zero` 0, 1 or 2")
                if self.zero == 3
                else (
                    "`offload_activations` is given",
                    "leave it out",
                )
            )
            raise FieldError(
                f"`recompute_layers` is {self.recompute_layers}, and {other}",
                remedy=f"give every:N or first:N, or {remedy}",
            )
        check_value_type(self.value_type, self.value_bytes)
        self._share_batch()
        if self.expert_seed and not is_zipf(self.expert_skew):
            raise FieldError(
                "`expert_seed` requires `expert_skew` with zipf",
                remedy="give `expert_skew`, as in zipf:1.2, or leave `expert_seed` out",
            )
        _ = self.by  # raises if there is no such software
        self._check_order()
        self._check_shares()

    def _share_batch(self) -> None:
        """Replace a global batch by the micro-batches that it makes."""
        if not self.global_batch:
            return
        each = self.data * self.batch
        if self.global_batch % each:
            near = max(self.global_batch // each, 1) * each
            raise FieldError(
                f"`global_batch` is {self.global_batch}, which is not a multiple of {each}:"
                f" {plural(self.data, 'replica')} times {plural(self.batch, 'sequence')} of a micro-batch",
                remedy=f"give a multiple of {each}, such as {near}",
            )
        force_setattr(self, "micro_batches", self.global_batch // each)
        force_setattr(self, "global_batch", 0)  # a changed copy has its own number of micro-batches

    @property
    def by(self) -> Software:
        """Return the description of the software."""
        from et_sim.workloads.software import read_software

        return read_software(self.software or DEFAULT)

    @property
    def computed_again(self) -> str:
        """Return the mode or modules of recomputation; `selective` stands for the software's modules."""
        return self.by.selective if self.recompute == SELECTIVE else self.recompute

    def check_values(self) -> None:
        """Refuse a language model with activations of one byte."""
        if self.value_bytes == 1:
            raise FieldError(
                "`value_bytes` is 1, but norms, attention and exchanges of language models need 2 or more",
                remedy="give `products` fp8: it casts the operands of products with weights",
            )

    def _check_order(self) -> None:
        named = [AXIS_OF.get(word, word) for word in self.order.split("-")]
        left_out = [name for name in AXIS_OF.values() if name not in named and name != EXPERT]
        if len(set(named)) < len(named) or not set(named) <= set(AXIS_OF.values()):
            raise FieldError(
                f"`order` is {self.order!r}",
                remedy=f"name each of {', '.join(AXIS_OF)} at most once, as in {ORDER}",
            )
        if any(getattr(self, name) > 1 for name in left_out):
            raise FieldError(
                f"`order` is {self.order!r}, but lacks {', '.join(left_out)}",
                remedy=f"name each axis with more than one place, as in {ORDER}",
            )

    def _check_apart(self) -> None:
        """Refuse ranks of experts that the other options do not support."""
        for name, usual in (
            ("pipeline", 1),
            ("expert_tensor", 1),
            ("expert_exchange", exchange_names.ALL_TO_ALL),
            ("order", ORDER),
        ):
            if (given := getattr(self, name)) != usual:
                raise FieldError(
                    f"`experts_apart` does not support `{name}` {given}", remedy=f"leave `{name}` out"
                )
        if self.expert % self.tensor:
            raise FieldError(
                f"`experts_apart` requires `expert`, a multiple of `tensor`: {self.expert} is not one of"
                f" {self.tensor}",
                remedy=f"give `expert` {-(-self.expert // self.tensor) * self.tensor}, or another `tensor`",
            )

    def _check_shares(self) -> None:
        if self.experts_apart:
            self._check_apart()
            return
        inner = self.tensor * self.context * self.data
        if inner % (self.expert * self.expert_tensor):
            raise FieldError(
                f"{plural(self.expert * self.expert_tensor, 'expert-parallel rank')} do not divide"
                f" `tensor` x `context` x `data`, which is {inner}",
                remedy=f"choose a number that divides {inner}, or more ranks",
            )
        if self.spreads_experts and any(
            prod(self.size(name) for name in dense) != prod(self.size(name) for name in experts)
            for dense, experts in self._sides
        ):
            raise FieldError(
                f"`order` {self.order} puts the pipeline between the axes that experts are spread over, which"
                " would put experts and other weights of a layer into different stages",
                remedy="put pp last",
            )
        if self.shard and self.data % self.shard:
            raise FieldError(
                f"`shard` is {self.shard}, which does not divide {self.data} replicas",
                remedy="give a divisor of `data`, or 0 for all of them",
            )
        if self.shard and not self.zero:
            raise FieldError("`shard` requires `zero`", remedy="give `zero`, 1 to 3, too")
        if self.gather_cast and not (self.zero == 3 and self.cast_to):
            raise FieldError(
                f"`gather_cast` requires `zero` 3 and fp8 or fp4: `zero` is {self.zero}, `products`"
                f" {self.products or AS_VALUES}",
                remedy="give `zero` 3 and `products`, fp8 or fp4, or leave it out",
            )
        if self.lora_rank and (self.computed_again == OPERATORS or self.tensor_overlap > 1):
            other = f"`recompute` {OPERATORS}" if self.computed_again == OPERATORS else "`tensor_overlap`"
            raise FieldError(
                f"`lora_rank` is {self.lora_rank}, but {other} does not support products with adapters",
                remedy="leave one of them out",
            )
        self._check_tensor()
        self._check_experts()
        schedule(self.schedule, self.shape)

    def _check_experts(self) -> None:
        self.places_of_experts.check(self.expert_nodes)
        if self.dispatch != AS_VALUES and self.expert == 1:
            raise FieldError("`dispatch` requires `expert`, 2 or more", remedy="give `expert`, 2 or more")
        if self.products and self.dispatch not in (AS_VALUES, self.products):
            raise FieldError(
                f"`dispatch` is {self.dispatch}, but experts compute with {self.products or AS_VALUES}",
                remedy=f"give `products` {self.dispatch}, or leave `dispatch` out",
            )
        if self.capacity_factor and self.expert_exchange != exchange_names.ALL_TO_ALL:
            raise FieldError(
                f"`capacity_factor` is not supported by `expert_exchange` {self.expert_exchange}",
                remedy=f"leave it out, or take `expert_exchange` {exchange_names.ALL_TO_ALL}",
            )
        if self.overlaps_passes and self.zero > 1:
            raise FieldError(
                f"`zero` is {self.zero}, but two passes at the same time would reduce each other's gradients",
                remedy="give `zero` 0 or 1, or leave out `overlap_experts` and the `schedule` dualpipe",
            )

    def _check_tensor(self) -> None:
        if self.sequence_parallel and self.tensor == 1:
            raise FieldError(
                "`sequence_parallel` requires `tensor`, 2 or more",
                remedy="give `tensor`, 2 or more, or leave it out",
            )
        if self.scatter_gather and (self.tensor == 1 or self.sequence_parallel):
            raise FieldError(
                "`scatter_gather` requires tensor-parallel ranks that all have the whole activation",
                remedy="give `tensor`, 2 or more, without `sequence_parallel`, or leave it out",
            )
        if self.tensor_overlap > 1 and not (self.sequence_parallel and self.overlap_tensor):
            raise FieldError(
                f"`tensor_overlap` is {self.tensor_overlap}, but tokens are not exchanged beside products",
                remedy="give `sequence_parallel`, and leave `overlap_tensor` out",
            )

    @property
    def gathers_cast(self) -> bool:
        """Return whether weights are cast before they are gathered."""
        return self.gather_cast or (self.zero == 3 and bool(self.cast_to) and self.by.casts.exchanged)

    @property
    def values(self) -> str:
        """Return the datatype of weights and activations; empty if it has no name."""
        return self.value_type or BY_BYTES.get(self.value_bytes, "")

    @property
    def cast_to(self) -> str:
        """Return the datatype to which operands of products with weights are cast; empty if none."""
        return "" if self.products == AS_VALUES else self.products

    @property
    def types(self) -> tuple[str, ...]:
        """Return the datatypes that devices multiply in; (): all."""
        return tuple(filter(None, self.computes.split(",")))

    @property
    def shape(self) -> PipelineShape:
        """Return the shape of the pipeline that its schedule needs."""
        return PipelineShape(self.pipeline, self.micro_batches, self.chunks, self.overlap_experts)

    @property
    def spreads_experts(self) -> bool:
        """Return whether ranks with the same other weights have different experts."""
        return self.expert * self.expert_tensor > 1 and not self.experts_apart

    @property
    def ranks(self) -> int:
        """Return the number of ranks of the job."""
        apart = self.expert if self.experts_apart else 0
        return self.tensor * self.context * self.data * self.pipeline + apart

    @property
    def _counted(self) -> list[str]:
        """Return all axes, the innermost first; if the order lacks experts, they precede replicas.

        Other axes that the order lacks are last.
        """
        named = [AXIS_OF.get(word, word) for word in self.order.split("-")]
        named += [name for name in AXIS_OF.values() if name not in named and name != EXPERT]
        if EXPERT not in named:
            named.insert(named.index(DATA), EXPERT)
        return named

    @property
    def _sides(self) -> list[tuple[list[str], list[str]]]:
        """Return the axes inside and outside the pipeline axis, each as dense axes and expert axes."""
        counted = self._counted
        within = counted.index(PIPELINE) if self.pipeline > 1 else len(counted)
        return [
            (
                [name for name in side if name in (TENSOR, CONTEXT, DATA)],
                [part for name in side if name in (EXPERT, DATA) for part in EXPERT_AXES[name]],
            )
            for side in (counted[:within], counted[within:])
        ]

    def size(self, name: str) -> int:
        """Return the size of an axis."""
        if name == EXPERT_DATA:
            return self.tensor * self.context * self.data // (self.expert * self.expert_tensor)
        if name == expert_plan.EXPERT_RAIL:
            return self.expert // self.places_of_experts.on_node
        return int(getattr(self, name.replace("-", "_")))

    @property
    def axes(self) -> Axes:
        """Return the axes of the ranks, with the expert axis split by nodes."""
        axes = self.axes_of_experts
        if self.spreads_experts and self.expert > 1:
            within = self.places_of_experts.on_node
            axes = axes.split(
                EXPERT, **{expert_plan.EXPERT_NODE: within, expert_plan.EXPERT_RAIL: self.expert // within}
            )
        return axes

    @property
    def places_of_experts(self) -> expert_plan.ExpertPlaces:
        """Return the placement of experts on ranks and nodes."""
        axis = self.axes_of_experts[EXPERT] if self.spreads_experts else (1, 1)
        return expert_plan.ExpertPlaces(self.expert_exchange, *axis, self.node_ranks)

    @property
    def axes_of_experts(self) -> Axes:
        """Return the axes of the ranks, without nodes."""
        from et_sim.workloads.axes import Axes

        axes = Axes(**{name: self.size(name) for name in self._counted if name != EXPERT})
        if self.spreads_experts:
            for dense, experts in self._sides:
                if dense:
                    axes = axes.split(*dense, **{name: self.size(name) for name in experts})
        if self.shard:
            axes = axes.split(DATA, **{SHARD: self.shard, REPLICA: self.data // self.shard})
        return axes

    def __str__(self) -> str:
        if self.experts_apart:
            return f"{self.axes}, experts over {self.expert} of their own"
        return f"{self.axes}, experts over {self.expert}" if self.expert > 1 else str(self.axes)

    @property
    def parts(self) -> int:
        """Return the number of pieces that the layers are cut into."""
        return self.pipeline * self.chunks

    @property
    def is_dual(self) -> bool:
        """Return whether two pipelines use the same ranks, so that each rank has a piece of both."""
        return self.schedule == DUAL

    @property
    def held(self) -> int:
        """Return the number of pieces of a rank."""
        return 2 if self.is_dual else self.chunks

    @property
    def overlaps_passes(self) -> bool:
        """Return whether forward passes run beside backward passes."""
        return self.overlap_experts or self.is_dual

    def piece(self, place: int, chunk: int) -> int:
        """Return the number of the piece at a place of the pipeline and chunk."""
        if self.is_dual:
            return self.pipeline - 1 - place if chunk else place
        return chunk * self.pipeline + place

    def micro_batches_of(self, chunk: int) -> range:
        """Return the numbers of the micro-batches that pass through a chunk."""
        if not self.is_dual:
            return range(self.micro_batches)
        half = self.micro_batches // 2
        return range(chunk * half, (chunk + 1) * half)

    def layers_of_parts(self, model: Model) -> tuple[int, ...]:
        """Return the number of layers of each piece, in the order of the model."""
        if self.stage_layers:
            return self.stage_layers
        return (model.layers // self.parts,) * self.parts

    def check_stages(self, model: Model) -> None:
        """Refuse layers that cannot be divided among the parts of the pipeline."""
        parts, given = self.parts, self.stage_layers
        if not given and model.layers % parts:
            raise FieldError(
                f"{model.name} has {model.layers} layers, no multiple of the {parts} parts of the pipeline",
                remedy=f"choose stages and chunks whose product divides {model.layers}, or give"
                " `stage_layers`, the layers of each part",
            )
        if given and (len(given) != parts or sum(given) != model.layers):
            raise FieldError(
                f"`stage_layers` are {len(given)} numbers with the sum {sum(given)}",
                remedy=f"give {parts} numbers whose sum is {model.layers}",
            )

    def part(self, model: Model, place: int, chunk: int) -> Piece:
        """Return the piece at a place of the pipeline and chunk."""
        number, layers = self.piece(place, chunk), self.layers_of_parts(model)
        first = sum(layers[:number])
        return Piece(first, layers[number], number == 0, number == self.parts - 1)
