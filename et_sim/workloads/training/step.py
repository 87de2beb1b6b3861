"""One step of training a transformer: what every rank does, from the first micro-batch to the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from et_sim.trace.workload import Workload
from et_sim.workloads.job import make_workload
from et_sim.workloads.models.model import Model
from et_sim.workloads.pipeline import Direction, Pass, Shape, pass_label, schedule
from et_sim.workloads.rank import MAIN, Rank
from et_sim.workloads.recording import Nodes
from et_sim.workloads.training.checks import check
from et_sim.workloads.training.layers import Layers
from et_sim.workloads.training.parts import Enter, Part
from et_sim.workloads.training.plan import CONTEXT, DATA, PIPELINE, Plan
from et_sim.workloads.training.plan import Part as Piece
from et_sim.workloads.training.replicas import LOSS_BYTES, Replicas, Weights
from et_sim.workloads.training.work import Work


def make_training(model: Model, plan: Plan) -> Workload:
    """The workload of one step."""
    check(model, plan)
    layers = Layers(model, plan)
    return make_workload(plan.axes, lambda rank: _Step(layers, rank).run(), source=f"<{model.name}>")


@dataclass(slots=True)
class _Step:
    """The step of one rank."""

    layers: Layers
    rank: Rank
    work: Work = field(init=False)
    replicas: Replicas = field(init=False)
    outputs: dict[tuple[int, int], Nodes] = field(default_factory=dict)  # micro-batch, chunk
    put_off: dict[tuple[int, int], list[Callable[[], None]]] = field(default_factory=dict)
    gathered: dict[str, Nodes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.work = Work(self.rank, self.plan)
        self.replicas = Replicas(self.work)

    @property
    def plan(self) -> Plan:
        """How the step is spread."""
        return self.layers.plan

    def run(self) -> None:
        """All passes, then the update."""
        plan = self.plan
        place = self.rank.place(PIPELINE)
        shape = Shape(plan.pipeline, plan.micro_batches, plan.chunks)
        for one in schedule(plan.schedule, shape)(place):
            piece = plan.part(self.layers.model, place, one.chunk)
            self.work.during = pass_label(one, plan.chunks)
            if one.direction is Direction.FORWARD:
                self._forward(one, piece)
            elif one.direction is Direction.WEIGHTS:
                self._weights(one)
            else:
                self._backward(one, piece)
        self._finish(place)

    def _finish(self, place: int) -> None:
        plan, model = self.plan, self.layers.model
        ends = place in (0, plan.pipeline - 1)
        if model.is_tied and not model.is_encoder and plan.pipeline > 1 and ends:
            size = self.layers.vocabulary * model.hidden * plan.gradient_bytes
            done = self.replicas.reduced or self.rank.last(MAIN)
            self.replicas.reduced += self.rank.collective_of_ends(
                "all_reduce", size, PIPELINE, name="tied embedding all-reduce", after=done, stream=None
            )
        if place == plan.pipeline - 1:
            self.rank.collective(
                "all_reduce",
                LOSS_BYTES,
                (CONTEXT, DATA),
                name="loss all-reduce",
                after=self.work.at,
                stream=None,
            )
        self.replicas.update()

    # Passes.

    def _forward(self, one: Pass, piece: Piece) -> None:
        work = self.work
        work.at = ()
        if piece.has_embedding:
            self._need(piece, self._embedding_weights, 1)
            self._through(self.layers.embedding(), "embedding")
        else:
            self._receive(one, -1)
        for layer in piece.all_layers:
            self._need(piece, self._layer_weights(layer), 1)
            self._through(self.layers.layer(layer), f"layer {layer}")
        if piece.has_head:
            self._need(piece, self._head_weights, 1)
            self._through(self.layers.head(), "")
        else:
            self._send(one, 1)
        self.outputs[one.micro_batch, one.chunk] = work.at

    def _through(self, parts: Sequence[Part], name: str) -> None:
        self.work.where = name
        for part in parts:
            part.forward(self.work)
        self.work.where = ""

    def _backward(self, one: Pass, piece: Piece) -> None:
        work = self.work
        kept = self.outputs.pop((one.micro_batch, one.chunk))
        work.at = kept
        if piece.has_head:
            self._need(piece, self._head_weights, -1)
            self._back(self.layers.head(), "", self._head_weights, one)
        else:
            self._receive(one, 1)
            work.at += kept
        for layer in reversed(piece.all_layers):
            self._need(piece, self._layer_weights(layer), -1)
            if self.plan.recompute == "full":
                self._again(layer)
            self._back(self.layers.layer(layer), f"layer {layer}", self._layer_weights(layer), one)
        if piece.has_embedding:
            self._need(piece, self._embedding_weights, -1)
            self._back(self.layers.embedding(), "embedding", self._embedding_weights, one)
        else:
            self._send(one, -1)
        self.replicas.flush()  # buckets hold gradients of one pass

    def _again(self, layer: int) -> None:
        """The forward pass of a layer, whose results were not kept, before gradients need them."""
        work, gradients = self.work, self.work.at
        work.where = f"layer {layer} again"
        for part in self.layers.layer(layer):
            part.forward(work)
        work.at = (*work.at, *(node for node in gradients if node not in work.at))
        work.where = ""

    def _back(self, parts: Sequence[Part], name: str, weights: Weights, one: Pass) -> None:
        """Backward through parts; gradients of weights come while others are exchanged, or later."""
        work = self.work
        is_split = one.direction is Direction.INPUTS
        work.where = name
        backward = list(reversed(parts))
        for part, following in zip(backward, [*backward[1:], None], strict=True):
            part.backward(work)
            if not is_split and not isinstance(following, Enter):
                work.catch_up()
        work.where = ""
        if not is_split:
            self._gradients(weights, one)
            return
        key = one.micro_batch, one.chunk
        self.put_off.setdefault(key, []).extend(work.put_off)
        self.put_off[key].append(lambda: self._gradients(weights, one))
        work.put_off = []

    def _weights(self, one: Pass) -> None:
        for work in self.put_off.pop((one.micro_batch, one.chunk), ()):  # none of a stage without layers
            work()
        self.replicas.flush()

    def _gradients(self, weights: Weights, one: Pass) -> None:
        is_last = one.micro_batch == self.plan.micro_batches - 1
        self.replicas.ready(weights, self.rank.last(MAIN), is_last=is_last)

    # Weights.

    def _layer_weights(self, layer: int) -> Weights:
        layers = self.layers
        return Weights(f"layer {layer}", layers.dense_weights(layer), layers.expert_weights(layer))

    @property
    def _embedding_weights(self) -> Weights:
        return Weights("embedding", self.layers.embedding_weights, 0)

    @property
    def _head_weights(self) -> Weights:
        return Weights("head", self.layers.head_weights, 0)

    def _units(self, piece: Piece) -> list[Weights]:
        """The weights of a piece, as they are gathered together."""
        found = [self._layer_weights(layer) for layer in piece.all_layers]
        if piece.has_embedding:
            found.insert(0, self._embedding_weights)
        if piece.has_head:
            found.append(self._head_weights)
        return found

    def _need(self, piece: Piece, weights: Weights, way: int) -> None:
        """Where weights are shared: gather these, and the next ones of the pass."""
        if self.plan.zero < 3:
            return
        order = self._units(piece)[::way]
        at = order.index(weights)
        if at == 0:
            self.gathered = {}
        for ahead in order[at : at + 1 + self.plan.prefetch]:
            if ahead.name not in self.gathered:
                self.gathered[ahead.name] = self.replicas.gather(ahead, self.rank.last(MAIN))
        found = self.gathered[weights.name]
        self.work.at += tuple(node for node in found if node not in self.work.at)

    # Between stages.

    def _size(self) -> int:
        plan = self.plan
        return self.layers.activation_bytes // (plan.tensor if plan.sequence_parallel else 1)

    def _tag(self, one: Pass, piece: int, *, is_backward: bool) -> int:
        """One for each micro-batch, piece that receives, and direction."""
        return 2 * (one.micro_batch * self.plan.parts + piece) + is_backward

    def _piece(self, one: Pass) -> int:
        """Which piece of the model a pass goes through."""
        return one.chunk * self.plan.pipeline + self.rank.place(PIPELINE)

    def _receive(self, one: Pass, way: int) -> None:
        """From the piece so many ahead."""
        source = self.rank.next(PIPELINE, way, wraps=True)
        tag = self._tag(one, self._piece(one), is_backward=way > 0)
        self.work.at = self.rank.receive(source, self._size(), tag, name=self.work.name("receive"))

    def _send(self, one: Pass, way: int) -> None:
        target = self.rank.next(PIPELINE, way, wraps=True)
        tag = self._tag(one, self._piece(one) + way, is_backward=way < 0)
        self.rank.send(target, self._size(), tag, name=self.work.name("send"), after=self.work.at)
