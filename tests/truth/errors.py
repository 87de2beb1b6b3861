"""Errors of predictions from converted recordings against the truth, by kind of change and by feature.

    python tests/truth/errors.py                       # 100 random programs
    python tests/truth/errors.py --programs 1000 --jobs 2
    python tests/truth/errors.py --only "backward thread,buckets"     # programs with these features at most
    python tests/truth/errors.py --seeds 17,4 --list                  # every case of some programs

A case is a program and a change of the machine. Its error is that of the rank that is farthest off, in the
time from the first beginning of all ranks to its end.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import Pool

from playing import Played, play
from prediction import converted, predicted_ns, replayed_ns, spelled
from program import AS_RECORDED, Machine, Program
from random_programs import DISTURBANCES, FEATURES, random_program
from recording import FORMS, Form

from et_sim.basics.errors import EtSimError

REPLAY = "replay"


@dataclass(frozen=True)
class Case:
    """One prediction."""

    seed: int
    change: str  # its kind
    factor: float
    form: str
    features: frozenset[str]
    error: float  # share of the true time; of a replay, nanoseconds


def changes(seed: int, ranks: int) -> Iterator[tuple[str, float, Machine]]:
    """Yield the machines to predict for a program: kind of change, factor of durations, machine."""
    rng = random.Random(seed)

    def between(low: float, high: float) -> float:
        return round(low * (high / low) ** rng.random(), 3)

    yield "unchanged", 1.0, AS_RECORDED
    for low, high, kind in ((0.1, 1, "faster kernels"), (1, 10, "slower kernels")):
        factor = between(low, high)
        yield kind, factor, Machine(kernels=factor)
    for low, high, kind in ((0.5, 1, "faster host"), (1, 2, "slower host")):
        factor = between(low, high)
        yield kind, factor, Machine(host=factor)
    if ranks > 1:
        yield "endless network", 0.0, Machine(network=0.0)
        factor = between(0.1, 10)
        yield "other network", factor, Machine(network=factor)
        factor = between(1.1, 3)
        yield "straggler", factor, Machine(straggler={rng.randrange(ranks): factor})
    factor = between(0.1, 10)
    yield "kernels and host", factor, Machine(kernels=factor, host=between(0.5, 2))


def cases(seed: int, without: frozenset[str] = frozenset()) -> list[Case]:
    """Return all cases of a program, less some features."""
    program = random_program(seed, without)
    form = FORMS[seed % len(FORMS)]
    if "subgroups" in program.features and not form.is_new:
        form = FORMS[0]  # the old form does not distinguish groups of one size
    played = play(program, AS_RECORDED)
    try:
        return _predicted(seed, program, form, played)
    except EtSimError as error:
        print(f"seed {seed}: {error}", file=sys.stderr)
        return [Case(seed, "refused", 1.0, form.name, program.features, math.inf)]


def _predicted(seed: int, program: Program, form: Form, played: list[Played]) -> list[Case]:
    outcome = converted(program, played, form)
    first = min(rank.begin for rank in played)
    late = [took - form.span_ns(rank) for took, rank in zip(replayed_ns(outcome), played, strict=True)]
    result = [Case(seed, REPLAY, 1.0, form.name, program.features, max(map(abs, late)))]
    traces = spelled(outcome, program)
    for kind, factor, machine in changes(seed, len(program.ranks)):
        truth = [rank.end - first for rank in play(program, machine)]
        ends = predicted_ns(traces, machine)
        error = max(abs(end - true) / true for end, true in zip(ends, truth, strict=True))
        result.append(Case(seed, kind, factor, form.name, program.features, error))
    return result


def percentile(errors: Iterable[float], share: float) -> float:
    """Return the error that this share of cases does not exceed."""
    ordered = sorted(errors)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _row(name: str, some: list[Case]) -> str:
    errors = [case.error for case in some]
    worst = sorted(some, key=lambda case: -case.error)[:4]
    seeds = ", ".join(f"{case.seed} ({100 * case.error:.0f} %)" for case in worst)
    middle, most = 100 * statistics.median(errors), 100 * percentile(errors, 0.95)
    return f"{name:28} {len(some):6} {middle:8.2f} % {most:8.1f} %   {seeds}"


def _of_seed(given: tuple[int, frozenset[str]]) -> list[Case]:
    return cases(*given)


def many_cases(seeds: Iterable[int], processes: int, without: frozenset[str] = frozenset()) -> list[Case]:
    """Return all cases of many programs, several programs at once."""
    with Pool(processes) as pool:
        some = pool.imap(_of_seed, [(seed, without) for seed in seeds], 4)
        return [case for of_seed in some for case in of_seed]


def _names(listed: str) -> frozenset[str]:
    return frozenset(name.strip() for name in listed.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first program")
    parser.add_argument("--seeds", help="of which programs, instead")
    parser.add_argument("--only", help="the features that programs may have, or none")
    parser.add_argument("--without", default="", help="features that no program has")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="every case")
    given = parser.parse_args()
    seeds = (
        [int(seed) for seed in given.seeds.split(",")]
        if given.seeds
        else range(given.first, given.first + given.programs)
    )
    without = _names(given.without)
    if given.only is not None:
        without |= {*FEATURES, *DISTURBANCES, "gloo"} - _names(given.only)
    result = many_cases(seeds, given.jobs, without)
    replays = [case for case in result if case.change == REPLAY]
    result = [case for case in result if case.change != REPLAY]
    if given.list:
        for case in result:
            what = f"{case.seed:5} {case.change:18} x{case.factor:<6} {100 * case.error:7.2f} %"
            print(f"{what}  {case.form}; {', '.join(sorted(case.features))}")
    print(f"{'':28} {'cases':>6} {'median':>10} {'95 %':>10}   seeds of the worst")
    print(_row("all", result))
    for title, names in (
        ("by change", sorted({case.change for case in result})),
        ("by feature", sorted({name for case in result for name in case.features})),
        ("by form", sorted({case.form for case in result})),
    ):
        print(title)
        for name in names:
            print(_row(f"  {name}", [c for c in result if name in (c.change, c.form) or name in c.features]))
    worst = max(replays, key=lambda case: case.error)
    exact = sum(case.error <= 1 for case in replays)
    print(f"replays: {exact} of {len(replays)} within 1 ns; worst {worst.error:,.0f} ns (seed {worst.seed})")


if __name__ == "__main__":
    main()
