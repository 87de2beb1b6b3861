"""Random small traces that nearly match, or are damaged: what checks and readers report of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from machines import network, ring, system
from msgspec.structs import replace
from mutations import damage_bytes, damage_json, damage_nodes, damage_words
from random_runs import Drawn

from et_sim.api import run
from et_sim.basics.errors import EtSimError
from et_sim.layerfile.layer_file import layer_file_text
from et_sim.layerfile.reading import read_layer_file
from et_sim.trace import (
    GroupRule,
    Trace,
    TraceBuilder,
    Workload,
    decode,
    encode_trace,
    read_workload,
    write_manifest,
    write_workload,
)
from et_sim.trace.expansion import Expansion
from et_sim.trace.preflight import find_problems

RANKS = 4
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "barrier")
GROUPS = {"near": [0, 1], "odd": [1, 3], "three": [2, 0, 3]}
DAMAGES = 12
LAYERS = """{head}
3
first -1 70 NONE 0 1000 ALLREDUCE {size} 500 ALLREDUCE {size} 10{own}
second -1 200 {kind} {size} 300 NONE 0 900 ALLREDUCE 4096 20{own}
third -1 20 NONE 0 3 ALLTOALL 64 9 NONE 0 0{other}
"""
GROUP = "model_parallel_NPU_group: 2"
HEADS = (
    *("DATA", "DATA_REORDER", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", "HYBRID_CUSTOMIZED"),
    *(f"HYBRID_TRANSFORMER {GROUP}", "HYBRID_DLRM {first}", "HYBRID_DLRM_ENHANCED 0"),
    *("DISTRIBUTED_INFERENCE", "MICRO"),
    *(f"HYBRID_TRANSFORMER_FWD_IN_BCKWD {GROUP} checkpoints: {which}" for which in ("2 0 {first}", "1 0")),
)
INITIATES = " checkpoint_initiates: 1 {second}"
GOAL = """num_ranks 2
rank 0 {
l1: calc 700 cpu 0
l2: send 4096b to 1 tag 3 nic 0
l3: recv 8b from 1 tag 1
l2 requires l1
}
rank 1 {
l1: recv 4096b from 0 tag 3
l2: calc 7
l3: send 8b to 0 tag 1
l2 irequires l1
l3 requires l2
}
"""


def _reported(report: Callable[[], Any]) -> Drawn:
    """Return a run of nothing with a report beside it."""
    build = TraceBuilder()
    build.compute(nanos=1)

    def beside(folder: Path) -> None:
        (folder / "reported.json").write_text(json.dumps(report()), encoding="utf-8")

    options = {"system": system(), "network": ring(1)}
    return Drawn(Workload.of([build.build()]), options, beside=beside)


def _or_error(made: Callable[..., Any], *given: Any) -> Any:
    try:
        return made(*given)
    except EtSimError as error:
        return str(error)


def nearly(seed: int) -> Drawn:
    """Return what a check of a job reports in which ranks do not quite agree, and the end of its run."""
    draw = Random(seed)
    rate = draw.choice((0.0, 0.03, 0.1))
    programs: list[list[Call]] = [[] for _ in range(RANKS)]
    for number in range(draw.randint(1, 6)):
        _add_operation(draw, programs, number, rate)
    traces = [_trace(draw, rank, calls, rate) for rank, calls in enumerate(programs)]
    rules = {"pairs": GroupRule(2, draw.choice((1, 2)))}
    workload = replace(Workload.of(traces), group_rules=rules)
    if draw.random() < 0.15:
        relative = (draw.random() < 0.5,)
        workload = Workload(tuple(traces[:1]), np.zeros(RANKS, np.int32), relative_peers=relative)
    groups = {name: tuple(ranks) for name, ranks in GROUPS.items()}
    own = system("ring", 1, profile=draw.choice(("reference", "corrected")))
    own |= {"rendezvous-protocol": draw.random() < 0.5}

    def report() -> Any:
        given: tuple[dict[str, Any], ...] = ({}, {"groups": groups}, {"ranks": draw.choice((3, RANKS + 2))})
        found = [find_problems(workload, **options) for options in given]
        ends = [_or_error(_end, workload, own, of) for of in (None, GROUPS)]
        return [[[each.kind, each.ranks, each.text] for each in problems] for problems in found], ends

    return _reported(report)


def _end(workload: Workload, own: dict[str, Any], groups: Any) -> str:
    result = run(workload, system=own, network=ring(RANKS), groups=groups)
    return result.stall.text if result.stall is not None else f"{result.makespan_ns} ns"


class Call(NamedTuple):
    """A call of a builder, and whether its node follows the one before it."""

    method: str
    given: dict[str, Any]
    follows: bool


def _trace(draw: Random, rank: int, calls: list[Call], rate: float) -> Trace:
    """Return the trace of a rank, on which calls may be swapped, left out or in a circle."""
    build, last = TraceBuilder(source=f"job.{rank}.et"), list[int]()
    if draw.random() < 0.3:
        build.process_groups({name: ranks for name, ranks in GROUPS.items() if draw.random() < 1 - rate})
    for at in range(1, len(calls)):
        if draw.random() < rate:
            calls[at - 1 : at + 1] = calls[at - 1 : at + 1][::-1]
    for call in calls:
        if draw.random() > rate / 2:
            last = [getattr(build, call.method)(**call.given, after=last if call.follows else [])]
    if draw.random() < rate:
        first, size = 100, draw.choice((1, 2, 3))
        for at in range(size):
            build.compute("circle", nanos=1, node_id=first + at, after=[first + (at + 1) % size])
    return build.build()


def _add_operation(draw: Random, programs: list[list[Call]], number: int, rate: float) -> None:
    """Add one operation to the ranks that take part, some of which differ from the others."""

    def or_other(value: Any, *others: Any) -> Any:
        return draw.choice(others) if draw.random() < rate else value

    size, follows = draw.choice((0, 640, 4096)), draw.random() < 0.7
    what = draw.choice(("collective", "collective", "message", "message", "around", "kernel"))
    kind, group = draw.choice(COLLECTIVES), draw.choice(("", "", "near", "odd", "three", "pairs"))
    root, tag = draw.choice((None, 1)), draw.choice((0, 0, number))
    (source, target), starts = draw.sample(range(RANKS), 2), draw.random() < 0.8
    for rank, calls in enumerate(programs):

        def add(method: str, calls: list[Call] = calls, **given: Any) -> None:
            calls.append(Call(method, given, follows))

        def message(method: str, peer: int, tag: int, add: Callable[..., None] = add) -> None:
            peers: dict[str, Any] = {"to" if method == "send" else "source": peer}
            add(method, **peers, bytes=or_other(size, 8), tag=or_other(tag, 5))

        if what == "kernel":
            add("compute", name=f"k{number}", nanos=or_other(30, 900))
        elif what == "collective" and rank in GROUPS.get(group, range(RANKS)):
            more: dict[str, Any] = {"root": or_other(root, 0, 9)} if kind in ("broadcast", "reduce") else {}
            more |= {"involved_dims": [draw.random() < 0.5]} if draw.random() < rate else {}
            more |= {"splits": [size] * draw.choice((2, RANKS))} if kind == "all_to_all" and rate else {}
            sent = 0 if kind == "barrier" else or_other(size, size + 64)
            more |= {} if "splits" in more else {"bytes": sent}
            others = COLLECTIVES[:3] if "bytes" in more and "root" not in more else (kind,)
            add("collective", kind=or_other(kind, *others), group=or_other(group, "", "near"), **more)
        elif what == "message" and rank == source:
            message("send", or_other(target, rank, 7), tag)
        elif what == "message" and rank == target:
            message("receive", or_other(source, 7), tag)
        elif what == "around":
            ends = (("send", (rank + 1) % RANKS), ("receive", (rank - 1) % RANKS))
            for method, peer in ends if starts else ends[::-1]:
                message(method, peer, 90 + number)


def written(seed: int) -> Drawn:
    """Return digests of the files of a job, and what readers report once these are damaged."""
    draw = Random(seed)

    def report() -> Any:
        workload = _written_job(draw)
        write_workload(workload, "job")
        write_manifest(workload, "job.workload.json", draw.choice((None, {"job": "x", "layers": 2})))
        files = {path.name: path.read_bytes() for path in sorted(Path().glob("job*"))}
        shown: list[Any] = [[name, _digest(content)] for name, content in files.items()]
        shown += [_or_error(_again, name) for name in ("job", "job.workload.json")]
        expansion = Expansion(workload)
        shown.append([_digest(encode_trace(expansion.trace(rank))) for rank in range(RANKS)])
        for _ in range(DAMAGES):
            name = draw.choice([name for name in sorted(files) if "groups" not in name])
            damage = damage_json if name == "job.workload.json" else draw.choice((damage_bytes, damage_nodes))
            content = damage(files[name], draw)
            if name == "job.workload.json":
                Path(name).write_bytes(content)
                shown.append(_or_error(_again, name))
                Path(name).write_bytes(files[name])
            else:
                is_dropped = draw.random() < 0.3
                shown.append(_or_error(_decoded, content, is_dropped))
        return shown

    return _reported(report)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _again(name: str) -> list[Any]:
    read = read_workload(name)
    traces = [_digest(encode_trace(trace)) for trace in read.templates]
    return [read.ranks, read.template_of_rank.tolist(), traces, list(read.notices), sorted(read.group_rules)]


def _decoded(content: bytes, is_dropped: bool) -> list[Any]:
    trace = decode(content, "job.0.et", drop_dangling=is_dropped)
    return [_digest(encode_trace(trace)), trace.dropped_dependencies, list(trace.ignored_attributes)]


def _written_job(draw: Random) -> Workload:
    """Return a job with nodes of all kinds and attributes."""
    builders = [TraceBuilder(version="1.0" * (rank % 2)) for rank in range(RANKS)]
    for number in range(draw.randint(2, 9)):
        what = draw.choice(("kernel", "kernel", "collective", "exchange", "message", "memory", "text"))
        size, flags = draw.choice((0, 1, 127, 128, 65_536, 2**40)), draw.choice(((True,), (True, False)))
        for rank, build in enumerate(builders):
            identity: dict[str, Any] = {"node_id": 10 * (20 - number)} if draw.random() < 0.1 else {}
            after: dict[str, Any] = {"after": []} if draw.random() < 0.4 else {}
            if what == "kernel":
                more: dict[str, Any] = {"num_ops": size, "tensor_bytes": size} if draw.random() < 0.6 else {}
                tensors: dict[str, Any] = (
                    {"inputs": {"x": 64, f"y{number}": size}} if draw.random() < 0.3 else {}
                )
                tensors |= {"outputs": {"z": size}} if draw.random() < 0.3 else {}
                marks: dict[str, Any] = {"attributes": {"gap": 1}} if draw.random() < 0.2 else {}
                layer: dict[str, Any] = (
                    {"layer_shape": "gemm 4 4 4", "dtype": "bf16"} if draw.random() < 0.2 else {}
                )
                time: dict[str, Any] = {"nanos": size} if draw.random() < 0.5 else {"micros": size % 9999}
                build.compute(
                    f"k{number}", cpu=draw.random() < 0.2, **more, **tensors, **marks, **layer, **time
                )
            elif what == "collective":
                dims: dict[str, Any] = {"involved_dims": flags} if draw.random() < 0.5 else {}
                group = draw.choice(("", "pairs", "7"))
                build.collective("all_reduce", size, group, priority=draw.choice((None, 3)), **dims, **after)
            elif what == "exchange":
                build.collective("all_to_all", splits=[(size + rank) % 999] * RANKS, **identity, **after)
            elif what == "message":
                build.send((rank + 1) % RANKS, size, tag=number, **after)
                build.receive((rank - 1) % RANKS, size, tag=number, **after)
            elif what == "memory":
                build.load(size, tier=draw.choice((None, 1)), **after)
                build.store(size, reduce=draw.choice((None, None, "")), **after)
            else:
                build.process_groups({"7": [0, 1], "all": []})
                build.invalid(f"nothing {number}")
    traces = tuple(build.build() for build in builders)
    of_rank = np.array([0, 1, 2, 3] if draw.random() < 0.5 else [0, 1, 0, 1], np.int32)
    rules = {"pairs": GroupRule(2, draw.choice((1, 2)))}
    return Workload(traces, of_rank, group_rules=rules)


def misread(seed: int) -> Drawn:
    """Return the loops of layer files, and what readers of texts report of wrong words."""
    draw = Random(seed)

    def report() -> Any:
        return [each for _ in range(DAMAGES // 2) for each in (_of_layers(draw), _of_goal(draw))]

    return _reported(report)


def _of_layers(draw: Random) -> list[Any]:
    head = draw.choice(HEADS)
    owned = draw.choice((" DATA", " MODEL")) if "CUSTOM" in head else " DATA" * (draw.random() < 0.05)
    text = LAYERS.format(
        head=(head + INITIATES * ("checkpoints" in head)).format(
            first=draw.choice((0, 0, 1, 3)), second=draw.choice((1, 2, 2, 0, 4))
        ),
        size=draw.choice((64, 4096)),
        kind=draw.choice(("ALLGATHER", "ALLTOALL", "REDUCESCATTER", "NONE")),
        own=owned,
        other=" HYBRID_DATA_MODEL" if owned else "",
    )
    if draw.random() < 0.4:
        text = damage_words(text.encode(), draw).decode(errors="replace")
    Path("layers.txt").write_text(text, encoding="utf-8")
    net = network(["Ring", "Switch"], [2, draw.choice((1, 2))])
    return [
        _or_error(lambda: layer_file_text(read_layer_file("layers.txt"))),
        _or_error(lambda: run("layers.txt", system=system("ring", 2), network=net).makespan_ns),
    ]


def _of_goal(draw: Random) -> Any:
    Path("job.goal").write_bytes(damage_words(GOAL.encode(), draw))
    return _or_error(_again, "job.goal")


TRACES: dict[str, Callable[[int], Drawn]] = {"nearly": nearly, "written": written, "misread": misread}
