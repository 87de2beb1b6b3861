"""Comparison of ranks: their starts, from the ends of collectives, and sizes that one of them lacks."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from recordings import FOLDER

from converters.cli import main
from converters.pytorch.columns import NONE
from converters.pytorch.meetings import Meetings, Series, settle
from et_sim.trace import CollectiveKind, read_trace, read_workload

ALL_REDUCE, ALL_GATHER = int(CollectiveKind.ALL_REDUCE), int(CollectiveKind.ALL_GATHER)
MS = 1_000_000


def series(begins: list[int], ends: list[int], sizes: list[int], kind: int = ALL_REDUCE) -> Series:
    count = len(begins)
    columns = (np.full(count, kind), np.arange(1, count + 1), begins, ends, sizes)
    return Series(*(np.array(column, np.int64) for column in columns))


def job(
    starts: list[int], clocks: list[int], blur: int = 1000, groups: tuple[tuple[int, ...], ...] = ()
) -> list[Meetings]:
    """Make ranks with these starts and errors of clocks; 20 collectives each 10 ms apart."""
    chance = random.Random(7)
    results = []
    for rank, (start, clock) in enumerate(zip(starts, clocks, strict=True)):
        ends = [(at + 5) * 10 * MS + clock + chance.randrange(blur) for at in range(20)]
        own: dict[tuple[int, ...] | str, Series] = {}
        for members in groups or ("",):
            if not members or rank in members:
                own[members] = series([end - MS for end in ends], ends, [1 << 20] * 20)
        results.append(Meetings(start + clock, 250 * MS + clock, own))
    return results


def test_ranks_begin_as_far_apart_as_they_did() -> None:
    settled = settle(job([0, 30 * MS, 12 * MS], [0, 0, 0]))
    assert settled.start_ns == [0, 30 * MS, 12 * MS]
    assert settled.starts_text.startswith(
        "ranks begin up to 30 ms apart; the ends of 20 collectives agree within "
    )


def test_clocks_that_differ_are_set_by_the_ends_of_collectives() -> None:
    settled = settle(job([0, 30 * MS, 12 * MS], [0, 5 * MS, -7_000 * MS]))
    assert np.allclose(settled.start_ns, [0, 30 * MS, 12 * MS], atol=2000)
    assert "after clocks are set by up to 7 s" in settled.starts_text


def test_clocks_are_compared_along_chains_of_groups() -> None:
    pairs = ((0, 1), (1, 2), (2, 3))
    settled = settle(job([0, 3 * MS, 6 * MS, 9 * MS], [0, 50 * MS, 0, -50 * MS], groups=pairs))
    assert np.allclose(settled.start_ns, [0, 3 * MS, 6 * MS, 9 * MS], atol=20_000)


def test_messages_compare_clocks_of_ranks_without_a_collective_in_common() -> None:
    ends = np.arange(5, 25) * 10 * MS
    pipeline = [
        Meetings(start, 250 * MS, {}, dict.fromkeys(pairs, ends + rank * 20 * MS))
        for rank, (start, pairs) in enumerate(
            ((0, [(0, 1)]), (30 * MS, [(0, 1), (1, 2)]), (50 * MS, [(1, 2)]))
        )
    ]
    settled = settle(pipeline)
    assert settled.start_ns == [0, 10 * MS, 10 * MS]
    assert (
        "the ends of 40 collectives and messages agree within 0 ns, after clocks are set"
        in settled.starts_text
    )
    few = [Meetings(at * MS, 250 * MS, {}, {(0, 1): ends[:1]}) for at in range(2)]
    assert settle(few).starts_text == "not known: 2 of 2 ranks share no collectives with others"


def test_ranks_begin_together_if_clocks_are_inconclusive() -> None:
    vague = settle(job([0, 30 * MS], [0, 0], blur=400 * MS))
    assert vague.start_ns == [0, 0]
    assert vague.starts_text.startswith("not known: ends of collectives that are one disagree by ")
    unrelated = settle(job([0, 30 * MS, 5 * MS], [0, 0, 0], groups=((0, 1), (2,))))
    assert unrelated.start_ns == [0, 0, 0]
    assert unrelated.starts_text == "not known: 1 of 3 ranks share no collectives with others"


def test_a_size_comes_from_another_rank_or_from_the_rate_of_the_group() -> None:
    begins, ends = [0, 10, 20, 30], [5, 15, 24, 38]
    first = Meetings(0, 100, {"": series(begins, ends, [500, 500, NONE, NONE])})
    second = Meetings(0, 100, {"": series(begins, [5, 15, 26, 34], [500, 500, 700, NONE])})
    settled = settle([first, second])
    assert settled.sizes == [{3: 700, 4: 400}, {4: 400}]  # 4 ns at 100 bytes per ns, on the faster rank
    assert settled.estimates == [{4}, {4}]


def test_a_size_stays_unknown_without_samples_or_if_ranks_differ() -> None:
    gathers = series([0, 10], [5, 15], [NONE, NONE], ALL_GATHER)
    known = series([20, 30], [25, 35], [500, 500])
    first = Meetings(0, 100, {"": gathers, "pair": known})
    assert settle([first]).sizes == [{}]
    other = Meetings(0, 100, {"pair": series([20, 30, 40], [25, 35, 45], [500, NONE, 500])})
    assert settle([first, other]).sizes == [{}, {}]


def test_a_folder_keeps_the_starts_of_its_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pytorch", str(FOLDER / "gloo_ddp_2r"), "-o", str(tmp_path / "x"), "--jobs", "1"]) == 0
    assert (
        "start skew: ranks begin up to 969.915 µs apart; the ends of 2 collectives" in capsys.readouterr().out
    )
    starts = [trace.start_ns for trace in read_workload(tmp_path / "x").templates]
    assert starts == [0, 969_915]


@pytest.mark.parametrize("ending", ["et", "et.gz"])
def test_estimated_and_unknown_sizes_are_marked_and_reported(
    tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def collective(name: str, start: int, shape: list[int] | None) -> list[dict[str, object]]:
        types = {} if shape is None else {"Input Dims": [shape], "Input type": ["float"]}
        common = {"ph": "X", "pid": 1, "tid": 1}
        return [
            common
            | {"cat": "user_annotation", "name": f"nccl:{name}", "ts": start, "dur": 20, "args": types},
            common
            | {
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "ts": start + 5,
                "dur": 5,
                "args": {"correlation": start},
            },
            common
            | {
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce_Sum",
                "pid": 0,
                "tid": 7,
                "ts": start + 30,
                "dur": 40,
                "args": {"correlation": start, "stream": 7, "device": 0},
            },
        ]

    events = [
        *collective("all_reduce", 100, [1000]),
        *collective("all_reduce", 200, None),
        *collective("all_gather", 300, None),
    ]
    path = tmp_path / "kineto_0.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    target = tmp_path / f"x.0.{ending}"
    assert main(["pytorch", "--device", str(path), "-o", str(target)]) == 0
    output = "2 collectives and messages: 1 estimated from how long they took, 1 marked as unknown"
    out = capsys.readouterr().out
    assert output in out
    assert "3.91 KiB in 1 and unknown size in 1 of all ranks" in out
    trace = read_trace(target)
    rows = np.flatnonzero(trace.has("comm_type"))
    assert trace.comm_bytes[rows].tolist() == [4000, 4000, 0]
    assert trace.is_estimated[rows].tolist() == [False, True, False]
    assert trace.is_unsized[rows].tolist() == [False, False, True]
    assert trace.has("comm_size", rows).tolist() == [True, True, False]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kineto_0.json", target.name]
