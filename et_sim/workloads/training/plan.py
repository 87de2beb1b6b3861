"""A plan of training: the placement of a model on ranks, and the order of their work.

Ranks are counted along the axes in the order of `order`, the first one innermost, as Megatron does. Experts
are spread over the ranks of tensor, context and data together, which are then `expert` x `expert-data` ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import force_setattr

from et_sim.basics.errors import FieldError
from et_sim.basics.units import plural
from et_sim.documents.keys import check_fields, keys_by_field
from et_sim.workloads import exchange_names
from et_sim.workloads.pipeline import DUAL, PipelineShape, schedule
from et_sim.workloads.software import DEFAULT
from et_sim.workloads.training import expert_plan
from et_sim.workloads.training.expert_loads import is_zipf
from et_sim.workloads.training.plan_options import AS_VALUES, ORDER, PlanOptions
from et_sim.workloads.training.recomputation import (
    OPERATORS,
    SELECTIVE,
    check_recompute,
    run_length,
)
from et_sim.workloads.training.value_types import BY_BYTES, check_value_type

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
AXIS_OF = {"tp": TENSOR, "cp": CONTEXT, "ep": EXPERT, "dp": DATA, "pp": PIPELINE}


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


class Plan(PlanOptions, frozen=True):
    """The distribution of one step of training over ranks and time."""

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
        self._check_attention_parts()
        _ = self.by  # raises if there is no such software
        self._check_order()
        self._check_shares()

    def _check_attention_parts(self) -> None:
        """Refuse attention in parts where no exchange runs beside them."""
        if not self.attention_parts:
            return
        if not self.overlap_experts:
            raise FieldError(
                "`attention_parts` requires `overlap_experts`",
                remedy="give `overlap_experts`, or leave it out",
            )
        if self.expert == 1:
            raise FieldError(
                "`attention_parts` requires `expert`, 2 or more", remedy="give `expert`, or leave it out"
            )
        if self.expert_exchange != exchange_names.ALL_TO_ALL:
            raise FieldError(
                f"`attention_parts` does not support `expert_exchange` {self.expert_exchange}",
                remedy=f"take `expert_exchange` {exchange_names.ALL_TO_ALL}, as with low latency",
            )

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
            ("expert_nodes", 0),
            ("attention_parts", False),
            ("order", ORDER),
        ):
            if (given := getattr(self, name)) != usual:
                value = "" if given is True else f" {given}"
                raise FieldError(
                    f"`experts_apart` does not support `{name}`{value}", remedy=f"leave `{name}` out"
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
                remedy=f"choose expert-parallel ranks that divide {inner}, or more of the other ranks",
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
                f"`stage_layers` is a list of {plural(len(given), 'number')} with the sum {sum(given)}",
                remedy=f"give {parts} numbers whose sum is {model.layers}",
            )

    def part(self, model: Model, place: int, chunk: int) -> Piece:
        """Return the piece at a place of the pipeline and chunk."""
        number, layers = self.piece(place, chunk), self.layers_of_parts(model)
        first = sum(layers[:number])
        return Piece(first, layers[number], number == 0, number == self.parts - 1)
