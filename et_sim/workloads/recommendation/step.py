"""One step of training a DLRM: tables are spread over the ranks, networks are replicas.

Vectors of the tables come by all-to-all while the bottom network computes, and their gradients go back while
it computes those of its weights.
"""

from __future__ import annotations

from et_sim.basics.errors import UsageError
from et_sim.trace.workload import Workload
from et_sim.workloads.job import make_workload
from et_sim.workloads.pipeline import Direction, Pass, pass_label
from et_sim.workloads.rank import Rank
from et_sim.workloads.recommendation.model import Dlrm, interaction, lookup, mlp
from et_sim.workloads.training.chain import run_backward, run_forward
from et_sim.workloads.training.plan import DATA, Plan
from et_sim.workloads.training.replicas import Replicas
from et_sim.workloads.training.work import Work

TABLE_STREAM = "tables"


def make_dlrm_training(model: Dlrm, plan: Plan, name: str = "dlrm") -> Workload:
    """The workload of one step."""
    _check(model, plan)
    bottom = mlp("bottom", model.bottom_widths, plan, needs_inputs=False)
    top = mlp("top", model.top_widths, plan, needs_inputs=True)
    size = plan.batch * model.tables * model.dimension * plan.value_bytes
    left_bytes = size + plan.batch * model.interactions * plan.value_bytes  # vectors, and their products

    def step(rank: Rank) -> None:
        work = Work(rank, plan)
        replicas = Replicas(work)
        for number in range(plan.micro_batches):
            is_last = number == plan.micro_batches - 1
            work.during = pass_label(Pass(Direction.FORWARD, number), 1)
            found = work.compute(lookup(model, plan, is_update=False))
            vectors = _exchange(work, size, "vectors all-to-all", found)
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


def _exchange(work: Work, size: int, name: str, after: tuple[int, ...]) -> tuple[int, ...]:
    return work.rank.collective(
        "all_to_all", size, DATA, name=work.name(name), after=after, stream=TABLE_STREAM
    )


def _check(model: Dlrm, plan: Plan) -> None:
    """Tables are whole, or cut into equal columns, so that ranks have equal shares."""
    ranks, tables = plan.data, model.tables
    if tables % ranks and (ranks % tables or model.dimension % (ranks // tables)):
        raise UsageError(
            f"{tables} tables of dimension {model.dimension} cannot be spread evenly over {ranks} ranks",
            remedy=f"choose a divisor of {tables}, or {tables} times a divisor of {model.dimension}",
        )
