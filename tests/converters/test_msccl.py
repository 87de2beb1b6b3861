"""`et-convert msccl`: programs that run, in the time that their steps add up to; refusals."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from cases import all_cases
from machines import network

from converters.cli import main
from converters.msccl_programs import MscclCosts, programs
from converters.msccl_xml import STEP_TYPES, parse_algorithm
from et_sim.api import run
from et_sim.basics.errors import TraceError
from et_sim.trace import NodeKind, Trace, TraceBuilder, Workload, read_workload

LATENCY_NS, BYTES_PER_NS = 500.0, 50 * 2**30 / 1e9
Block = tuple[int, int, int, list[Any]]  # send, recv, chan, steps


def step(number: int, kind: str, cnt: int = 1, dep: tuple[int, int] = (-1, -1)) -> str:
    return (
        f'<step s="{number}" type="{kind}" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="{cnt}"'
        f' depid="{dep[0]}" deps="{dep[1]}" hasdep="0"/>'
    )


def block(number: int, send: int, receive: int, steps: list[str], channel: int = 0) -> str:
    numbered = "".join(steps)
    return f'<tb id="{number}" send="{send}" recv="{receive}" chan="{channel}">{numbered}</tb>'


def algorithm(gpus: list[list[str]], chunks: int, collective: str = "allgather", **keys: Any) -> str:
    count = keys.get("ngpus", len(gpus))
    inside = "".join(
        f'<gpu id="{number}" i_chunks="1" o_chunks="{chunks}" s_chunks="0">{"".join(blocks)}</gpu>'
        for number, blocks in enumerate(gpus)
    )
    head = f'name="mine" nchunksperloop="{chunks}" nchannels="1" proto="Simple" ngpus="{count}"'
    return f'<algo {head} coll="{collective}" inplace="1">{inside}</algo>'


def ring_all_gather(n: int) -> str:
    """Return a ring in which every GPU sends its chunk, then passes on the chunks that it receives except the
    last.
    """
    steps = [step(0, "s"), *(step(i, "rcs") for i in range(1, n - 1)), step(n - 1, "r")]
    return algorithm([[block(0, (g + 1) % n, (g - 1) % n, steps)] for g in range(n)], n)


def recursive_doubling(n: int) -> str:
    """Return a threadblock per level and direction; a level waits for the arrival of the level before."""
    gpus = []
    for gpu in range(n):
        blocks = []
        for level in range(n.bit_length() - 1):
            peer, cnt = gpu ^ (1 << level), 1 << level
            dep = (2 * level - 1, 0) if level else (-1, -1)
            blocks.append(block(2 * level, peer, -1, [step(0, "s", cnt, dep)]))
            blocks.append(block(2 * level + 1, -1, peer, [step(0, "r", cnt)]))
        gpus.append(blocks)
    return algorithm(gpus, n)


def ring_all_reduce(n: int) -> str:
    """Return a reduce-scatter by rrcs, then an all-gather by rcs."""
    middle = ["rrcs"] * (n - 1) + ["rcs"] * (n - 2)
    steps = [step(0, "s"), *(step(i, kind) for i, kind in enumerate(middle, 1)), step(len(middle) + 1, "r")]
    return algorithm([[block(0, (g + 1) % n, (g - 1) % n, steps)] for g in range(n)], n, "allreduce")


def converted(text: str, size: int = 1 << 20, reduce_micros: int = 0) -> list[Trace]:
    parsed = parse_algorithm(text.encode(), "algo.xml")
    return programs(parsed, MscclCosts(-(-size // parsed.chunks), reduce_micros), "algo.xml")


def flight(size: int) -> int:
    return math.floor(LATENCY_NS + size / BYTES_PER_NS)


def finish_times(folder: Path, text: str, *options: str, kind: str = "all-gather") -> list[int]:
    """Convert by the command line, and run it in place of a collective on a fully connected machine."""
    path = folder / "algo.xml"
    path.write_text(text)
    assert main(["msccl", str(path), "-o", str(folder / "custom" / "algo"), *options]) == 0
    ranks = read_workload(folder / "custom" / "algo").ranks
    builder = TraceBuilder()
    builder.collective(kind.replace("-", "_"), 4096)
    result = run(
        Workload.of([builder.build()] * ranks),
        system={
            "scheduling-policy": "FIFO",
            "preferred-dataset-splits": 1,
            f"{kind}-implementation-custom": [str(folder / "custom" / "algo")],
        },
        network=network(["FullyConnected"], [ranks], latency=LATENCY_NS),
    )
    times: list[int] = result.finish_ns.tolist()
    return times


# ---- timing


@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_a_ring_all_gather_takes_one_flight_per_step(ranks: int, tmp_path: Path) -> None:
    times = finish_times(tmp_path, ring_all_gather(ranks), "--bytes", str(ranks * 65536))
    assert times == [(ranks - 1) * flight(65536)] * ranks


def test_recursive_doubling_takes_flights_of_doubling_sizes(tmp_path: Path) -> None:
    times = finish_times(tmp_path, recursive_doubling(8), "--bytes", "8MiB")
    assert times == [sum(flight(size << 20) for size in (1, 2, 4))] * 8


@pytest.mark.parametrize(("micros", "reduction_ns"), [(0, 1), (7, 7000)])
def test_a_ring_all_reduce_takes_its_flights_and_reductions(
    micros: int, reduction_ns: int, tmp_path: Path
) -> None:
    text, options = ring_all_reduce(4), ("--bytes", "1MiB", "--reduce-micros", str(micros))
    times = finish_times(tmp_path, text, *options, kind="all-reduce")
    assert times == [6 * flight(1 << 18) + 3 * reduction_ns] * 4


def test_the_shipped_example_of_eight_ranks_comes_out_node_by_node_and_takes_90174_ns(
    tmp_path: Path,
) -> None:
    case = next(case for case in all_cases() if case.name == "custom-0000")
    case.write_programs(tmp_path)
    shipped = read_workload(tmp_path / "custom" / "algo")
    columns = ("kind", "comm_bytes", "comm_dst", "comm_src", "duration_us", "data_deps")
    for rank, ours in enumerate(converted(ring_all_reduce(8), reduce_micros=7)):
        theirs = shipped.trace(rank)
        assert [getattr(ours, name).tolist() for name in columns] == [
            getattr(theirs, name).tolist() for name in columns
        ]
    times = finish_times(tmp_path, ring_all_reduce(8), "--reduce-micros", "7", kind="all-reduce")
    assert times == [90_174] * 8


def test_an_idle_gpu_takes_no_time_of_the_others(tmp_path: Path) -> None:
    text = algorithm([[block(0, 1, -1, [step(0, "s")])], [block(0, -1, 0, [step(0, "r")])], []], 1)
    assert finish_times(tmp_path, text, "--bytes", "65536")[:2] == [flight(65536)] * 2


# ---- outputs


def test_a_step_that_receives_reduces_and_sends_is_three_nodes_in_sequence() -> None:
    trace = converted(ring_all_reduce(4))[0]
    kinds = [NodeKind(kind).name for kind in trace.kind]
    assert kinds[:4] == ["SEND", "RECV", "COMP", "SEND"]
    assert trace.data_deps.tolist() == list(range(len(kinds) - 1))
    assert trace.node_name(2) == "reduce of rrcs, threadblock 0 step 1"


@pytest.mark.parametrize("kind", list(STEP_TYPES))
def test_every_type_of_step_becomes_its_nodes(kind: str) -> None:
    work = STEP_TYPES[kind]
    here = block(0, 1, 1, [step(0, kind)])
    there = ([step(0, "s")] if work.receives else []) + (
        [step(int(work.receives), "r")] if work.sends else []
    )
    trace = converted(algorithm([[here], [block(0, 0, 0, there)]], 1))[0]
    expected = ["RECV"] * work.receives + ["COMP"] * bool(work.computes) + ["SEND"] * work.sends
    assert [NodeKind(number).name for number in trace.kind] == expected


def test_dependents_of_a_nop_have_its_dependencies() -> None:
    first = block(0, -1, -1, [step(0, "cpy"), step(1, "nop", 0, (1, 0))])
    second = block(1, -1, -1, [step(0, "re")])
    third = block(2, -1, -1, [step(0, "cpy", 1, (0, 1))])
    trace = converted(algorithm([[first, second, third]], 1))[0]
    assert trace.data_deps[trace.data_start[2] : trace.data_start[3]].tolist() == [0, 1]


def test_tags_are_unique_per_channel_and_pair_of_threadblocks() -> None:
    sender = [block(0, 1, -1, [step(0, "s")]), block(1, 1, -1, [step(0, "s")], channel=1)]
    receiver = [block(0, -1, 0, [step(0, "r")]), block(1, -1, 0, [step(0, "r")], channel=1)]
    sent, taken = converted(algorithm([sender, receiver], 1))
    assert sent.comm_tag.tolist() == taken.comm_tag.tolist() == [0, 1]


def test_chunks_are_rounded_up_so_that_no_byte_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finish_times(tmp_path, ring_all_gather(4), "--bytes", "1001")
    assert "4 of 251 B (rounded up: 1001 bytes do not divide)" in capsys.readouterr().out
    assert read_workload(tmp_path / "custom" / "algo").trace(0).comm_bytes.tolist() == [251] * 6


def test_the_report_names_the_key_of_the_system_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "algo.xml.gz"
    path.write_bytes(gzip.compress(ring_all_reduce(2).encode()))
    assert main(["msccl", str(path), "-o", str(tmp_path / "ar"), "--json"]) == 0
    notes = {note["about"]: note["text"] for note in json.loads(capsys.readouterr().out)["files"][0]["notes"]}
    assert notes["system file"] == f'"all-reduce-implementation-custom": ["{tmp_path / "ar"}"]'
    assert notes["algorithm"] == '"mine" for 2 GPUs, 2 connections'


# ---- refusals

ONE = block(0, 1, -1, [step(0, "s")])
OTHER = block(0, -1, 0, [step(0, "r")])
KNOT = [block(0, -1, -1, [step(0, "cpy", 1, (1, 0))]), block(1, -1, -1, [step(0, "cpy", 1, (0, 0))])]
CROSSED = [block(0, 1, 1, [step(0, "r"), step(1, "s")])], [block(0, 0, 0, [step(0, "r"), step(1, "s")])]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<algo", "is not XML"),
        ("<system/>", "holds <system>, and not an algorithm"),
        ('<algo ngpus="x" nchunksperloop="1"/>', "attribute 'ngpus' is 'x'"),
        ('<algo ngpus="1"><gpu id="0"/></algo>', "attribute 'nchunksperloop' is missing"),
        (algorithm([[ONE], [OTHER]], 0), "attribute 'nchunksperloop' is 0 (it must be 1 or more)"),
        (algorithm([[ONE], [OTHER]], 1, ngpus=3), "gpu 2 is missing: ngpus is 3"),
        (algorithm([[ONE], [OTHER]], 1, ngpus=1), "gpu 1 is one too many"),
        (algorithm([[ONE], [OTHER]], 1).replace('id="1"', 'id="0"'), "there are two with the number 0"),
        (algorithm([[block(0, -1, -1, [step(0, "rs")])]], 1), "step type 'rs' is not known"),
        (algorithm([[block(0, -1, -1, [step(1, "cpy")])]], 1), "its steps are numbered 1"),
        (algorithm([[block(0, -1, -1, [step(0, "s")])]], 1), "the threadblock has no 'send'"),
        (algorithm([[block(0, -1, -1, [step(0, "r")])]], 1), "the threadblock has no 'recv'"),
        (algorithm([[block(0, 0, -1, [step(0, "s")])]], 1), "its own gpu"),
        (algorithm([[block(0, 5, -1, [step(0, "s")])]], 1), "attribute 'send' is 5 (it must be -1 to 0)"),
        (algorithm([[block(0, -1, -1, [step(0, "cpy", 1, (3, 0))])]], 1), "step 0 of threadblock 3"),
        (algorithm([[ONE], []], 1), "has 1 sends to gpu 1 on channel 0, and gpu 1 has 0 receives"),
        (algorithm([[], [OTHER]], 1), "has 0 sends to gpu 1 on channel 0, and gpu 1 has 1 receives"),
        (algorithm([[ONE], [OTHER.replace('cnt="1"', 'cnt="2"')]], 2), "1 chunks are sent, and 2 received"),
        (
            algorithm([[ONE, ONE.replace('tb id="0"', 'tb id="1"')], [OTHER]], 1),
            "threadblocks 0 and 1 of gpu 0",
        ),
        (algorithm([KNOT], 1), "gpu 0 threadblock 0 step 0, which waits for gpu 0 threadblock 1 step 0"),
        (algorithm(list(CROSSED), 1), "these steps wait for each other and can never run"),
    ],
)
def test_impossible_programs_are_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(TraceError) as refused:
        converted(text)
    assert sentence in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--bytes", "0"], "--bytes is 0"),
        (["--reduce-micros", "-1"], "--reduce-micros is -1"),
        (["--bytes", "many"], "size 'many'"),
    ],
)
def test_wrong_options_are_refused_and_nothing_is_written(
    options: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "algo.xml"
    path.write_text(ring_all_gather(4))
    assert main(["msccl", str(path), "-o", str(tmp_path / "out"), *options]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]
