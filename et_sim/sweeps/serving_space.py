"""The space of all fleets that serve a language model on a machine by name, as the description of a search.

A fleet has equal replicas, all of which process prompts and tokens, or some only prompts. A replica has
tensor-parallel ranks within a node, and data-parallel groups of them if the model has experts, which are
then spread over all its ranks; without groups, the ranks share each expert or have different ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct

from et_sim.basics.engine_names import ENGINES
from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_ns
from et_sim.machine.presets import Preset, preset
from et_sim.serving.requests import CLOSED, ROLLOUT
from et_sim.sweeps.plan_space import AT_ONCE, divisors, tensor_ranks
from et_sim.workloads.inference.batch import check
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.plan import Plan

FRONT = {"maximise": ["output_tokens_per_s_per_rank", "tokens_per_s_per_user"]}
OBJECTIVES = MappingProxyType(
    {
        "npus": {"minimise": ["ranks"]},
        "tokens": {"maximise": ["output_tokens_per_s_per_rank"]},
        "price": {"minimise": ["price_per_million_tokens"]},
        "energy": {"minimise": ["joules_per_million_tokens"]},
    }
)
GOOD_SHARE = 0.99
OF_TOGETHER, OF_APART = 3, 2  # binary digits of numbers of replicas: all up to 8, or up to 4, then fewer


class Fleet(NamedTuple):
    """A plan and replicas: the values of the axes of the search."""

    tp: int
    dp: int
    ep: int
    replicas: int | None
    prefill: int | None
    decode: int | None


FIELDS = {
    **{name: f"workload.plan.{name}" for name in ("tp", "dp", "ep")},
    "replicas": "workload.replicas",
    "prefill": "workload.prefill-replicas",
    "decode": "workload.decode-replicas",
}


class ServingSearch(Struct, frozen=True):
    """A search for the best fleets of a model on a machine under a load."""

    model: Model
    named: str  # the name or the file of the model
    machine: str
    requests: str
    objective: str | None = None  # None: the front of tokens per second of an NPU and of a user
    engine: str | None = None  # None: all by name
    concurrency: tuple[int, ...] = ()  # requests under way, each a point; (): as they arrive
    ttft: float | None = None
    tpot: float | None = None
    good_share: float | None = None  # None: the usual one
    budget: int | None = None
    image_tokens: int | None = None  # of each request

    @property
    def assumed(self) -> str:
        """Return what the search takes for granted, in words."""
        engines = self.engine or ", ".join(ENGINES)
        limits = (("ttft", self.ttft), ("tpot", self.tpot))
        within = [f"{name} {format_ns(round(limit))}" for name, limit in limits if limit is not None]
        share = 100 * (self.good_share or GOOD_SHARE)
        good = f", {share:g} % of them within {' and '.join(within)}" if within else ""
        images = f" with {self.image_tokens} tokens of images" if self.image_tokens else ""
        load = f"requests of {self.requests}{images}"
        return f"{self.model.name} on {self.machine}: {load}{good}, served by {engines}"

    def description(self) -> dict[str, Any]:
        """Return the description of the search."""
        fleets = list(self._fleets())
        if not fleets:
            raise UsageError(
                f"no replica of {self.model.name} divides the NPUs of {self.machine}",
                remedy="give another number of NPUs, such as 8",
            )
        columns = dict(zip(Fleet._fields, zip(*fleets, strict=True), strict=True))
        differing = [name for name, values in columns.items() if len(set(values)) > 1 or name == "replicas"]
        axes: dict[str, Any] = {
            name: {"field": FIELDS[name], "values": list(columns[name])} for name in differing
        }
        workload: dict[str, Any] = {"make": "serving", "model": self.named, "requests": self.requests}
        for name, limit in (("ttft", self.ttft), ("tpot", self.tpot)):
            workload |= {} if limit is None else {name: f"{limit:.0f}ns"}
        if self.image_tokens is not None:
            workload["image-tokens"] = self.image_tokens
        if self.engine is None:
            axes["engine"] = {"field": "workload.engine", "values": list(ENGINES)}
        else:
            workload["engine"] = self.engine
        if self.concurrency:
            axes["under-way"] = {"field": "workload.concurrency", "values": list(self.concurrency)}
        goal = FRONT if self.objective is None else OBJECTIVES[self.objective]
        search: dict[str, Any] = {**goal, "constraints": self._conditions()}
        search |= {"at-once": AT_ONCE, **({} if self.budget is None else {"budget": self.budget})}
        return {
            "base": {"workload": workload, "machine": self.machine},
            "axes": axes,
            **({"zip": [differing]} if len(differing) > 1 else {}),
            "search": search,
        }

    def _conditions(self) -> list[str]:
        is_open = not self.concurrency and not self.requests.startswith((CLOSED, ROLLOUT))
        keeps = ["keeps_up >= 1"] if is_open else []
        has_limits = self.ttft is not None or self.tpot is not None
        return [*keeps, *([f"good_share >= {self.good_share or GOOD_SHARE}"] if has_limits else [])]

    def _fleets(self) -> Iterator[Fleet]:
        machine = preset(self.machine)
        for tp, dp, ep in self._plans(machine):
            most = machine.npus // (tp * dp)
            for count in counts(most, OF_TOGETHER):
                yield Fleet(tp, dp, ep, count, None, None)
            for prefill in counts(most, OF_APART):
                for decode in counts(most - prefill, OF_APART):
                    yield Fleet(tp, dp, ep, None, prefill, decode)

    def _plans(self, machine: Preset) -> Iterator[tuple[int, int, int]]:
        """Yield the plans of replicas that suit the model, and divide the NPUs."""
        for ranks in divisors(machine.npus):
            for tp in divisors(ranks):
                dp = ranks // tp
                if tp > tensor_ranks(machine) or (dp > 1 and self.model.experts is None):
                    continue
                spread = (ranks,) if dp > 1 else (1, tp)
                for ep in dict.fromkeys(spread if self.model.experts is not None else (1,)):
                    if self._suits(tp, dp, ep):
                        yield tp, dp, ep

    def _suits(self, tp: int, dp: int, ep: int) -> bool:
        try:
            check(self.model, Plan(tensor=tp, data=dp, expert=ep))
        except UsageError:
            return False
        return True


def counts(most: int, digits: int) -> list[int]:
    """Return numbers from 1 to a limit: all of so many binary digits, and these times powers of two."""
    numbers = {least << shift for least in range(1, 1 << digits) for shift in range(most.bit_length())}
    return sorted(number for number in numbers if number <= most)
