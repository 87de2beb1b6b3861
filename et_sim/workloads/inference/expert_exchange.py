"""Exchanges of tokens with their experts, between data-parallel groups.

An all-to-all sends a token once for each of its experts. Other exchanges, those of training, send it once to
each node of its experts, and from there to each rank (`training/expert_plan`). Ranks that share experts
gather the tokens that arrive, and add their outputs.

Low-latency kernels of DeepEP have all processors while they send copies, and while they put what has arrived
in order or add it up; in between, copies travel by themselves. The kernel that sends takes a time for itself,
and one for each copy, beside its traffic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from et_sim.workloads.exchange_names import ALL_TO_ALL
from et_sim.workloads.inference.expert_loads import SURE, chances_of_places
from et_sim.workloads.inference.ranks import experts_on_rank
from et_sim.workloads.kernels import Kernel, passing, stored_bytes
from et_sim.workloads.models.model import Experts
from et_sim.workloads.training.exchanges import Routed, Spread, legs_back, legs_there
from et_sim.workloads.training.expert_plan import EXPERT_TENSOR
from et_sim.workloads.training.parts import ModelPart, Shared, ToExperts, Transfer
from et_sim.workloads.training.plan import DATA, EXPERT, TENSOR, Plan
from et_sim.workloads.training.plan_options import AS_VALUES
from et_sim.workloads.training.routing import shares_met

# Fitted to the kernels that send 128 and 768 tokens of 7,168 values to 8 experts each, on 48 ranks of GB200
# (deepseek-ai/DeepEP, pull request 385, before its change), less a launch of 2.4 us and their traffic at
# 8 TB/s; the times of 24 ranks with cards (pull request 425) were left out (docs/serving-experts.md).
SENDING_NS, SENDING_COPY_NS = 11_700, 14.7


class SentCopies(NamedTuple):
    """The kernels of low latency at the ends of an exchange."""

    sent: Kernel  # the traffic of the kernel that sends
    sending_ns: int  # in addition
    received: Kernel


class ExpertExchange(Struct, frozen=True):
    """The exchange of the tokens of a rank in a layer."""

    plan: Plan
    experts: Experts
    hidden: int
    tokens: int
    rows: int  # of all experts of the rank
    excess: float = 1.0  # of the tokens of the busiest rank, by the mean
    is_expert_rank: bool = False  # the rank has experts alone

    @property
    def _chosen(self) -> int:
        """Return the tokens once for each of their experts, as if each rank had those of the busiest one."""
        return round(self.tokens * self.experts.chosen * self.excess)

    @property
    def _row_bytes(self) -> int:
        return self.hidden * self.plan.value_bytes

    @property
    def _dispatch(self) -> str:
        return "" if self.plan.dispatch == AS_VALUES else self.plan.dispatch

    @property
    def _sent_row_bytes(self) -> int:
        return stored_bytes(self.hidden, self._dispatch) if self._dispatch else self._row_bytes

    @property
    def _is_by_expert(self) -> bool:
        return self.plan.expert_exchange == ALL_TO_ALL

    def ends_there(self) -> SentCopies:
        """Return the kernels that cast and send tokens, and that put copies in order."""
        read, sent = self._row_bytes, self._sent_row_bytes
        return self._ends("to experts", self.tokens * (read + sent), 2 * self._chosen * sent)

    def ends_back(self) -> SentCopies:
        """Return the kernels that send outputs of experts, and that add up those of a token."""
        row = self._row_bytes
        return self._ends("from experts", 2 * self._chosen * row, (self._chosen + self.tokens) * row)

    def _ends(self, name: str, sent: int, received: int) -> SentCopies:
        return SentCopies(
            passing(f"{name} sent", sent, 1),
            round(SENDING_NS + SENDING_COPY_NS * self._chosen),
            passing(f"{name} received", received, 1),
        )

    def there(self) -> Iterator[ModelPart]:
        """Yield the parts from the tokens of a group's rank to the experts."""
        if self.plan.experts_apart:
            yield self._between("to experts", self._sent_row_bytes, is_sender=not self.is_expert_rank)
            return
        if self.plan.expert > 1 and not self._is_by_expert:
            yield from legs_there(self._routed)
        elif self.plan.expert > 1:
            size = self._chosen
            out, back = (Transfer(EXPERT, size * row) for row in (self._sent_row_bytes, self._row_bytes))
            yield ToExperts("to experts", (out,), (back,))
        yield self._shared(gathers=True)

    def back(self) -> Iterator[ModelPart]:
        """Yield the parts from the outputs of experts to the tokens."""
        if self.plan.experts_apart:
            yield self._between("from experts", self._row_bytes, is_sender=self.is_expert_rank)
            return
        yield self._shared(gathers=False)
        if self.plan.expert > 1 and not self._is_by_expert:
            yield from legs_back(self._routed)
        elif self.plan.expert > 1:
            size = self._chosen * self._row_bytes
            yield ToExperts("from experts", (Transfer(EXPERT, size),), ())

    def _between(self, name: str, row_bytes: int, *, is_sender: bool) -> ToExperts:
        """Return the exchange of ranks with attention and those with experts; half of them send.

        All ranks of either kind send equally much to each of the other kind.
        """
        plan, rows = self.plan, -(-self._chosen // self.plan.expert)
        size, none = (rows * row_bytes if is_sender else 0,), (0,)
        attention, experts = plan.tensor * plan.data, plan.expert
        splits = (
            size * attention + none * experts if self.is_expert_rank else none * attention + size * experts
        )
        transfer = Transfer((TENSOR, DATA), sum(splits), splits)
        return ToExperts(name, (transfer,), (), stream=name)

    def _shared(self, *, gathers: bool) -> Shared:
        """Return the exchange of ranks that share every expert."""
        rows = self.tokens
        if self.plan.expert > 1:
            rows = self._chosen if self._is_by_expert else self._met(self.plan.expert).total
        sums = rows * self._row_bytes * self.plan.expert_tensor
        gathered, beside = rows * self._sent_row_bytes, self.plan.overlap_experts
        return Shared("experts", EXPERT_TENSOR, gathered, sums, gathers=gathers, is_beside=beside)

    @property
    def _routed(self) -> Routed:
        plan = self.plan
        within = plan.places_of_experts.on_node
        local, _ = experts_on_rank(self.experts, plan)
        return Routed(
            self.tokens,
            self.tokens * self.experts.chosen,
            self.rows,
            self.experts.count + plan.redundant_experts,
            local,
            self.hidden,
            plan.value_bytes,
            self._dispatch,
            plan.expert_exchange,
            is_fused=True,
            counting=0,
            place=0,
            within=within,
            to_places=self._met(plan.expert),
            to_nodes=self._met(plan.expert // within),
        )

    def _met(self, parts: int) -> Spread:
        """Return how many tokens use experts of each of several equal parts, or of the busiest one of them.

        Copies that are placed by their loads are in no groups of the model's router.
        """
        plan, experts = self.plan, self.experts
        count = experts.count + plan.redundant_experts
        groups, limit = experts.groups, experts.chosen_groups
        if plan.expert_nodes:
            groups, limit = plan.expert // plan.places_of_experts.on_node, plan.expert_nodes
        places = chances_of_places(experts, plan)
        if count % groups or (places and plan.redundant_experts and not plan.expert_nodes):
            groups = limit = 1
        if not places:
            shares = shares_met((1.0,) * count, parts, groups, limit, experts.chosen)
            return Spread(parts, round(self.tokens * sum(shares)))
        odds = tuple(chance / max(1 - chance, SURE) for place in places for chance in place)
        busiest = max(shares_met(odds, parts, groups, limit, experts.chosen))
        return Spread(parts, round(self.tokens * busiest * parts))
