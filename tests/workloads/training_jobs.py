"""Training jobs for tests: a small decoder, spread by a plan."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.trace import CollectiveKind, NodeKind, Trace, Workload
from et_sim.workloads import Model, Plan, Rank, make_training
from et_sim.workloads.models.model import Attention, Experts, FeedForward, Latent
from et_sim.workloads.training.figures import Memory, most_memory
from et_sim.workloads.training.step import training_program


def decoder(**given: Any) -> Model:
    """Return four layers of eight heads, with every dimension a power of two."""
    hidden, heads = given.pop("hidden", 64), given.pop("heads", 8)
    usual: dict[str, Any] = {
        "name": "small",
        "source": "this test",
        "hidden": hidden,
        "layers": 4,
        "vocabulary": 128,
        "sequence": 32,
        "attention": Attention(heads, heads, hidden // heads),
        "feed_forward": FeedForward(4 * hidden, is_gated=False),
    }
    return Model(**{**usual, **given})


def with_experts(**given: Any) -> Model:
    """Return a dense layer and three with eight experts; tokens take two and a shared one."""
    model = decoder(**given)
    part = FeedForward(2 * model.hidden, is_gated=True)
    return replace(model, experts=Experts(8, 2, part, shared=1, dense_layers=1))


def with_latent_attention(**given: Any) -> Model:
    """Return a decoder with keys and values in a compressed form."""
    model = decoder(**given)
    return replace(model, attention=Attention(8, 8, 8, latent=Latent(24, 16, 4, 8)))


def transformer(**given: Any) -> Workload:
    """Return one step of training the decoder; arguments that are not fields of a plan change the model."""
    of_plan = {*Plan.__struct_fields__}
    plan = {"micro_batches": 4} | {name: value for name, value in given.items() if name in of_plan}
    return make_training(
        decoder(**{name: value for name, value in given.items() if name not in of_plan}), Plan(**plan)
    )


def memory(model: Model, plan: Plan, rank: int = 0) -> Memory:
    """Return the memory of a rank, without making the others."""
    result = Rank(plan.axes, rank, {}, "test")
    training_program(model, plan)(result)
    return most_memory(result.recording.trace())


def rows_named(trace: Trace, ending: str) -> Any:
    """Return a mask of nodes whose names have an ending."""
    return np.array([name.endswith(ending) for name in trace.names], np.bool_)[trace.name]


def moved(trace: Trace) -> Counter[tuple[str, str]]:
    """Return the bytes that a rank puts in, by group and kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in np.flatnonzero(trace.kind == NodeKind.COLL).tolist():
        kind = CollectiveKind(int(trace.comm_type[row])).name.lower()
        counts[trace.group_names[int(trace.group[row])], kind] += int(trace.comm_bytes[row])
    for row in np.flatnonzero(trace.kind == NodeKind.SEND).tolist():
        counts["", "send"] += int(trace.comm_bytes[row])
    return counts
