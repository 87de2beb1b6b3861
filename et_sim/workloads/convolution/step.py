"""One step of training a convolutional network: replicas, each with images of its own."""

from __future__ import annotations

from et_sim.trace.workload import Workload
from et_sim.workloads.convolution.network import Network, layers_of
from et_sim.workloads.job import make_workload
from et_sim.workloads.pipeline import Direction, Pass, pass_label
from et_sim.workloads.rank import Rank
from et_sim.workloads.training.chain import run_backward, run_forward
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.replicas import Replicas
from et_sim.workloads.training.work import Work


def make_convolution_training(network: Network, plan: Plan, name: str = "cnn") -> Workload:
    """The workload of one step."""
    layers = layers_of(network, plan)

    def step(rank: Rank) -> None:
        work = Work(rank, plan)
        replicas = Replicas(work)
        for number in range(plan.micro_batches):
            work.during = pass_label(Pass(Direction.FORWARD, number), 1)
            run_forward(work, layers, number)
            work.during = pass_label(Pass(Direction.BACKWARD, number), 1)
            run_backward(work, replicas, layers, number, is_last=number == plan.micro_batches - 1)
            replicas.flush()
        replicas.update()

    return make_workload(plan.axes, step, source=f"<{name}>")
