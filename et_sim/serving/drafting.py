"""Passes of the model that makes drafts, between the passes of the model that verifies them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from et_sim.serving.engines.description import Engine
from et_sim.serving.replicas import PREFILL, CachePool, Times
from et_sim.serving.speculation import Speculation
from et_sim.workloads.inference.batch import Batch, Segment, sights


def by_work(loads: Sequence[Batch]) -> tuple[Batch, ...]:
    """Return the batches of groups with the most work first, so that fewer passes differ."""
    return tuple(sorted(loads, key=lambda load: (load.prefill.pairs, load.decode.keys, load.tokens))[::-1])


class Drafting(Struct, frozen=True):
    """A speculation, and the times of its model's passes."""

    speculation: Speculation
    times: Times

    def ns(
        self, pool: CachePool, groups: Sequence[Sequence[Segment]], engine: Engine, context_step: int
    ) -> int:
        """Return the time of drafts after a pass with these segments of each group.

        Replicas for prompts only fill the cache of the drafting model.
        """
        if self.speculation.model is None:
            return 0
        first = self._pass_ns(pool, groups, engine, context_step)
        again = [
            [Segment(1, each.context + each.tokens) for each in segments if each.is_sampled]
            for segments in groups
        ]
        count = self.speculation.tokens - 1
        if pool.work == PREFILL or not count or not any(again):
            return first
        return first + count * self._pass_ns(pool, again, engine, context_step)

    def _pass_ns(
        self, pool: CachePool, groups: Sequence[Sequence[Segment]], engine: Engine, context_step: int
    ) -> int:
        model = self.speculation.model
        assert model is not None
        known = sights(model)
        loads = [Batch.of(engine.padded(each), context_step, known) for each in groups]
        of = replace(pool, plan=self.speculation.plan(pool.plan))
        took = self.times.pass_ns(of, loads[0] if len(loads) == 1 else by_work(loads))
        expert_layers = sum(map(model.has_experts, range(model.layers)))
        return max(engine.pass_ns(took, load, model.layers, expert_layers) for load in loads)
