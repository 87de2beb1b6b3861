"""One step of training a transformer on every rank, from the first micro-batch to the optimizer.

The plan is checked against the model first: quantities that ranks share must divide evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest

from msgspec.structs import replace

from et_sim.basics.errors import FieldError
from et_sim.basics.units import plural
from et_sim.trace.workload import MadeFor, Workload
from et_sim.workloads.models.model import Model
from et_sim.workloads.pipeline import Direction, Pass, pass_label, schedule
from et_sim.workloads.rank import MAIN, Program, Rank, make_workload
from et_sim.workloads.recording import MOST_NODES, Nodes
from et_sim.workloads.training.again import check_modules
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.operations import step_of
from et_sim.workloads.training.parts import Enter, ModelPart, ToExperts
from et_sim.workloads.training.plan import CONTEXT, DATA, PIPELINE, TENSOR, Piece, Plan
from et_sim.workloads.training.plan_options import ALL_GATHER, ALL_TO_ALL, RING, ZIGZAG
from et_sim.workloads.training.replicas import LOSS_BYTES, Replicas
from et_sim.workloads.training.uneven import UnevenSteps
from et_sim.workloads.training.units import Unit, units_of
from et_sim.workloads.training.work import FIRST_RING_TAG, NOTHING, RankWork

SECOND_RING_TAG = 2 * FIRST_RING_TAG

OFFLOAD_STREAM = "offload"


CAST_IN_TRAINING = ("fp8", "fp4")
OF_INFERENCE = (
    *("expert_products", "redundant_experts", "cache_type", "computes", "adapters", "experts_apart"),
    "attention_parts",
)


def _check_numbers(plan: Plan) -> None:
    """Refuse numbers that only inference has."""
    if plan.cast_to and plan.cast_to not in CAST_IN_TRAINING:
        raise FieldError(
            f"`products` is {plan.products}, which is for inference",
            remedy=f"give {' or '.join(CAST_IN_TRAINING)}, or leave it out",
        )
    for name in OF_INFERENCE:
        if getattr(plan, name):
            raise FieldError(f"`{name}` is for inference", remedy=f"leave `{name}` out")


def check_plan(model: Model, plan: Plan) -> None:
    """Refuse a plan that does not fit the model."""
    plan.check_values()
    _check_numbers(plan)
    if model.attention.index is not None:
        raise FieldError(
            f"{model.name} has attention to chosen tokens, which is simulated in inference only",
            remedy="choose another model",
        )
    plan.check_stages(model)
    _check_length(model, plan)
    attention, experts = model.attention, model.experts
    sequence = model.sequence
    for quantity, total, share, by in (
        ("heads", attention.heads, plan.tensor, "tensor-parallel ranks"),
        (
            "the width of the feed-forward part",
            model.feed_forward.width,
            plan.tensor,
            "tensor-parallel ranks",
        ),
        ("tokens of a sequence", sequence, plan.context, "context-parallel ranks"),
        ("experts", experts.count if experts else plan.expert, plan.expert, "expert-parallel ranks"),
    ):
        _check_share(quantity, total, share, by)
    if plan.sequence_parallel:
        tokens = plan.batch * sequence // plan.context
        _check_share("tokens of a micro-batch", tokens, plan.tensor, "tensor-parallel ranks")
        _check_share("tokens of a rank", tokens // plan.tensor, plan.tensor_overlap, "chunks")
    _check_context(model, plan)
    check_modules(model, plan.computed_again)
    if plan.expert_skew and experts is None:
        raise FieldError(f"{model.name} has no experts", remedy="leave `expert_skew` out")
    if plan.spreads_experts and experts is None:
        raise FieldError(f"{model.name} has no experts", remedy="leave `expert` and `expert_tensor` out")
    for name in ("capacity_factor", "overlap_experts") if experts is None else ():
        if getattr(plan, name):
            raise FieldError(f"{model.name} has no experts", remedy=f"leave `{name}` out")
    if plan.mtp_layers and model.is_encoder:
        raise FieldError(f"{model.name} does not predict tokens", remedy="leave `mtp_layers` out")
    if experts is not None and plan.tensor > 1 and not plan.sequence_parallel:
        raise FieldError(
            "experts with tensor parallelism require `sequence_parallel`, so that no two ranks have a token",
            remedy="add `sequence_parallel`",
        )
    if experts is not None:
        width = experts.expert.width
        _check_share("the width of an expert", width, plan.expert_tensor, "ranks that share every expert")
        ModelLayers(model, plan).routed(experts)  # refuses loads for too few experts


def _check_context(model: Model, plan: Plan) -> None:
    """Refuse attention that the ranks of a context axis cannot share."""
    if plan.document_tokens:
        _check_share("tokens of a sequence", model.sequence, plan.document_tokens, "tokens of a document")
    if model.recurrence is not None:
        _check_share("heads of states", model.recurrence.heads, plan.tensor, "tensor-parallel ranks")
    if plan.context == 1:
        return
    if model.recurrence is not None:
        raise FieldError(
            f"{model.name} has recurrent layers, which context parallelism does not support: a rank lacks the"
            " state of the tokens before its own",
            remedy="leave `context` out",
        )
    window = max((model.window(layer) for layer in range(model.layers)), default=0) if model.windows else 0
    if plan.context_attention == RING and 0 < window < model.sequence:
        raise FieldError(
            f"{model.name} has layers that see {window} tokens only, which `context_attention` {RING} does"
            " not support",
            remedy=f"choose `context_attention` {ALL_GATHER} or {ALL_TO_ALL}",
        )
    if plan.context_attention == ALL_TO_ALL:
        heads = model.attention.heads // plan.tensor
        _check_share("heads of a tensor-parallel rank", heads, plan.context, "context-parallel ranks")
        return
    pieces, of = plan.context, "context-parallel ranks"
    if plan.context_balance == ZIGZAG and plan.causal and not model.is_encoder:
        pieces, of = 2 * plan.context, "pieces of a zigzag"
    if plan.document_tokens and plan.context_attention == RING:  # each document is cut
        _check_share("tokens of a document", plan.document_tokens, pieces, of)
    _check_share("tokens of a sequence", model.sequence, pieces, of)


def _check_share(quantity: str, total: int, share: int, by: str) -> None:
    if total % share:
        near = max(total // share, 1) * share
        raise FieldError(
            f"{quantity}: {total} is not a multiple of {share}, the number of {by}",
            remedy=f"choose a number of {by} that divides {total}, or change {quantity} to {near}",
        )


def _check_length(model: Model, plan: Plan) -> None:
    """Refuse a plan with too many nodes before any is made: a layer has at least a node in each direction."""
    layers, stages = plan.layers_of_parts(model), plan.pipeline
    most = max(sum(layers[place::stages]) for place in range(min(stages, len(layers))))
    nodes = 2 * plan.micro_batches * (most + plan.held)
    if nodes > MOST_NODES:
        raise FieldError(
            f"{plural(plan.micro_batches, 'micro-batch', 'micro-batches')} of {plural(most, 'layer')}"
            f" are more than {MOST_NODES:,} nodes on a rank",
            remedy="use fewer layers or micro-batches",
        )


def make_training(model: Model, plan: Plan) -> Workload:
    """Return the workload of one step."""
    workload = make_workload(plan.axes, training_program(model, plan), source=f"<{model.name}>")
    return replace(workload, step=step_of(model, plan, workload), software=made_for(plan))


def made_for(plan: Plan) -> MadeFor:
    """Return the figures of a plan's software that runs use."""
    by = plan.by
    host = by.host
    figures = (host.each_ns, host.step_ns, by.processors, by.kernels)
    return MadeFor(by.name, by.about, *figures, is_assumed=not plan.software, host_waits=host.waits)


def training_program(model: Model, plan: Plan) -> Program:
    """Return the program of each rank in the step."""
    check_plan(model, plan)
    layers = ModelLayers(model, plan)
    if plan.expert_skew and plan.expert > 1:
        return UnevenSteps(layers, _run_step)
    return lambda rank: _run_step(layers, rank)


def _run_step(layers: ModelLayers, rank: Rank) -> dict[int, tuple[Unit, ...]]:
    """Record the step of a rank, and return the units of its chunks."""
    step = _Step(layers, rank)
    step.run()
    return step.units


class _Step:
    """The step of one rank."""

    def __init__(self, layers: ModelLayers, rank: Rank) -> None:
        self.layers = layers
        self.rank = rank
        self.work = RankWork(rank, layers.plan)
        # for a forward pass that runs beside another pass
        self.ahead = RankWork(rank, layers.plan, cast=self.work.cast, _tag=SECOND_RING_TAG)
        self.replicas = Replicas(self.work)
        self.outputs: dict[tuple[int, int], Nodes] = {}  # micro-batch, chunk
        self.put_off: dict[tuple[int, int], list[Callable[[], None]]] = {}
        self.gathered: dict[str, Nodes] = {}
        self.kept: frozenset[str] = frozenset()  # gathered weights that stay from the previous pass
        self.sent: Nodes = ()  # sends that the next pass waits for
        self.begun: Nodes = ()  # nodes after which this pass began
        self.begun_before: Nodes = ()  # nodes after which the previous pass began
        self.units: dict[int, tuple[Unit, ...]] = {}  # by chunk

    @property
    def plan(self) -> Plan:
        """Return the plan of the step."""
        return self.layers.plan

    def run(self) -> None:
        """Run all passes, then the update."""
        plan = self.plan
        place = self.rank.place(PIPELINE)
        beside: Iterator[None] = iter(())
        for pass_ in schedule(plan.schedule, plan.shape)(place):
            work = self.ahead if pass_.is_paired else self.work
            work.during = pass_label(pass_, plan.held)
            steps = self._steps(work, pass_, plan.part(self.layers.model, place, pass_.chunk))
            if pass_.is_paired:
                beside = steps
                continue
            for _ in zip_longest(beside, steps):  # in turn, from one exchange of experts to the next
                pass
            beside = iter(())
        self._finish(place)

    def _steps(self, work: RankWork, pass_: Pass, piece: Piece) -> Iterator[None]:
        """Record a pass, and pause at each exchange with experts."""
        if pass_.direction is Direction.FORWARD:
            yield from self._forward(work, pass_, piece)
        elif pass_.direction is Direction.WEIGHTS:
            self._weights(pass_)
        else:
            yield from self._backward(work, pass_, piece)

    def _finish(self, place: int) -> None:
        plan, model = self.plan, self.layers.model
        are_apart = place in (0, plan.pipeline - 1) and plan.pipeline > 1 and not plan.is_dual
        are_trained = are_apart and not plan.lora_rank
        if ((model.is_tied and not model.is_encoder) or plan.mtp_layers) and are_trained:
            size = self.layers.vocabulary * model.hidden * plan.gradient_bytes
            done = self.replicas.reduced or self.rank.last(MAIN)
            self.replicas.reduced += self.rank.collective_of_ends(
                "all_reduce", size, PIPELINE, name="tied embedding all-reduce", after=done, stream=None
            )
        if place == plan.pipeline - 1 or (plan.is_dual and place == 0):
            # one communicator with the reductions: late ranks must not begin the two in another order
            done = tuple(dict.fromkeys((*self.work.at, *self.replicas.reduced)))
            self.rank.collective(
                "all_reduce",
                LOSS_BYTES,
                (CONTEXT, DATA),
                name="loss all-reduce",
                after=done,
                stream=None,
            )
        self.replicas.update()

    # Passes.

    def _forward(self, work: RankWork, pass_: Pass, piece: Piece) -> Iterator[None]:
        self._begin(work)
        if not piece.has_embedding:
            self._receive(work, pass_, -1)
        units = self._units(pass_, piece)
        for unit in units:
            self._need(units, unit)
            since = len(work.kernels)
            yield from self._through(work, unit.parts, unit.label)
            reads = self.replicas.states.weights(unit.weights)
            work.begin(since, reads=reads, writes=unit.left(pass_.micro_batch))
            work.end(*self.replicas.states.gathered(unit.weights))
            if unit.is_offloaded:
                self._store(work, unit, pass_)
        if not piece.has_head:
            self._send(work, pass_, 1)
        self.outputs[pass_.micro_batch, pass_.chunk] = work.at

    def _begin(self, work: RankWork) -> None:
        work.at, self.sent = self.sent, ()
        self.begun_before, self.begun = self.begun, self.rank.last()

    def _through(self, work: RankWork, parts: Sequence[ModelPart], name: str) -> Iterator[None]:
        work.where = name
        for part in parts:
            part.forward(work)
            if isinstance(part, ToExperts):
                yield
        work.where = ""

    def _backward(self, work: RankWork, pass_: Pass, piece: Piece) -> Iterator[None]:
        kept = self.outputs.pop((pass_.micro_batch, pass_.chunk))
        self._begin(work)
        if not piece.has_head:
            self._receive(work, pass_, 1)
        work.at += kept
        units = self._units(pass_, piece)[::-1]
        loaded: Nodes = ()
        for number, unit in enumerate(units, start=1):
            self._need(units, unit, kept=self.plan.by.shares.kept_units)
            work.at += loaded
            ahead = units[number : number + 1]
            loaded = self._load(work, ahead[0], pass_) if ahead and ahead[0].is_offloaded else ()
            since = len(work.kernels)
            if unit.parts_again:
                yield from self._again(work, (*unit.before, unit))
            yield from self._back(work, unit, pass_)
            work.begin(since, writes=unit.worked_out(pass_.micro_batch))
        if not piece.has_embedding:
            self._send(work, pass_, -1)
        self.replicas.flush()  # buckets hold gradients of one pass

    def _again(self, work: RankWork, units: Sequence[Unit]) -> Iterator[None]:
        """Recompute parts of units before gradients need their outputs."""
        gradients = work.at
        for unit in units:
            yield from self._through(work, unit.parts_again, f"{unit.label} again")
        work.at = (*work.at, *(node for node in gradients if node not in work.at))

    def _back(self, work: RankWork, unit: Unit, pass_: Pass) -> Iterator[None]:
        """Run parts backward; gradients of weights are computed during exchanges, or later."""
        since = len(work.kernels)
        is_split = work.has_weights_pass = pass_.direction is Direction.INPUTS
        work.where = unit.label
        backward = unit.parts[::-1]
        for part, following in zip(backward, [*backward[1:], None], strict=True):
            part.backward(work)
            if not is_split and not isinstance(following, Enter):
                work.catch_up()
            if isinstance(part, ToExperts):
                yield
        work.where = ""
        again = NOTHING if unit.is_repeated else unit.again(pass_.micro_batch)
        work.end(*self.replicas.states.gathered(unit.weights), again)
        if not is_split:
            self._gradients(unit, pass_, since)
            return
        put_off, work.put_off = work.put_off, []
        later = partial(self._gradients_later, unit, pass_, put_off)
        self.put_off.setdefault((pass_.micro_batch, pass_.chunk), []).append(later)

    def _weights(self, pass_: Pass) -> None:
        for work in self.put_off.pop((pass_.micro_batch, pass_.chunk), ()):  # a stage may have no layers
            work()
        self.replicas.flush()

    def _gradients_later(self, unit: Unit, pass_: Pass, put_off: Sequence[Callable[[], None]]) -> None:
        since = len(self.work.kernels)
        for work in put_off:
            work()
        self._gradients(unit, pass_, since)

    def _gradients(self, unit: Unit, pass_: Pass, since: int) -> None:
        """Pass on gradients of a unit's weights, made by kernels since a node, and free their inputs."""
        self.work.end(
            unit.needed(pass_.micro_batch), unit.again(pass_.micro_batch) if unit.is_repeated else NOTHING
        )
        work, numbers = self.work, self.plan.micro_batches_of(pass_.chunk)
        work.where, before = unit.label, work.where
        is_first, is_last = pass_.micro_batch == numbers[0], pass_.micro_batch == numbers[-1]
        self.replicas.ready(unit.weights, since, is_first=is_first, is_last=is_last)
        work.where = before

    # Remote memory.

    def _store(self, work: RankWork, unit: Unit, pass_: Pass) -> None:
        """Store kept activations of a unit while the next one computes."""
        name = f"{work.during} {unit.label} activations store"
        stored = self.rank.store(unit.left_bytes, name=name, after=work.at, stream=OFFLOAD_STREAM)
        work.name_tensors(stored, unit.left(pass_.micro_batch), NOTHING)

    def _load(self, work: RankWork, unit: Unit, pass_: Pass) -> Nodes:
        """Load activations of a unit for its backward pass while the unit after it computes."""
        name = f"{work.during} {unit.label} activations load"
        loaded = self.rank.load(unit.left_bytes, name=name, after=work.at, stream=OFFLOAD_STREAM)
        work.name_tensors(loaded, NOTHING, unit.needed(pass_.micro_batch))
        return loaded

    # Weights.

    def _units(self, pass_: Pass, piece: Piece) -> tuple[Unit, ...]:
        """Return the units of the piece that a pass runs."""
        if pass_.chunk not in self.units:
            self.units[pass_.chunk] = units_of(self.layers, piece)
        return self.units[pass_.chunk]

    def _need(self, order: Sequence[Unit], unit: Unit, kept: int = 0) -> None:
        """Gather the sharded weights of a unit, and of the next ones of the pass.

        The first `kept` units still have their weights if the previous pass ran them.
        """
        if self.plan.zero < 3:
            self._need_updated(order, unit)
            return
        at = order.index(unit)
        if at == 0:
            names = {first.weights.name for first in order[:kept]}
            self.gathered = {name: nodes for name, nodes in self.gathered.items() if name in names}
            self.kept = frozenset(self.gathered)
        for ahead in order[at : at + 1 + self.plan.prefetch]:
            name = ahead.weights.name
            if name not in self.gathered:
                self.gathered[name] = self.replicas.gather(ahead.weights, self.rank.last(MAIN))
        gathered = self.gathered[unit.weights.name]
        self.work.at += tuple(node for node in gathered if node not in self.work.at)
        if unit.weights.name not in self.kept:
            self.work.where = unit.label
            self.replicas.split(unit.weights)
            self.work.where = ""

    def _need_updated(self, order: Sequence[Unit], unit: Unit) -> None:
        """Gather all weights of a piece in its first pass if the previous step updated shards."""
        if self.plan.zero == 0 or not self.plan.by.shares.updated_ahead:
            return
        for other in order:
            if other.weights.name not in self.gathered:
                self.gathered[other.weights.name] = self.replicas.gather(other.weights, ())
        gathered = self.gathered[unit.weights.name]
        self.work.at += tuple(node for node in gathered if node not in self.work.at)

    # Between stages.

    def _size(self) -> int:
        plan = self.plan
        shares = plan.tensor if plan.sequence_parallel or plan.scatter_gather else 1
        return -(-self.layers.activation_bytes // shares)

    def _tag(self, pass_: Pass, piece: int, *, is_backward: bool) -> int:
        """Return the tag of a micro-batch, receiving piece and direction."""
        return 2 * (pass_.micro_batch * self.plan.parts + piece) + is_backward

    def _piece(self, pass_: Pass) -> int:
        """Return the piece of the model that a pass runs."""
        return self.plan.piece(self.rank.place(PIPELINE), pass_.chunk)

    def _neighbour(self, pass_: Pass, way: int) -> int:
        """Return the rank with the piece `way` places ahead, as a distance."""
        turns_back = self.plan.is_dual and pass_.chunk == 1
        return self.rank.next(PIPELINE, -way if turns_back else way, wraps=True)

    def _receive(self, work: RankWork, pass_: Pass, way: int) -> None:
        """Receive from the piece `way` places ahead.

        Stages that overlap post a receive when the previous pass begins; others post it with their last send.
        Interleaved stages post it at once, so that no send waits for a receive.
        """
        before, source = work.at, self._neighbour(pass_, way)
        tag = self._tag(pass_, self._piece(pass_), is_backward=way > 0)
        after = self.rank.last() if self.plan.held == 1 else ()
        if self.plan.overlap_pipeline:
            after = self.begun_before
        work.at = self.rank.receive(source, self._size(), tag, name=work.name("receive"), after=after)
        if self.plan.scatter_gather:
            work.exchange("all_gather", self._size(), TENSOR, "received all-gather")
        work.at += before

    def _send(self, work: RankWork, pass_: Pass, way: int) -> None:
        target = self._neighbour(pass_, way)
        tag = self._tag(pass_, self._piece(pass_) + way, is_backward=way < 0)
        sent = self.rank.send(target, self._size(), tag, name=work.name("send"), after=work.at)
        self.sent = () if self.plan.overlap_pipeline else sent
