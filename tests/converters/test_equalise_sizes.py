"""`et-convert repair --even-sizes`: all members of a group give the largest size that one of them gives."""

from __future__ import annotations

from pathlib import Path

import pytest

import et_sim
from converters.cli import main
from converters.records import parse, split
from et_sim.trace import TraceBuilder, Workload, read_workload, write_workload
from et_sim.trace.preflight import find_problems

SIZES = ((100, 300, 7), (200, 300, 9), (150, 300, 8), (50, 300, 9))


@pytest.fixture(autouse=True)
def uneven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ranks: all of them, then halves; of the halves, only one differs within."""
    monkeypatch.chdir(tmp_path)
    traces = []
    for rank, (first, second, third) in enumerate(SIZES):
        build = TraceBuilder()
        build.process_groups({"a": [0, 1], "b": [2, 3]})
        build.collective("all_to_all", first)
        build.collective("all_reduce", second)
        build.collective("all_gather", third if rank < 2 else 9, "ab"[rank // 2])
        build.collective("barrier", rank)
        traces.append(build.build())
    write_workload(Workload.of(traces), "uneven")


def test_the_largest_size_is_everybodys(capsys: pytest.CaptureFixture[str]) -> None:
    assert any(one.kind == "collective-size" for one in find_problems(read_workload("uneven")))
    assert main(["repair", "uneven", "-o", "even", "--even-sizes"]) == 0
    printed = capsys.readouterr().out
    assert (
        "note: members gave different sizes to 1 all_gather, 1 all_to_all: now all give the largest"
        in printed
    )
    assert "made even      sizes of 2 collectives" in printed
    even = read_workload("even")
    assert [even.trace(rank).comm_bytes.tolist() for rank in range(4)] == [
        [0, 200, 300, 9, rank] for rank in range(4)
    ]
    assert [one for one in find_problems(even) if one.severity == "error"] == []
    assert Path("even.1.et").read_bytes() == Path("uneven.1.et").read_bytes()


def test_nothing_else_changes() -> None:
    assert main(["repair", "uneven", "-o", "even", "--even-sizes"]) == 0
    for rank in range(4):
        pairs = zip(
            parse(split(Path(f"uneven.{rank}.et").read_bytes()), "old"),
            parse(split(Path(f"even.{rank}.et").read_bytes()), "new"),
            strict=True,
        )
        for old, new in pairs:
            for node in (old, new):
                for attribute in node.attr:
                    if attribute.name == "comm_size":
                        attribute.int64_val = 0
            assert old == new


def test_without_the_option_sizes_stay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repair", "uneven", "-o", "same"]) == 0
    assert "(nothing to repair)" in capsys.readouterr().out
    for rank in range(4):
        assert Path(f"same.{rank}.et").read_bytes() == Path(f"uneven.{rank}.et").read_bytes()


@pytest.mark.usefixtures("warm_engine")
def test_what_was_uneven_runs() -> None:
    assert main(["repair", "uneven", "-o", "even", "--even-sizes"]) == 0
    system = {
        "scheduling-policy": "FIFO",
        "all-reduce-implementation": ["ring"],
        "all-gather-implementation": ["ring"],
        "all-to-all-implementation": ["direct"],
        "local-mem-bw": 50,
        "profile": "corrected",
    }
    network = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    assert et_sim.simulate("even", system=system, network=network).makespan_ns > 0
