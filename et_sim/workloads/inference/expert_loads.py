"""The experts of the busiest rank, if tokens choose some experts more often than others.

All ranks that share the experts wait for the busiest one in the exchange behind them, so each is taken to
have its experts in use, its rows and its share of the exchanges.

Copies go to the expert whose copies have the highest load, one after the other, and share its tokens. With
copies, experts are placed by their loads: the highest one first, on the rank with the least load that has a
place left, as EPLB does. Without, they are in their order.
"""

from __future__ import annotations

import heapq
from functools import lru_cache
from typing import NamedTuple

from et_sim.workloads.inference.ranks import busy_experts
from et_sim.workloads.models.model import Experts
from et_sim.workloads.training.expert_loads import loads_of
from et_sim.workloads.training.plan import Plan

Places = tuple[tuple[float, ...], ...]
BLOCK_ROWS = 128  # of grouped products in blocks (vllm-project/vllm, fused_moe/deep_gemm_utils.py)
SURE = 1e-9  # least chance that an expert is not chosen, for finite odds


class BusiestRank(NamedTuple):
    """Experts in use on the busiest rank, and the rows of each."""

    experts: int
    rows: int
    excess: float = 1.0  # its rows by the mean of all ranks


def busiest_rank(experts: Experts, plan: Plan, tokens: int) -> BusiestRank:
    """Return the experts of the busiest rank for the tokens of all groups, which choose by chance."""
    places = chances_of_places(experts, plan)
    if not places:
        chosen = tokens * experts.chosen
        busy = busy_experts(experts, plan, tokens)
        return BusiestRank(-(-busy // plan.expert), -(-chosen // busy))
    chances = max(places, key=sum)
    in_use = max(round(sum(1 - (1 - chance) ** tokens for chance in chances)), 1)
    mean = experts.chosen / plan.expert
    return BusiestRank(in_use, max(round(tokens * sum(chances) / in_use), 1), sum(chances) / mean)


def padded_rows(chosen: int, experts: int) -> int:
    """Return the rows of each expert of a rank, in whole blocks; `chosen`: those of tokens.

    The host does not wait for the choices, so it has blocks for the worst ones.
    """
    blocks = -(-(chosen + experts * (BLOCK_ROWS - 1)) // BLOCK_ROWS)
    return round(blocks / experts) * BLOCK_ROWS


def chances_of_places(experts: Experts, plan: Plan) -> Places:
    """Return the chances that a token chooses each expert of each rank; empty if loads are even."""
    return _chances_of_places(
        experts, plan.expert_skew, plan.expert_seed, plan.redundant_experts, plan.expert
    )


@lru_cache(maxsize=256)
def _chances_of_places(experts: Experts, skew: str, seed: int, redundant: int, ranks: int) -> Places:
    loads = loads_of(skew, seed, experts.count, experts.chosen) if skew else ()
    if not loads or len(set(loads)) == 1:
        return ()
    chances = _chances([float(load) for load in loads], experts.chosen)
    copies = _copied(chances, redundant)
    local = len(copies) // ranks
    if redundant:
        return tuple(map(tuple, _packed(copies, ranks, local)))
    return tuple(tuple(copies[first : first + local]) for first in range(0, len(copies), local))


def _chances(loads: list[float], chosen: int) -> list[float]:
    """Return the chances in proportion to loads, each at most 1; their sum is the number of chosen ones."""
    chances, left, total = [0.0] * len(loads), float(chosen), sum(loads)
    for at in sorted(range(len(loads)), key=lambda at: -loads[at]):
        chances[at] = min(left * loads[at] / total, 1.0) if total else 0.0
        left, total = left - chances[at], total - loads[at]
    return chances


def _copied(chances: list[float], redundant: int) -> list[float]:
    """Return the chance of each copy, after the highest ones are divided among more copies."""
    counts = [1] * len(chances)
    busiest = [(-chance, at) for at, chance in enumerate(chances)]
    heapq.heapify(busiest)
    for _ in range(redundant):
        _, at = busiest[0]
        counts[at] += 1
        heapq.heapreplace(busiest, (-chances[at] / counts[at], at))
    return [chance / count for chance, count in zip(chances, counts, strict=True) for _ in range(count)]


def _packed(copies: list[float], ranks: int, local: int) -> list[list[float]]:
    """Return the copies of each rank, placed by their loads."""
    places: list[list[float]] = [[] for _ in range(ranks)]
    least = [(0.0, rank) for rank in range(ranks)]
    for copy in sorted(copies, reverse=True):
        load, rank = heapq.heappop(least)
        places[rank].append(copy)
        if len(places[rank]) < local:
            heapq.heappush(least, (load + copy, rank))
    return places
