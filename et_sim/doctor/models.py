"""Tests of a network model's promises: equal numbers give equal times, and folded runs equal unfolded ones.

First, the times of lone messages between every pair of ranks of some small networks are compared with the
numbers of `path_keys`, and these with distances if the model states that distances determine them. Then
random programs of collectives and pauses, with and without late ranks, run folded, unfolded and unfolded
again. The same seed gives the same programs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from msgspec import Struct

from et_sim.api import simulate
from et_sim.basics.errors import UsageError
from et_sim.fold.path_keys import PathKeys
from et_sim.machine.model import Network, strides_of
from et_sim.machine.readers import read_network_alone
from et_sim.network.registry import as_named, model_named
from et_sim.run.result import Result
from et_sim.trace import TraceBuilder
from et_sim.trace.workload import Workload

SIZES = (1, 1000, 1 << 20)
COLLECTIVES = ("all_reduce", "all_gather", "all_to_all")
MOST_RANKS = 64
SHAPES = (
    (["Ring"], [6]),
    (["Switch"], [16]),
    (["FullyConnected", "Ring"], [4, 3]),
)


class Verdict(Struct, frozen=True):
    """The tests of a network and the problem that they found, if any."""

    network: str
    pairs: int  # pairs of ranks whose paths were compared; 0: the model never folds
    programs: int
    problem: str


def examine_model(
    name: str, network: Path | None = None, programs: int = 10, seed: int = 1
) -> Iterator[Verdict]:
    """Yield one verdict for each network: that of a file, or some small ones."""
    if programs < 1:
        raise UsageError(f"--programs is {programs}", remedy="try one program or more")
    networks = [network] if network is not None else [_network(*shape) for shape in SHAPES]
    for each in networks:
        described = read_network_alone(each)
        tried = _Trial(as_named(name), each, described, random.Random(seed))
        yield tried.verdict(programs)


def _network(shapes: list[str], counts: list[int]) -> dict[str, Any]:
    number = len(shapes)
    return {
        "topology": shapes,
        "npus_count": counts,
        "bandwidth": [50.0] * number,
        "latency": [500.0] * number,
    }


class _Trial(Struct, frozen=True):
    """A model on a network."""

    model: str
    network: Path | dict[str, Any]
    described: Network
    random: random.Random

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.described.ranks

    def verdict(self, programs: int) -> Verdict:
        """Return the verdict on paths, and on programs until one is wrong."""
        sides = " x ".join(str(dimension.npus) for dimension in self.described.grid.dimensions)
        if self.ranks > MOST_RANKS:
            problem_text = f"has {self.ranks} ranks, more than the limit of {MOST_RANKS}"
            raise UsageError(f"the network {problem_text}", remedy="give a smaller one of the same kind")
        keys = model_named(self.model).path_keys(self.described, whole=True)
        problem, tried = "" if keys is None else self._unequal_paths(keys), 0
        while not problem and tried < programs:
            problem = self._unequal_runs()
            tried += 1
        pairs = 0 if keys is None else self.ranks * (self.ranks - 1)
        return Verdict(sides, pairs, tried, problem)

    def _unequal_paths(self, keys: PathKeys) -> str:
        """Return two pairs with one number whose messages take different times."""
        pairs = list(nx.eulerian_circuit(nx.complete_graph(self.ranks, create_using=nx.DiGraph)))
        codes = keys.codes(*np.array(pairs).T).tolist()
        if not keys.differ_along_axes and (problem := self._unlike_at_equal_distance(pairs, codes)):
            return problem
        for size in SIZES:
            seen: dict[int, tuple[tuple[int, int], int]] = {}
            for pair, code, time in zip(pairs, codes, self._times_alone(pairs, size), strict=True):
                first, known = seen.setdefault(code, (pair, time))
                if time != known:
                    return (
                        f"path_keys has one number for {first[0]} to {first[1]} and {pair[0]} to {pair[1]}, "
                        f"but {size:,} bytes take {known:,} ns on the one way, {time:,} on the other"
                    )
        return ""

    def _unlike_at_equal_distance(self, pairs: list[tuple[int, int]], codes: list[int]) -> str:
        """Return two pairs equally far apart along one dimension that have different numbers."""
        known: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}
        dimensions = self.described.grid.dimensions
        tiers = [(tier.npus, stride) for tier, stride in zip(dimensions, strides_of(dimensions), strict=True)]
        for pair, code in zip(pairs, codes, strict=True):
            ahead = [(pair[1] // stride - pair[0] // stride) % npus for npus, stride in tiers]
            legs = [leg for leg in enumerate(ahead) if leg[1]]
            first, of_first = known.setdefault(legs[0], (pair, code)) if len(legs) == 1 else (pair, code)
            if code != of_first:
                return (
                    f"path_keys states that paths are alike by distance, but has different numbers for "
                    f"{first[0]} to {first[1]} and for {pair[0]} to {pair[1]}"
                )
        return ""

    def _times_alone(self, pairs: list[tuple[int, int]], size: int) -> list[int]:
        """Return how long a message takes between each pair, one after the other."""
        builders = [TraceBuilder() for _ in range(self.ranks)]
        after = list[int]()
        for at, (source, target) in enumerate(pairs):
            builders[source].send(target, size, after=after)
            after = [builders[target].receive(source, size, name=str(at))]
        timeline = self._run(Workload.of([build.build() for build in builders]), fold=False).timeline
        ends = {row["name"]: row["end_ns"] for row in timeline.select(["name", "end_ns"]).to_pylist()}
        arrivals = [0, *(int(ends[str(at)]) for at in range(len(pairs)))]
        return [end - begin for begin, end in pairwise(arrivals)]

    def _unequal_runs(self) -> str:
        """Return a program that takes another time folded, or again."""
        build, last, steps = TraceBuilder(), list[int](), list[str]()
        for _ in range(self.random.randint(1, 5)):
            size, after = self.random.choice(SIZES), self.random.choice((last, []))
            kind = self.random.choice((*COLLECTIVES, "work"))
            if kind == "work":
                last = [build.compute("work", micros=self.random.randint(1, 30), after=after)]
            else:
                last = [build.collective(kind, size, after=after)]
            steps.append(kind if kind == "work" else f"{kind} of {size:,} bytes")
        workload = Workload((build.build(),), np.zeros(self.ranks, np.int32))
        late = self.random.choice((None, self.random.randrange(self.ranks)))
        runs = [self._finish(workload, fold=fold, late=late) for fold in (True, False, False)]
        case = ", ".join(steps) + ("" if late is None else f", rank {late} late")
        for which, finish_ns in (("folded", runs[0]), ("unfolded again", runs[2])):
            if finish_ns != runs[1]:
                rank = next(at for at in range(self.ranks) if finish_ns[at] != runs[1][at])
                ends = f"{finish_ns[rank]:,} ns {which}, at {runs[1][rank]:,} unfolded"
                return f"{case}: rank {rank} ends at {ends}"
        return ""

    def _finish(self, workload: Workload, *, fold: bool, late: int | None = None) -> list[int]:
        return [int(ns) for ns in self._run(workload, fold=fold, late=late).finish_ns]

    def _run(self, workload: Workload, *, fold: bool, late: int | None = None) -> Result:
        number = len(self.described.grid.dimensions)
        system: dict[str, Any] = {
            "profile": "corrected",
            "all-reduce-implementation": ["ring"] * number,
            "all-gather-implementation": ["ring"] * number,
            "all-to-all-implementation": ["direct"] * number,
            "preferred-dataset-splits": 2,
        }
        if late is not None:
            system["stragglers"] = [{"ranks": str(late), "delay": "7us"}]
        return simulate(workload, system=system, network=self.network, model=self.model, fold=fold)
