"""Tokens of a micro-batch on a rank, and the share of them that each expert gets."""

from __future__ import annotations

from math import ceil

from msgspec import Struct, field

from et_sim.workloads.exchange_names import ALL_TO_ALL
from et_sim.workloads.models.model import Experts, Model
from et_sim.workloads.training.exchanges import Routed, Spread, counted
from et_sim.workloads.training.expert_loads import tokens_of_experts
from et_sim.workloads.training.expert_plan import EXPERT_RAIL
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.plan_options import AS_VALUES
from et_sim.workloads.training.routing import odds_of, shares_met, tokens_met

ROWS_OF_CAST = {"fp8": 16, "fp4": 32}  # rows of products with cast operands are padded to a multiple


class RankTokens(Struct, frozen=True):
    """The tokens of a rank under a plan."""

    model: Model
    plan: Plan
    place: int = 0  # position on the expert axis, if experts are uneven
    _tokens: dict[Experts, tuple[int, ...]] = field(default_factory=dict)  # tokens of each expert
    # Tokens that go to each part of the experts.
    _met: dict[tuple[Experts, int], Spread] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Return the tokens of a micro-batch on each rank of the context axis."""
        return self.plan.batch * self.model.sequence // self.plan.context

    @property
    def kept_tokens(self) -> int:
        """Return the tokens whose activations a rank keeps between the tensor-parallel parts."""
        return self.tokens // (self.plan.tensor if self.plan.sequence_parallel else 1)

    def routed(self, experts: Experts) -> Routed:
        """Return the routing of a rank's tokens."""
        plan, nodes = self.plan, self._nodes
        copies, places = self.tokens_sent(experts), self.plan.expert
        met = copies if plan.expert_exchange == ALL_TO_ALL else self.tokens_met(experts, places)
        return Routed(
            self.kept_tokens,
            copies.total,
            copies.arriving(self.place),
            experts.count,
            experts.count // places,
            self.model.hidden,
            plan.value_bytes,
            "" if plan.dispatch == AS_VALUES else plan.dispatch,
            plan.expert_exchange,
            plan.fused_routing,
            plan.by.experts.counting,
            self.place,
            places // nodes,
            met,
            self.tokens_met(experts, nodes),
        )

    @property
    def _nodes(self) -> int:
        """Return the number of nodes that have experts; 1 if nodes do not matter."""
        return self.plan.size(EXPERT_RAIL)

    def _most_copies(self, experts: Experts) -> int:
        """Return the most tokens of a rank that an expert accepts."""
        factor, tokens = self.plan.capacity_factor, self.kept_tokens
        return min(ceil(factor * tokens * experts.chosen / experts.count), tokens) if factor else tokens

    def tokens_of_experts(self, experts: Experts) -> tuple[int, ...]:
        """Return the tokens that each expert gets from a rank; empty if experts are even."""
        plan, tokens = self.plan, self.kept_tokens
        if not plan.expert_skew:
            return ()
        if experts not in self._tokens:
            loads = tokens_of_experts(
                plan.expert_skew, plan.expert_seed, experts.count, experts.chosen, tokens
            )
            self._tokens[experts] = tuple(min(load, self._most_copies(experts)) for load in loads)
        return self._tokens[experts]

    def tokens_sent(self, experts: Experts) -> Spread:
        """Return the copies of a rank's tokens that go to each place of the expert axis."""
        loads, places = self.tokens_of_experts(experts), self.plan.expert
        if not loads:
            copies = min(self.kept_tokens * experts.chosen, self._most_copies(experts) * experts.count)
            return Spread(places, copies)
        return Spread.of(tuple(map(sum, _parted(loads, places))))

    def tokens_met(self, experts: Experts, parts: int) -> Spread:
        """Return how many of a rank's tokens use at least one expert of each of several equal parts."""
        if (experts, parts) not in self._met:
            plan, tokens = self.plan, self.kept_tokens
            loads = self.tokens_of_experts(experts)
            groups, limit = experts.groups, experts.chosen_groups
            if plan.expert_nodes:
                groups, limit = self._nodes, plan.expert_nodes
            odds = odds_of(loads, experts.count, tokens)
            shares = shares_met(odds, parts, groups, limit, experts.chosen)
            met = Spread(parts, round(tokens * sum(shares)))
            self._met[experts, parts] = (
                Spread.of(tokens_met(shares, tokens, _parted(loads, parts))) if loads else met
            )
        return self._met[experts, parts]

    def rows_here(self, experts: Experts) -> tuple[int, ...]:
        """Return the rows of each expert of the rank, from all ranks, padded for its products."""
        plan, local = self.plan, experts.count // self.plan.expert
        loads = self.tokens_of_experts(experts)[self.place * local : (self.place + 1) * local]
        rows = [tokens * plan.expert for tokens in loads]
        rows = rows or [-(-self.tokens_sent(experts).total // local)] * local
        multiple = ROWS_OF_CAST.get(plan.cast_to, 1)
        return counted([count * plan.expert_tensor for count in rows], multiple)


def _parted(loads: tuple[int, ...], parts: int) -> list[tuple[int, ...]]:
    """Return the loads of experts in several equal parts."""
    each = len(loads) // parts
    return [loads[at : at + each] for at in range(0, len(loads), each)]
