"""Random small runs with many concurrent nodes, drawn to favour cases that folding could get wrong.

Several groups with equal members, programs that name different ones, point-to-point messages beside
collectives, explicit priorities, several queues, every profile, both network models, late and slow ranks.
The seed alone determines a case.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import numpy as np
from machines import KINDS, ROOTED, SHAPES, network, system

from et_sim.api import run
from et_sim.basics.errors import EtSimError
from et_sim.engine.outcome import Outcome
from et_sim.machine.presets import preset
from et_sim.timeline.ready_times import ReadyTimes
from et_sim.timeline.recorded import figures_of_ranks
from et_sim.trace import Trace, TraceBuilder, Workload

ALGORITHMS = ("ring", "ring", "direct", "halvingDoubling", "halvingDoubling", "doubleBinaryTree", "direct2")
ALL_TO_ALL = ("ring", "direct", "direct2")
SIZES = (1, 64, 1000, 1024, 4096, 65536, 65536, 100_001)
GRIDS_OF_PARTS = ((4, 2), (2, 3), (3, 3), (4, 3), (2, 2, 2), (2, 3, 2))
GRIDS_OF_STRAGGLERS = ((8,), (4, 2), (4, 4), (3, 4), (2, 2, 2), (2, 4, 2))
THROUGH_ALL = ("oneHalvingDoubling", "oneHalvingDoubling", "oneRing", "oneDirect")
PRESETS = (
    ("h100-dgx", (8,)),
    ("h100-dgx", (8, 2)),
    ("mi300x-node", (8,)),
    ("a100-dgx-80gb", (8, 2)),
    ("l40s-node", (4,)),
)
SMALL = ("1KiB", "16KiB", "256KiB")
GRIDS = ((2,), (3,), (4,), (4,), (5,), (6,), (8,), (2, 2), (2, 3), (4, 2), (2, 2, 2))


class Case(NamedTuple):
    """A workload and the arguments of a run."""

    workload: Workload
    machine: dict[str, Any]


class Step(NamedTuple):
    """A part of a program: an action, and the earlier parts that it follows."""

    what: str
    after: list[int]
    details: tuple[Any, ...]


def random_case(seed: int, *, in_parts: bool = False) -> Case:
    """Return the case of a seed; `in_parts`: with groups on parts of machines of several dimensions."""
    draw = Random(seed)
    npus = list(draw.choice(GRIDS_OF_PARTS if in_parts else GRIDS))
    ranks = int(np.prod(npus))
    groups = _parts(draw, npus) if in_parts else _groups(draw, ranks)
    machine = _machine(draw, npus)
    if in_parts:
        machine["system"]["profile"] = "corrected"
        machine["model"] = draw.choice(("analytical", "link", "flow"))
    machine["system"] |= _stragglers(draw, ranks)
    if groups:
        machine["groups"] = {name: list(members) for name, members in groups.items()}
    program = random_program(draw, ranks)
    variants = draw.choice((1, 1, 2, 3))
    of_rank = _variant_of_ranks(draw, ranks, variants, npus[0])
    traces, template_of = [], []
    known: dict[tuple[Any, ...], int] = {}
    pace = draw.choice((0, 0, 1, 2))
    twist = draw.random() < 0.4
    for rank in range(ranks):
        named = _groups_of_rank(draw, groups, rank, twist, of_rank[rank])
        key = (of_rank[rank], named)
        if key not in known:
            known[key] = len(traces)
            traces.append(random_trace(program, ranks, named, of_rank[rank], pace))
        template_of.append(known[key])
    workload = Workload(tuple(traces), np.array(template_of, np.int32), relative_peers=(True,) * len(traces))
    return Case(workload, machine)


def straggling_case(seed: int) -> Case:
    """Return the case of a seed with one or two stragglers, mostly in groups side by side.

    Otherwise all ranks run the same program, so that groups without a straggler may stay alike.
    """
    draw = Random(seed)
    npus = list(draw.choice(GRIDS_OF_STRAGGLERS))
    ranks = int(np.prod(npus))
    machine = _machine(draw, npus)
    machine["model"] = draw.choice(("analytical", "link", "flow"))
    if draw.random() < 0.4:
        for kind in ("all-reduce", "all-gather", "reduce-scatter"):
            machine["system"][f"{kind}-implementation"] = [draw.choice(THROUGH_ALL)]
    late = draw.sample(range(ranks), draw.choice((1, 1, 2)))
    how = draw.choice(({"delay": "1us"}, {"delay": "500ns"}, {"delay": "20us"}, {"compute": 1.5}))
    machine["system"]["stragglers"] = [{"ranks": str(rank), **how} for rank in late]
    groups = _parts(draw, npus) if draw.random() < 0.7 else {}
    if groups:
        machine["groups"] = {name: list(members) for name, members in groups.items()}
    program = random_program(draw, ranks)
    if groups and draw.random() < 0.8:
        program = [step if step.what != "exchange" else Step("instant", step.after, ()) for step in program]
    traces, template_of, known = [], [], dict[tuple[str, ...], int]()
    for rank in range(ranks):
        named = _groups_of_rank(draw, groups, rank, False, 0)
        if named not in known:
            known[named] = len(traces)
            traces.append(random_trace(program, ranks, named, 0, 0))
        template_of.append(known[named])
    workload = Workload(tuple(traces), np.array(template_of, np.int32), relative_peers=(True,) * len(traces))
    return Case(workload, machine)


def working_case(seed: int) -> Case:
    """Return the case of a seed in which all ranks run one program that begins with a kernel."""
    draw = Random(seed)
    npus = list(draw.choice(GRIDS_OF_STRAGGLERS))
    ranks = int(np.prod(npus))
    machine = _machine(draw, npus)
    machine["model"] = draw.choice(("analytical", "link", "flow"))
    groups = _parts(draw, npus) if draw.random() < 0.7 else {}
    if groups:
        machine["groups"] = {name: list(members) for name, members in groups.items()}
    first = Step("compute", [], (draw.choice((2, 20)), False, False))
    rest = [step._replace(after=[0, *(at + 1 for at in step.after)]) for step in random_program(draw, ranks)]
    last = Step("compute", [len(rest)], (draw.choice((1, 5)), False, draw.random() < 0.3))
    traces, template_of, known = [], [], dict[tuple[str, ...], int]()
    for rank in range(ranks):
        named = _groups_of_rank(draw, groups, rank, False, 0)
        if named not in known:
            known[named] = len(traces)
            traces.append(random_trace([first, *rest, last], ranks, named, 0, 0))
        template_of.append(known[named])
    workload = Workload(tuple(traces), np.array(template_of, np.int32), relative_peers=(True,) * len(traces))
    return Case(workload, machine)


def buffered_case(seed: int) -> Case:
    """Return the case of a seed with late and slow ranks on a machine whose library has finite buffers."""
    draw = Random(seed)
    name, npus = draw.choice(PRESETS)
    ranks = int(np.prod(npus))
    found = preset(f"{name}:{ranks}")
    library = found.system["library"] | {"buffers": _buffers(draw)}
    keys = found.system | {"library": library, "stragglers": _late(draw, ranks)}
    del keys["compute"], keys["costs"]  # computations last as long as their traces state
    machine = {"system": keys, "network": found.network, "model": draw.choice(("analytical", "link", "flow"))}
    groups = _parts(draw, list(npus)) if draw.random() < 0.6 else {}
    if groups:
        machine["groups"] = {group: list(members) for group, members in groups.items()}
    scale = draw.choice((1, 100, 1000))
    program = [_scaled(step, scale) for step in random_program(draw, ranks)]
    traces, template_of, known = [], [], dict[tuple[str, ...], int]()
    for rank in range(ranks):
        named = _groups_of_rank(draw, groups, rank, False, 0)
        if named not in known:
            known[named] = len(traces)
            traces.append(random_trace(program, ranks, named, 0, 0))
        template_of.append(known[named])
    workload = Workload(tuple(traces), np.array(template_of, np.int32), relative_peers=(True,) * len(traces))
    return Case(workload, machine)


def _buffers(draw: Random) -> dict[str, Any]:
    """Draw the buffers of the library, none, one slot of each kind, or small ones."""
    keys = ("slot-ll", "slot-ll128", "slot-simple", "send-slot-within", "send-slot-between")
    small = {key: draw.choice(SMALL) for key in keys} | {"slots": draw.choice((1, 2, 8))}
    return draw.choice(({}, {"direct": True}, {"slots": 1}, small, small))


def _late(draw: Random, ranks: int) -> list[dict[str, Any]]:
    """Draw ranks that are late or slow: single ones, or a half of them."""
    hows = ({"delay": "1us"}, {"delay": "70us"}, {"delay": "3ms"}, {"compute": 1.5})
    which = [f"0-{ranks // 2 - 1}", f"0-{ranks - 1}/2", *map(str, draw.sample(range(ranks), 2))]
    which = draw.sample(which, draw.choice((1, 1, 2)))
    return [{"ranks": ranks_text, **draw.choice(hows)} for ranks_text in which]


def _scaled(step: Step, scale: int) -> Step:
    """Return the step with messages `scale` times as large."""
    if step.what not in ("collective", "exchange"):
        return step
    first, size, *rest = step.details
    return step._replace(details=(first, size * scale, *rest))


def _machine(draw: Random, npus: list[int]) -> dict[str, Any]:
    shapes = [draw.choice(SHAPES) for _ in npus]
    keys: dict[str, Any] = {
        "profile": draw.choice(("reference", "corrected")),
        "scheduling-policy": draw.choice(("LIFO", "FIFO", "EXPLICIT")),
        "preferred-dataset-splits": draw.choice((1, 1, 2, 3, 5)),
        "active-chunks-per-dimension": draw.choice((1, 1, 2, 4)),
        "num-queues-per-dim": draw.choice((1, 1, 2, 3)),
        "endpoint-delay": draw.choice((0, 0, 10, 500)),
        "local-mem-bw": draw.choice((0, 50, 50)),
        "rendezvous-protocol": draw.random() < 0.2,
        "collective-optimization": draw.choice(("baseline", "localBWAware")),
    }
    if keys["profile"] == "corrected" and draw.random() < 0.3:
        keys["inter-dimension-scheduling"] = draw.choice(("roundRobin", "offlineGreedy", "onlineGreedy"))
        keys["intra-dimension-scheduling"] = draw.choice(
            ("FIFO", "RG", "smallestFirst", "lessRemainingPhaseFirst")
        )
    for kind in ("all-reduce", "all-gather", "reduce-scatter"):
        keys[f"{kind}-implementation"] = [draw.choice(ALGORITHMS)] * len(npus)
    keys["all-to-all-implementation"] = [draw.choice(ALL_TO_ALL)] * len(npus)
    speeds = {"bandwidth": draw.choice((50.0, 50.0, 1.0)), "latency": draw.choice((500.0, 500.0, 10.0, 0.0))}
    return {
        "network": network(shapes, npus, **speeds),
        "system": system("ring", len(npus), **keys),
        "model": draw.choice(("analytical", "link")),
    }


def graph_under(draw: Random, npus: list[int]) -> dict[str, Any]:
    """Return a graph under these dimensions."""
    ranks = int(np.prod(npus))
    rate = {"bandwidth": draw.choice(("1GB/s", "50GB/s", "33GB/s")), "latency": draw.choice((0, 10, 500))}
    graphs: list[dict[str, Any]] = [
        {"generator": "ring", "npus": ranks},
        {"generator": "switch", "npus": ranks},
        {
            "generator": "torus" if draw.random() < 0.5 else "mesh",
            "sizes": npus if len(npus) > 1 else [ranks],
        },
    ]
    if ranks % 2 == 0:
        pair, rest = ({"generator": "switch", "npus": count, **rate} for count in (2, ranks // 2))
        rails = {"generator": "nested", "attach": "rails", "copies": 2, "inner": rest, "outer": pair}
        leaves = {"generator": "leaf-spine", "npus-per-leaf": ranks // 2, "leaves": 2}
        graphs += [rails, {**leaves, "spines": 1}, {**leaves, "spines": 2}]
    routing = draw.choice(("shortest", "shortest", "ecmp", "ecmp-ns3", "dimension-order"))
    return {"graph": draw.choice(graphs) | rate, "routing": routing, "logical-dimensions": npus}


def _stragglers(draw: Random, ranks: int) -> dict[str, Any]:
    if draw.random() < 0.8:
        return {}
    which = draw.choice(("0", f"{ranks - 1}", f"0-{ranks - 1}/2"))
    what = draw.choice(({"delay": "1us"}, {"delay": "500ns"}, {"compute": 1.5}, {"compute": 2.0}))
    return {"stragglers": [{"ranks": which, **what}]}


def _groups(draw: Random, ranks: int) -> dict[str, tuple[int, ...]]:
    """Draw groups of a file: some span the system, some have equal members."""
    groups: dict[str, tuple[int, ...]] = {}
    everyone = tuple(range(ranks))
    for number in range(draw.choice((0, 0, 1, 2, 3, 4))):
        kind = draw.random()
        if kind < 0.45:
            members = everyone
        elif kind < 0.8 and ranks % 2 == 0:
            first = draw.choice((everyone[: ranks // 2], everyone[::2]))
            members = draw.choice((first, tuple(rank for rank in everyone if rank not in first)))
        elif groups and kind < 0.9:
            members = draw.choice(list(groups.values()))
        else:
            members = tuple(draw.sample(everyone, draw.randint(1, ranks)))
        groups[str(number + 1)] = members
    return groups


def _parts(draw: Random, npus: list[int]) -> dict[str, tuple[int, ...]]:
    """Draw groups side by side: sub-grids, or equal numbers of consecutive ranks in any nodes."""
    ranks, groups = int(np.prod(npus)), dict[str, tuple[int, ...]]()
    place = np.stack(np.unravel_index(np.arange(ranks), npus[::-1]))[::-1]  # by dimension
    for _ in range(draw.choice((1, 1, 2))):
        if draw.random() < 0.6:
            along = [draw.choice((True, False)) for _ in npus]
            key = (place * ~np.array(along)[:, None] * np.cumprod([1, *npus[:-1]])[:, None]).sum(axis=0)
        else:
            key = (
                np.arange(ranks) // draw.choice((3, 4, 5))
                + draw.choice((0, 1)) * (np.arange(ranks) % 2) * ranks
            )
        for number in np.unique(key).tolist():
            members = np.flatnonzero(key == number).tolist()
            groups[str(len(groups) + 1)] = tuple(draw.sample(members, len(members)))
    return groups


def _groups_of_rank(
    draw: Random, groups: dict[str, tuple[int, ...]], rank: int, twist: bool, variant: int
) -> tuple[str, ...]:
    """Return the names by which the rank refers to the first, second and third group of the program."""
    mine = [name for name, members in groups.items() if rank in members]
    if not mine:
        return ("", "", "")
    if twist and draw.random() < 0.3:
        return tuple(draw.choice(["", *mine]) for _ in range(3))
    return (mine[0], mine[-1], mine[variant % len(mine)])


def random_program(draw: Random, ranks: int) -> list[Step]:
    """Return the steps of a program, and after which earlier ones each begins."""
    steps: list[Step] = []
    chained = draw.choice((0.0, 0.3, 0.7))
    common = draw.choice(SIZES)
    for number in range(draw.randint(1, 7)):
        after = [place for place in range(number) if draw.random() < chained][-2:]
        what = draw.choice(("compute", "collective", "collective", "exchange", "exchange", "instant"))
        size = common if draw.random() < 0.5 else draw.choice(SIZES)
        if what == "compute":
            details: tuple[Any, ...] = (draw.choice((0, 1, 1, 3)), draw.random() < 0.2, draw.random() < 0.3)
        elif what == "collective":
            kind = draw.choice(KINDS) if draw.random() < 0.9 else draw.choice(ROOTED)
            group = draw.choice((None, None, 0, 1, 2))
            priority = draw.choice((None, None, 0, 1, 5))
            details = (kind, size, group, priority, draw.random() < 0.2)
        elif what == "exchange":
            distance = draw.choice((1, 1, ranks - 1, draw.randint(1, ranks - 1)))
            details = (distance, size, draw.choice((0, 1, 2, number)), draw.random() < 0.3)
        else:
            details = ()
        steps.append(Step(what, after, details))
    return steps


def _variant_of_ranks(draw: Random, ranks: int, variants: int, row: int) -> list[int]:
    kind = draw.random()
    if kind < 0.4:
        return [rank % variants for rank in range(ranks)]
    if kind < 0.7:
        return [rank // row % variants for rank in range(ranks)]
    return [draw.randrange(variants) for _ in range(ranks)]


def random_trace(program: list[Step], ranks: int, named: tuple[str, ...], variant: int, pace: int) -> Trace:
    """Return the trace of a program; `named` are its groups."""
    build = TraceBuilder()
    made: list[list[int]] = []
    for number, (what, after, details) in enumerate(program):
        parents = [node for place in after for node in made[place]]
        if what == "compute":
            micros, cpu, concurrent = details
            micros += variant * pace
            made.append(
                [
                    build.compute(
                        f"compute{number}", micros=micros, cpu=cpu, concurrent=concurrent, after=parents
                    )
                ]
            )
        elif what == "collective":
            kind, size, group, priority, concurrent = details
            name = "" if group is None else named[group]
            made.append(
                [
                    build.collective(
                        kind, size, group=name, priority=priority, concurrent=concurrent, after=parents
                    )
                ]
            )
        elif what == "exchange":
            distance, size, tag, receives_first = details
            if receives_first:
                received = build.receive(ranks - distance, size, tag=tag, after=parents)
                made.append([received, build.send(distance, size, tag=tag, after=parents)])
            else:
                sent = build.send(distance, size, tag=tag, after=parents)
                made.append([sent, build.receive(ranks - distance, size, tag=tag, after=parents)])
        else:
            made.append([build.invalid(f"instant{number}", after=parents)])
    return build.build()


def outcome(case: Case, fold: bool) -> Any:
    """Return all visible results of a run by rank (end, times, shares of time, waits), or the refusal."""
    try:
        result = run(case.workload, **case.machine, fold=fold)
    except EtSimError as error:
        return f"{type(error).__name__}: {error}"
    plan, nodes = result.outcome.plan, result.outcome.nodes
    times = []
    for rank in range(case.workload.ranks):
        actor = plan.actors[int(plan.actor_of_rank[rank])]
        first = int(actor.node_first)
        count = int(plan.templates[int(actor.template)].nodes)
        mine = nodes[first : first + count]
        times.append([ready_ns(result.outcome, int(plan.actor_of_rank[rank])).tolist()])
        times[-1] += [mine[column].tolist() for column in ("start_ns", "end_ns")]
    spent = figures_of_ranks(result.measurement)
    waits = result.outcome.waits_ns  # of messages that lost bytes
    return result.is_complete, result.finish_ns.tolist(), times, result.outcome.messages, spent, waits


def ready_ns(outcome: Outcome, actor: int) -> Any:
    """Return when each node of an actor became ready; -1: it never did."""
    plan = outcome.plan
    template, first = plan.templates[plan.actors["template"][actor]], int(plan.actors["node_first"][actor])
    state = outcome.nodes[first : first + int(template.nodes)]
    issued = np.flatnonzero(state["start_ns"] >= 0)
    ready = np.array(state["admitted_ns"])  # of nodes that were not issued
    at = int(template.node_first) + issued
    ready[issued] = ReadyTimes(outcome).of(np.full(len(issued), actor), at, state[issued])
    return ready


def actors_of(case: Case) -> int:
    """Return the number of actors at the end of the folded run of a case."""
    return len(run(case.workload, **case.machine).outcome.plan.actors)
