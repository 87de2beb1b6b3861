"""One step of transformer training with tensor, pipeline and data parallelism, as a workload of templates.

The rank with places (t, d, p) in its tensor, data and pipeline dimension is t + T * (d + D * p): a tensor
group is T consecutive ranks, a data group takes every T-th rank, and pipeline neighbours are T * D apart.
All ranks of a stage run one trace, in which micro-batches follow the 1F1B schedule.

Sizes and times are worked out from the model's shape; nothing is measured.

Not here: embedding weights that two stages share, sequence parallelism, and recomputation of activations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, NamedTuple

from et_sim.errors import UsageError
from et_sim.generate import PROFILE

if TYPE_CHECKING:
    from et_sim.trace.builder import TraceBuilder
    from et_sim.trace.columns import Trace
    from et_sim.trace.workload import Workload

TENSOR_GROUP, DATA_GROUP = "tensor", "data"
MOST_NODES = 10_000_000  # in one rank of every stage
MOST_OF_ANYTHING = 10**9
_BYTES_PER_PARAMETER_IN_OPTIMIZER = 16  # weights, gradients, and two moments, most in single precision


@dataclass(frozen=True, slots=True)
class Transformer:
    """A model, how it is spread over ranks, and how fast a rank computes."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    micro_batches: int = 8
    layers: int = 24
    hidden: int = 2048
    sequence: int = 2048
    batch: int = 1  # sequences in a micro-batch
    vocabulary: int = 51_200
    bytes_per_value: int = 2
    tflops: float = 200.0  # what a kernel achieves

    def __post_init__(self) -> None:
        for attribute in fields(self):
            value = getattr(self, attribute.name)
            if not 0 < value < MOST_OF_ANYTHING:
                remedy = f"it must be more than 0 and less than {MOST_OF_ANYTHING:,}"
                raise UsageError(f"{attribute.name} is {value}", remedy=remedy)
        self._check_shares()
        nodes = self.micro_batches * self.layers * 8
        if nodes > MOST_NODES:
            raise UsageError(
                f"{self.micro_batches:,} micro-batches in {self.layers:,} layers are about {nodes:,} nodes",
                remedy=f"stay below {MOST_NODES:,}, in all stages together",
            )

    def _check_shares(self) -> None:
        """What is divided among ranks must divide."""
        for name, total, share, by in (
            ("layers", self.layers, self.pipeline, "pipeline stages"),
            ("hidden", self.hidden, self.tensor, "tensor-parallel ranks"),
            ("vocabulary", self.vocabulary, self.tensor, "tensor-parallel ranks"),
        ):
            if total % share:
                near = max(total // share, 1) * share
                raise UsageError(
                    f"{name} is {total}, which {share} {by} do not divide",
                    remedy=f"give a multiple of {share}, such as {near}",
                )

    @property
    def ranks(self) -> int:
        """How many ranks the job has."""
        return self.tensor * self.pipeline * self.data

    @property
    def layers_per_stage(self) -> int:
        """Layers that one stage holds."""
        return self.layers // self.pipeline

    @property
    def tokens(self) -> int:
        """Tokens in a micro-batch."""
        return self.batch * self.sequence

    @property
    def activation_bytes(self) -> int:
        """What a layer hands to the next one for a micro-batch."""
        return self.tokens * self.hidden * self.bytes_per_value

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer on one rank: 4 h^2 in attention, 8 h^2 in the feed-forward part."""
        return 12 * self.hidden**2 // self.tensor

    @property
    def vocabulary_parameters(self) -> int:
        """Weights on one rank of the embedding, and of the head."""
        return self.vocabulary * self.hidden // self.tensor


class Kernel(NamedTuple):
    """A computation of the forward pass, on one rank; backward does twice as much."""

    name: str
    operations: int
    bytes: int


def attention(model: Transformer) -> Kernel:
    """Four h x h products per token, and the products of every token with the whole sequence."""
    tokens, hidden = model.tokens, model.hidden
    operations = (8 * tokens * hidden**2 + 4 * tokens * model.sequence * hidden) // model.tensor
    values = (4 * hidden**2 + 4 * tokens * hidden) // model.tensor + 2 * tokens * hidden
    return Kernel("attention", operations, values * model.bytes_per_value)


def feed_forward(model: Transformer) -> Kernel:
    """Two products with h x 4h weights per token."""
    tokens, hidden = model.tokens, model.hidden
    values = (8 * hidden**2 + 4 * tokens * hidden) // model.tensor + 2 * tokens * hidden
    return Kernel("feed-forward", 16 * tokens * hidden**2 // model.tensor, values * model.bytes_per_value)


def embedding(model: Transformer) -> Kernel:
    """A row of weights per token, looked up and written."""
    values = 2 * model.tokens * model.hidden // model.tensor
    return Kernel("embedding", values, values * model.bytes_per_value)


def head(model: Transformer) -> Kernel:
    """The product of every token with the vocabulary."""
    values = model.vocabulary_parameters + model.tokens * (model.hidden + model.vocabulary // model.tensor)
    operations = 2 * model.tokens * model.vocabulary_parameters
    return Kernel("head", operations, values * model.bytes_per_value)


def make_transformer(model: Transformer) -> Workload:
    """The step for all ranks: one trace per stage, and one for several if nothing tells them apart."""
    import numpy as np

    from et_sim.trace.group_rule import GroupRule
    from et_sim.trace.workload import Workload

    number_of: dict[tuple[bool, bool, int], int] = {}
    templates: list[Trace] = []
    of_stage = []
    for stage in range(model.pipeline):
        is_first, is_last = stage == 0, stage == model.pipeline - 1
        warm_up = min(model.pipeline - 1 - stage, model.micro_batches)
        number = number_of.setdefault((is_first, is_last, warm_up), len(templates))
        if number == len(templates):
            templates.append(_Stage(model, is_first, is_last, warm_up).trace())
        of_stage.append(number)
    rules = {
        TENSOR_GROUP: GroupRule(model.tensor, 1),
        DATA_GROUP: GroupRule(model.data, model.tensor),
    }
    return Workload(
        tuple(templates),
        np.repeat(np.array(of_stage, np.int32), model.tensor * model.data),
        "<transformer>",
        relative_peers=(True,) * len(templates),
        group_rules={name: rule for name, rule in rules.items() if rule.count > 1},
        profile=PROFILE,
    )


def schedule(warm_up: int, micro_batches: int) -> Iterator[tuple[str, int]]:
    """One forward, one backward: ("forward" or "backward", micro-batch) in the order of a stage.

    The stage begins with `warm_up` forward passes; then each further one is followed by a backward pass.
    """
    for number in range(warm_up):
        yield "forward", number
    for number in range(micro_batches):
        if number + warm_up < micro_batches:
            yield "forward", number + warm_up
        yield "backward", number


@dataclass(slots=True)
class _Stage:
    """Builds the trace of one stage.

    Ids ascend in the order of the schedule, and whatever moves data becomes ready in that order on every
    rank of the stage: no two ranks can start their collectives in different orders, whatever things last.
    """

    model: Transformer
    is_first: bool
    is_last: bool
    warm_up: int
    build: TraceBuilder = field(init=False)
    last: list[int] = field(default_factory=list)  # the end of what the schedule had last
    outputs: dict[int, list[int]] = field(default_factory=dict)  # micro-batch -> end of its forward pass
    gradients: list[int] = field(default_factory=list)

    def trace(self) -> Trace:
        """The whole step: all micro-batches, reduction of gradients, update of weights."""
        from et_sim.trace.builder import TraceBuilder

        self.build = TraceBuilder(version="et-sim transformer", source="<transformer>")
        for direction, number in schedule(self.warm_up, self.model.micro_batches):
            if direction == "forward":
                self._forward(number)
            else:
                self._backward(number)
        self._optimizer()
        return self.build.build()

    def _forward(self, number: int) -> None:
        what = f"forward {number}"
        at = self._receive(what, -self._distance, 2 * number) if not self.is_first else []
        if self.is_first:
            at = self._compute(what, embedding(self.model), at)
        for layer in range(self.model.layers_per_stage):
            for kernel in (attention(self.model), feed_forward(self.model)):
                at = self._reduced(f"{what} layer {layer}", kernel, at)
        if self.is_last:
            at = self._compute(what, head(self.model), at)
        else:
            self._send(what, self._distance, 2 * number, at)
        self.outputs[number] = self.last = at

    def _backward(self, number: int) -> None:
        what = f"backward {number}"
        at = self.outputs.pop(number)
        if not self.is_last:
            at = [*at, *self._receive(what, self._distance, 2 * number + 1)]
        else:
            at = self._compute(what, head(self.model), at, passes=2)
            self._gradient("head", self.model.vocabulary_parameters, number, at)
        for layer in reversed(range(self.model.layers_per_stage)):
            at = self._reduced(f"{what} layer {layer}", feed_forward(self.model), at, passes=2)
            at = self._reduced(f"{what} layer {layer}", attention(self.model), at, passes=2)
            self._gradient(f"layer {layer}", self.model.layer_parameters, number, at)
        if self.is_first:
            at = self._compute(what, embedding(self.model), at, passes=2)
            self._gradient("embedding", self.model.vocabulary_parameters, number, at)
        else:
            self._send(what, -self._distance, 2 * number + 1, at)
        self.last = at

    @property
    def _distance(self) -> int:
        return self.model.tensor * self.model.data

    def _compute(self, what: str, kernel: Kernel, after: list[int], passes: int = 1) -> list[int]:
        operations = kernel.operations * passes
        node = self.build.compute(
            f"{what} {kernel.name}",
            micros=max(round(operations / (self.model.tflops * 1e6)), 1),
            num_ops=operations,
            tensor_bytes=kernel.bytes * passes,
            after=after,
            ctrl_after=[node for node in self.last if node not in after],
        )
        self.last = []  # the rest of this pass comes after this node anyway
        return [node]

    def _reduced(self, what: str, kernel: Kernel, after: list[int], passes: int = 1) -> list[int]:
        """A computation of which every rank of the tensor group has a part of the sum."""
        computed = self._compute(what, kernel, after, passes)
        if self.model.tensor == 1:
            return computed
        name = f"{what} {kernel.name} all-reduce"
        size = self.model.activation_bytes
        return [self.build.collective("all_reduce", size, TENSOR_GROUP, name=name, after=computed)]

    def _receive(self, what: str, distance: int, tag: int) -> list[int]:
        size, name = self.model.activation_bytes, f"{what} receive"
        after, self.last = self.last, []
        return [self.build.receive(distance, size, tag, name=name, ctrl_after=after)]

    def _send(self, what: str, distance: int, tag: int, after: list[int]) -> None:
        self.build.send(distance, self.model.activation_bytes, tag, name=f"{what} send", after=after)

    def _gradient(self, name: str, parameters: int, number: int, after: list[int]) -> None:
        """The last micro-batch completes the sum; layers below compute while it is reduced."""
        if number != self.model.micro_batches - 1:
            return
        if self.model.data == 1:
            self.gradients += after
            return
        size = parameters * self.model.bytes_per_value
        self.gradients.append(
            self.build.collective("all_reduce", size, DATA_GROUP, name=f"{name} gradient", after=after)
        )

    def _optimizer(self) -> None:
        parameters = self.model.layers_per_stage * self.model.layer_parameters
        parameters += self.model.vocabulary_parameters * (self.is_first + self.is_last)
        size = parameters * _BYTES_PER_PARAMETER_IN_OPTIMIZER
        kernel = Kernel("optimizer", 10 * parameters, size)
        self._compute("step", kernel, sorted({*self.gradients, *self.last}))
