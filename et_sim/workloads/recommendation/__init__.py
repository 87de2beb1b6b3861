"""A DLRM, and one step of training it: tables are spread over the ranks, networks are replicas.

There is a bottom network for dense features, tables for sparse ones, their products, and a top network. The
number of rows of a table has no effect: a step reads and writes the rows that its samples name. Vectors of
the tables arrive by all-to-all while the bottom network computes, and their gradients return during its
backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec

from et_sim.basics.errors import UsageError
from et_sim.trace import shapes
from et_sim.trace.workload import Workload
from et_sim.workloads.kernels import Kernel, product
from et_sim.workloads.models import converted, read_preset
from et_sim.workloads.pipeline import Direction, Pass, pass_label
from et_sim.workloads.rank import Rank, make_workload
from et_sim.workloads.training.chain import ChainLayer, dense_layer, run_backward, run_forward
from et_sim.workloads.training.plan import DATA, Plan
from et_sim.workloads.training.replicas import Replicas
from et_sim.workloads.training.work import RankWork

PRESETS = Path(__file__).parent / "presets"
USUAL = "hoti-2020"
Size = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Widths = Annotated[tuple[Size, ...], msgspec.Meta(min_length=1)]


class Dlrm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dimensions; widths are those of a network's layers, in their order."""

    source: str
    tables: Size
    dimension: Size  # of a row
    pooling: Size  # rows of each table that a sample names and sums
    dense_features: Size
    bottom: Widths  # hidden layers, without the last one, of width `dimension`
    top: Widths  # hidden layers, without the last one, of one value
    batch: Size  # samples of a rank

    @property
    def interactions(self) -> int:
        """Return the inputs of the top network: products of pairs of vectors, and outputs of the bottom."""
        return (self.tables + 1) * self.tables // 2 + self.dimension

    @property
    def dense_weights(self) -> int:
        """Return the weights of both networks."""
        widths = [self.bottom_widths, self.top_widths]
        return sum(a * b + b for chain in widths for a, b in pairwise(chain))

    @property
    def bottom_widths(self) -> tuple[int, ...]:
        """Return the widths of the bottom network, from the features to the length of a table's row."""
        return (self.dense_features, *self.bottom, self.dimension)

    @property
    def top_widths(self) -> tuple[int, ...]:
        """Return the widths of the top network, from the products to the prediction."""
        return (self.interactions, *self.top, 1)


def read_dlrm(name: str) -> tuple[str, Dlrm]:
    """Return a preset by its name, or the model that a file describes."""
    return read_preset(PRESETS, name, Dlrm)


def changed(model: Dlrm, changes: Mapping[str, Any]) -> Dlrm:
    """Return the same model with some other dimensions."""
    return converted({**msgspec.to_builtins(model), **changes}, "options", Dlrm)


def mlp(name: str, widths: tuple[int, ...], plan: Plan, *, needs_inputs: bool) -> list[ChainLayer]:
    """Return dense layers; all but the last have an activation."""
    last = len(widths) - 2
    return [
        dense_layer(
            f"{name} {number}",
            plan,
            inputs,
            outputs,
            is_activated=number < last,
            needs_inputs=needs_inputs or number > 0,
        )
        for number, (inputs, outputs) in enumerate(pairwise(widths))
    ]


def interaction(model: Dlrm, plan: Plan, *, is_backward: bool) -> Kernel:
    """Return the products of all vectors of a sample with each other; backward there are two for each."""
    vectors, factor = model.tables + 1, 2 if is_backward else 1
    columns, inner = (model.dimension, vectors) if is_backward else (vectors, model.dimension)
    return product("interaction", vectors, columns, inner, plan.value_bytes, copies=factor * plan.batch)


def lookup(model: Dlrm, plan: Plan, *, is_update: bool) -> Kernel:
    """Return the kernel that reads a rank's tables for the samples of all ranks.

    Its bytes equal those of all tables for the rank's own samples. An update reads and writes the same rows.
    """
    vectors, factor = plan.batch * model.tables, 2 if is_update else 1
    values = vectors * model.dimension
    return Kernel(
        "embedding update" if is_update else "embedding lookup",
        values * model.pooling * factor,
        values * (1 + model.pooling * factor) * plan.value_bytes,
        shapes.embedding(vectors * model.pooling, model.dimension),
    )


TABLE_STREAM = "tables"


def make_dlrm_training(model: Dlrm, plan: Plan, name: str = "dlrm") -> Workload:
    """Return the workload of one step."""
    ranks, tables = plan.data, model.tables
    if tables % ranks and (ranks % tables or model.dimension % (ranks // tables)):
        raise UsageError(
            f"{tables} tables of dimension {model.dimension} cannot be spread evenly over {ranks} ranks",
            remedy=f"choose a divisor of {tables}, or {tables} times a divisor of {model.dimension}",
        )
    bottom = mlp("bottom", model.bottom_widths, plan, needs_inputs=False)
    top = mlp("top", model.top_widths, plan, needs_inputs=True)
    size = plan.batch * model.tables * model.dimension * plan.value_bytes
    left_bytes = size + plan.batch * model.interactions * plan.value_bytes  # vectors, and their products

    def step(rank: Rank) -> None:
        work = RankWork(rank, plan)
        replicas = Replicas(work)
        for number in range(plan.micro_batches):
            is_last = number == plan.micro_batches - 1
            work.during = pass_label(Pass(Direction.FORWARD, number), 1)
            vectors_read = work.compute(lookup(model, plan, is_update=False))
            vectors = _exchange(work, size, "vectors all-to-all", vectors_read)
            run_forward(work, bottom, number)
            work.at += tuple(node for node in vectors if node not in work.at)
            work.then(interaction(model, plan, is_backward=False))
            left = {f"activations:interaction, micro-batch {number}": left_bytes}
            work.begin(len(work.kernels) - 1, writes=left)
            run_forward(work, top, number)
            work.during = pass_label(Pass(Direction.BACKWARD, number), 1)
            run_backward(work, replicas, top, number, is_last=is_last)
            work.then(interaction(model, plan, is_backward=True))
            work.end(left)
            gradients = _exchange(work, size, "gradients all-to-all", work.at)
            run_backward(work, replicas, bottom, number, is_last=is_last)
            replicas.flush()
            work.at = work.compute(lookup(model, plan, is_update=True), gradients)
        replicas.update()

    return make_workload(plan.axes, step, source=f"<{name}>")


def _exchange(work: RankWork, size: int, name: str, after: tuple[int, ...]) -> tuple[int, ...]:
    return work.rank.collective(
        "all_to_all", size, DATA, name=work.name(name), after=after, stream=TABLE_STREAM
    )
