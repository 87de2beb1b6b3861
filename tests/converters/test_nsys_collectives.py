"""Ranges of NCCL give the operation, size and group of its kernels, where these are clear."""

from __future__ import annotations

import sqlite3
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from nccl_reports import KERNELS, Work, report
from nsys_files import nsys_folder

import et_sim
from converters.cli import main
from converters.recordings.nsys_collectives import NcclRanges, members_of
from converters.recordings.parquet_tables import ParquetTables
from et_sim.trace import CollectiveKind, NodeKind, Workload, read_trace

WORLD, PAIR = 0xABC, 0x77
SIZES = {  # of a node by what NCCL states, for a group of four
    "ncclAllReduce": (CollectiveKind.ALL_REDUCE, 1),
    "ncclAllGather": (CollectiveKind.ALL_GATHER, 1),
    "ncclReduceScatter": (CollectiveKind.REDUCE_SCATTER, 4),
    "ncclAlltoAll": (CollectiveKind.ALL_TO_ALL, 4),
}


def collectives(path: Path) -> list[tuple[int, int, str]]:
    """Return kind, bytes and group of the collectives of a trace, in its order."""
    trace = read_trace(path)
    rows = [at for at, kind in enumerate(trace.kind.tolist()) if kind == NodeKind.COLL]
    return [
        (int(trace.comm_type[at]), int(trace.comm_bytes[at]), str(trace.group_names[trace.group[at]]))
        for at in rows
    ]


def converted(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["recording", str(folder), "-o", str(folder.parent / "job")]) == 0
    return capsys.readouterr().out


def reports(folder: Path, works: list[list[Work]], ranks: int = 4, **more: Any) -> Path:
    """Write the reports of ranks in one communicator."""
    folder.mkdir()
    for rank, work in enumerate(works):
        report(folder / f"rank_{rank}.sqlite", rank, work, [(WORLD, ranks, rank)], **more)
    return folder


def one_of_each() -> list[Work]:
    return [
        Work(10_000 * at, 10_000 * at + 5000, 20, operation, WORLD, 4096 * at)
        for at, operation in enumerate(KERNELS, 1)
    ]


def test_kernels_have_the_operations_and_sizes_of_the_calls_before_their_launches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    converted(reports(tmp_path / "r", [one_of_each()] * 4), capsys)
    expected = [(kind, 4096 * at * times, "") for at, (kind, times) in enumerate(SIZES.values(), 1)]
    assert [collectives(tmp_path / f"job.{rank}.et") for rank in range(4)] == [expected] * 4


def test_tables_of_parquet_give_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    converted(reports(tmp_path / "r", [one_of_each()] * 4), capsys)
    expected = collectives(tmp_path / "job.2.et")
    for rank in range(4):
        nsys_folder(tmp_path / "r" / f"rank_{rank}.sqlite", tmp_path / "folders" / f"rank_{rank}")
    converted(tmp_path / "folders", capsys)
    assert collectives(tmp_path / "job.2.et") == expected


def test_payloads_that_parquet_declares_as_text_are_read(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    raw = pa.array([b"\xff\x00\x80", None], pa.large_binary())
    text = pa.LargeStringArray.from_buffers(2, raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])
    pq.write_table(pa.table({"binaryData": text}), tmp_path / "NVTX_EVENTS.parquet")
    rows = ParquetTables(tmp_path).rows("NVTX_EVENTS", {"payload": ("binaryData",)})
    assert list(rows) == [(b"\xff\x00\x80",), (None,)]


def test_calls_of_a_group_are_launched_after_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    converted(reports(tmp_path / "r", [one_of_each()] * 4, grouped=True), capsys)
    expected = [(kind, 4096 * at * times, "") for at, (kind, times) in enumerate(SIZES.values(), 1)]
    assert collectives(tmp_path / "job.0.et") == expected


@pytest.mark.parametrize(("grouped", "times"), [(False, 3), (True, 6)])
def test_calls_without_a_kernel_lend_their_bytes_to_that_of_their_group_alone(
    grouped: bool, times: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Leave out two of three kernels: a graph captured their calls, or one kernel serves a group."""
    work = [Work(10_000 * at, 10_000 * at + 5000, 20, "ncclAllReduce", WORLD, 4096 * at) for at in (1, 2, 3)]
    reports(tmp_path / "r", [work] * 2, 2, grouped=grouped)
    for path in (tmp_path / "r").iterdir():
        with sqlite3.connect(path) as base:
            for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
                base.execute(f"DELETE FROM {table} WHERE correlationId < 3")
        base.close()
    converted(tmp_path / "r", capsys)
    assert collectives(tmp_path / "job.0.et") == [(CollectiveKind.ALL_REDUCE, 4096 * times, "")]


def test_a_kernel_of_another_operation_has_no_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports(tmp_path / "r", [one_of_each()[:1]] * 2, 2)
    for path in (tmp_path / "r").iterdir():
        with sqlite3.connect(path) as base:
            base.execute("UPDATE StringIds SET value = replace(value, '_AllReduce_', '_ReduceScatter_')")
        base.close()
    assert "4 KiB" not in converted(tmp_path / "r", capsys)


def test_members_of_a_group_are_the_ranks_that_created_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    work = [Work(10_000, 15_000, 20, "ncclAllReduce", PAIR, 4096)]
    for rank in range(4):
        # Ranks 3 and 1 are a pair in this order, and so are 2 and 0.
        own = [(WORLD, 4, rank), (PAIR + rank % 2, 2, int(rank < 2))]
        pair = [Work(10_000, 15_000, 20, "ncclAllReduce", PAIR + rank % 2, 4096)]
        report(folder / f"rank_{rank}.sqlite", rank, pair if rank % 2 else work, own)
    converted(folder, capsys)
    assert collectives(tmp_path / "job.3.et") == [(CollectiveKind.ALL_REDUCE, 4096, "communicator 0x78")]
    assert '"ranks": [3, 1]' in str(read_trace(tmp_path / "job.1.et").metadata_text)


def test_sizes_are_missed_where_there_are_kernels_of_nccl(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Leave out the payloads, and then the collectives."""
    missed = "collectives have no sizes: record with --trace=cuda,nvtx"
    for name, work in (("with", one_of_each()), ("without", [Work(10_000, 15_000)])):
        folder = reports(tmp_path / name, [work] * 2, 2)
        for path in folder.iterdir():
            with sqlite3.connect(path) as base:
                base.execute("UPDATE NVTX_EVENTS SET binaryData = NULL")
            base.close()
        assert (missed in converted(folder, capsys)) == (name == "with")


def test_a_communicator_with_ranks_without_a_report_has_no_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    work = [Work(10_000, 15_000, 20, "ncclAllReduce", PAIR, 4096)]
    for rank in range(2):
        report(folder / f"rank_{rank}.sqlite", rank, work, [(WORLD, 8, rank), (PAIR, 4, rank)])
    printed = converted(folder, capsys)
    assert "note: not all ranks of 1 communicator have a report: such collectives have no sizes" in printed


def test_a_communicator_whose_creation_is_missing_has_the_ranks_that_used_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    for rank in range(2):
        work = [Work(10_000, 15_000, 20, "ncclAllReduce", PAIR, 4096)]
        report(folder / f"rank_{rank}.sqlite", rank, work, [])
    printed = converted(folder, capsys)
    assert "the creation of 1 communicator was not recorded" in printed
    assert collectives(tmp_path / "job.0.et") == [(CollectiveKind.ALL_REDUCE, 4096, "")]


RANKS, GAPS, SIZE = 4, (5000, 20_000, 7000), 1 << 20
LONG = 3000  # of a recorded collective
EXACT = {"topology": ["Ring"], "npus_count": [RANKS], "bandwidth": [64.0], "latency": [512.0]}
RING = {"all-reduce-implementation": ["ring"], "endpoint-delay": 0}


def step() -> list[Work]:
    """Return three all-reduces with a kernel before each, on one stream."""
    work, now = [], 1000
    for number, gap in enumerate(GAPS, 1):
        work.append(Work(now + 500, now + gap - 300))
        work.append(Work(now + gap, now + gap + LONG, 7, "ncclAllReduce", WORLD, SIZE * number))
        now += gap + LONG
    return work


def as_goal() -> str:
    """Return the text that the rules of ATLAHS make of the same reports.

    Each stream begins with its first kernel of NCCL, and a calculation of the time between two kernels lies
    between their operations (goal_gen/ai/nccl_goal_generator in spcl/atlahs). An all-reduce by ring, with one
    channel, one slice and no time for reductions: the first send follows the calculation, each further one
    the receive before it, and the operation ends with its last receive and all sends.
    """
    lines = [f"num_ranks {RANKS}"]
    for rank in range(RANKS):
        body, needs, before, tag = ["l1: calc 0"], list[str](), 0, 0
        last = 1
        for work in (each for each in step() if each.operation):
            begin, end = len(body) + 1, len(body) + 2
            body += [f"l{begin}: calc {work.start_ns - (before or work.start_ns)}", f"l{end}: calc 0"]
            needs.append(f"l{begin} requires l{last}")
            received, before = begin, work.end_ns
            for _ in range(2 * (RANKS - 1)):
                send = len(body) + 1
                body.append(f"l{send}: send {work.bytes // RANKS}b to {(rank + 1) % RANKS} tag {tag}")
                body.append(f"l{send + 1}: recv {work.bytes // RANKS}b from {(rank - 1) % RANKS} tag {tag}")
                needs += [f"l{send} requires l{received}", f"l{send + 1} requires l{begin}"]
                needs.append(f"l{end} requires l{send}")
                received, tag = send + 1, tag + 1
            needs.append(f"l{end} requires l{received}")
            last = end
        lines += [f"rank {rank} {{", *body, *needs, "}"]
    return "\n".join(lines)


def kernels_of_nccl(result: Any) -> list[tuple[int, int]]:
    rows = result.table("timeline").to_pylist()
    return [
        (row["start_ns"], row["end_ns"]) for row in rows if row["actor"] == 0 and "AllReduce_" in row["name"]
    ]


def test_a_report_agrees_with_the_schedule_that_atlahs_makes_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    converted(reports(tmp_path / "r", [step()] * RANKS), capsys)
    (tmp_path / "step.goal").write_text(as_goal())
    assert main(["goal", str(tmp_path / "step.goal"), "-o", str(tmp_path / "goal")]) == 0
    # Operations and sizes, in order.
    sizes = [(CollectiveKind.ALL_REDUCE, SIZE * number, "") for number in (1, 2, 3)]
    assert all(collectives(tmp_path / f"job.{rank}.et") == sizes for rank in range(RANKS))
    # With recorded times, the time between two operations is the calculation.
    one = dict(EXACT, npus_count=[1])
    alone = et_sim.simulate(
        Workload.of([read_trace(tmp_path / "job.0.et")]), system={}, network=one, alone=True
    )
    recorded = kernels_of_nccl(alone)
    assert [later[0] - earlier[1] for earlier, later in pairwise(recorded)] == [20_000, 7000]
    # On a network, the operations take as long as their sends and receives.
    ours, theirs = (
        et_sim.simulate(
            Workload.of([read_trace(tmp_path / f"{name}.{rank}.et") for rank in range(RANKS)]),
            system=RING, network=EXACT, model="link",
        )
        for name in ("job", "goal")
    )  # fmt: skip
    took = [end - start for start, end in kernels_of_nccl(ours)]
    assert sum(took) + sum(GAPS[1:]) == theirs.makespan_ns


def test_members_are_numbered_as_the_reports_are() -> None:
    recorded = {rank: NcclRanges(places={7: (2, rank - 1)}) for rank in (1, 2)}
    assert members_of(recorded).of == {7: (1, 2)}
