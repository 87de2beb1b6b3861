"""Fits of collectives predict rows left out, find true factors, and refuse rows that determine none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, InputError
from et_sim.calibrate.collective_library import (
    LibraryFit,
    MeasuredCollective,
    as_taken,
    fit,
    ratios,
    without_worse,
)
from et_sim.calibrate.logs import read_all, read_measured
from et_sim.cli import calibrate_nccl, main
from et_sim.machine.collective_library import Calibration, Call, Library, LibraryWires
from et_sim.validation.rows import Errors

MIB = 1 << 20
MEASURED = Path(str(files("et_sim.validation") / "measurements" / "collectives.json"))
A100 = Library("nccl-2.30", "ampere", LibraryWires(240, True, 8, 25, 300), 8)
H200 = Library("nccl-2.30", "hopper", LibraryWires(370.8, True, 8, 50, 450), 8)
LARGE = 64 * MIB


@cache
def _rows(system: str) -> tuple[MeasuredCollective, ...]:
    return tuple(row for row in read_measured(MEASURED) if f"table aic_{system}" in row.place)


def _errors(library: Library, rows: list[MeasuredCollective], least: int = 0) -> Errors:
    return Errors.of(ratios(library, [row for row in rows if row.call.size >= least]))


@pytest.mark.parametrize(("system", "library"), [("a100", A100), ("h200", H200)])
def test_a_fit_to_two_and_eight_gpus_predicts_four(system: str, library: Library) -> None:
    seen = [row for row in _rows(system) if row.call.ranks != 4]
    unseen = [row for row in _rows(system) if row.call.ranks == 4]
    calibrated = replace(library, calibration=fit(library, seen).calibration)
    assert len(unseen) == 105
    assert _errors(calibrated, unseen).e < 7
    assert _errors(calibrated, unseen).g < 4.5
    assert _errors(calibrated, unseen, LARGE).e < 4


def test_a_fit_to_all_reduces_predicts_other_collectives() -> None:
    others, errors = [], []
    for system, library in (("a100", A100), ("h200", H200)):
        seen = [r for r in _rows(system) if r.call.datatype == "int8" and r.call.ranks != 4]
        others = [row for row in _rows(system) if row not in seen]
        calibrated = replace(library, calibration=fit(library, seen).calibration)
        errors += ratios(calibrated, others)
    assert len(errors) == 546
    assert Errors.of(errors).e < 9.1


def _made(
    library: Library, kinds: tuple[str, ...], ranks: tuple[int, ...], nodes: int = 1
) -> list[MeasuredCollective]:
    """Return rows with the times of a library of known calibration."""
    calls = [
        Call(kind, number, nodes, 1 << power) for kind in kinds for number in ranks for power in range(10, 30)
    ]
    return [MeasuredCollective(call, library.choice(call).time_us, "made") for call in calls]


TRUE = Calibration(
    base_ll=1.4, step_ll=1.3, step_simple=0.8, bandwidth_simple=0.9, copy=600.0, between_latency=2.0
)


def test_true_factors_are_found() -> None:
    true = replace(A100, calibration=TRUE)
    rows = _made(true, ("all_reduce", "all_gather"), (2, 4, 8))
    result = replace(A100, calibration=fit(A100, rows).calibration)
    assert max(abs(math.log(ratio)) for ratio in ratios(result, rows)) < 0.03
    between = _made(true, ("all_reduce", "all_gather"), (16,), nodes=2)
    both = fit(A100, rows + between)
    assert abs(both.calibration.between_latency - 2.0) < 0.2
    assert "groups on more than 2 nodes: not measured" in both.unknown
    assert "copies of all pairs: not measured" in both.unknown


def _of_few_bytes(rows: list[MeasuredCollective]) -> list[MeasuredCollective]:
    return [row for row in rows if row.call.size < 1 << 15]


def _too_fast(rows: list[MeasuredCollective]) -> list[MeasuredCollective]:
    return [structs.replace(row, us=row.us / 3) for row in rows]


def _of_no_library(rows: list[MeasuredCollective]) -> list[MeasuredCollective]:
    return [structs.replace(row, us=row.us * (40 if row.call.size < MIB else 1)) for row in rows]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_of_few_bytes, "5 sizes were measured, and a fit requires 8"),
        (_too_fast, "and its bytes alone take"),
        (_of_no_library, "which no library has"),
    ],
)
def test_rows_that_do_not_determine_factors_are_refused(
    change: Callable[[list[MeasuredCollective]], list[MeasuredCollective]], why: str
) -> None:
    rows = change(_made(A100, ("all_reduce", "all_gather"), (2, 8)))
    with pytest.raises(InputError) as raised:
        fit(A100, rows)
    assert why in str(raised.value)


def test_one_number_of_ranks_keeps_the_steps_of_the_machine() -> None:
    known = replace(A100, calibration=Calibration(step_ll=1.3, step_simple=0.8, copy=600.0))
    true = replace(known, calibration=replace(known.calibration, base_ll=1.6, bandwidth_simple=0.8))
    rows = _made(true, ("all_reduce", "all_gather"), (8,))
    fitted = fit(known, rows)
    assert "steps apart from launches, as all rows have 8 ranks" in " ".join(fitted.unknown)
    assert (fitted.calibration.step_ll, fitted.calibration.step_simple) == (1.3, 0.8)
    assert fitted.calibration.base_ll == pytest.approx(1.6, rel=0.05)
    result = replace(known, calibration=fitted.calibration)
    assert max(abs(math.log(ratio)) for ratio in ratios(result, rows)) < 0.03


def test_groups_on_several_nodes_of_one_size_are_enough() -> None:
    true = replace(H200, calibration=Calibration(between_latency=2.0, between_bandwidth=0.7))
    fitted = fit(H200, _made(true, ("all_reduce", "all_gather"), (16,), nodes=2))
    assert fitted.calibration.between_latency == pytest.approx(2.0, rel=0.1)
    assert fitted.calibration.between_bandwidth == pytest.approx(0.7, rel=0.1)


def test_a_fit_that_is_further_off_than_the_machine_on_long_times_is_not_taken() -> None:
    rows = _made(A100, ("all_reduce", "all_gather"), (2, 8))
    worse = LibraryFit(Calibration(bandwidth_simple=0.8), ("bandwidth_simple",), len(rows), ())
    result = without_worse(A100, worse, rows, [])
    assert (result.calibration, result.fitted) == (A100.calibration, ())
    factors = Calibration(bandwidth_simple=0.8, base_ll=1.3)
    small = LibraryFit(factors, ("base_ll", "bandwidth_simple"), len(rows), ())
    partly = without_worse(A100, small, rows, [])
    assert (partly.calibration, partly.fitted) == (Calibration(base_ll=1.3), ("base_ll",))
    assert partly.kept[0].startswith("rings and trees on a node, but for the protocol LL: above 200 us")
    [reason] = result.kept
    assert reason.startswith("rings and trees on a node: above 200 us the fit has an error E of ")
    assert reason.endswith("the unchanged machine 0.0 %")
    seen = [(rows[-1], 1.25)]
    [(row, ratio)] = as_taken(A100, result, seen)
    assert row is rows[-1]
    assert ratio == pytest.approx(1.0)
    better = LibraryFit(A100.calibration, ("bandwidth_simple",), len(rows), ())
    slower = replace(A100, calibration=Calibration(bandwidth_simple=0.8))
    assert without_worse(slower, better, rows, []) == better
    assert as_taken(slower, better, seen) == seen
    alike = LibraryFit(Calibration(base_ll=1.0), ("base_ll",), len(rows), ())
    assert without_worse(A100, alike, rows, []) == alike  # as good as the machine is not worse
    assert without_worse(slower, better, rows, [(rows[-1], 3.0)]).kept  # a row that was left out decides


def test_without_large_sizes_bandwidth_is_reported_as_unknown() -> None:
    rows = [row for row in _made(A100, ("all_reduce",), (2, 8)) if row.call.size < 32 * MIB]
    fitted = fit(A100, rows)
    assert fitted.calibration.bandwidth_simple == 1.0
    assert "rings and trees on a node: bandwidth and copies, without sizes from 64 MiB on" in fitted.unknown


HEAD = """# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor)
# Using devices
{ranks}
#                                                out-of-place              in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)
"""


def _log(hosts: list[str], lines: list[str]) -> str:
    ranks = "\n".join(
        f"#  Rank {rank:2} Group  0 Pid 215010 on    {host} device  0 [0000:0f:00] NVIDIA A100"
        for rank, host in enumerate(hosts)
    )
    return HEAD.format(ranks=ranks) + "\n".join(lines) + "\n# Avg bus bandwidth    : 12.0\n"


def test_logs_of_nccl_tests_are_read(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    line = (
        "     1048576        262144     float     sum      -1    40.50   25.89   45.31      0    41.1   25.5"
    )
    large = (
        "  8589934592    2147483648     float     sum      -1    68652  250.20  469.21    N/A   68000   252"
    )
    log.write_text(_log(["one"] * 8 + ["two"] * 8, [line, large]))
    assert [(row.call, row.us) for row in read_measured(log)] == [
        (Call("all_reduce", 16, 2, MIB, "fp32"), 40.5),
        (Call("all_reduce", 16, 2, 8589934592, "fp32"), 68652.0),
    ]
    table = tmp_path / "rows.csv"
    table.write_text("collective,dtype,ranks,nodes,bytes,us\nalltoall,half,8,1,4096,12.5\n")
    assert read_measured(table)[0].call == Call("all_to_all", 8, 1, 4096, "fp16")


LINE = "     1048576        262144     float     sum      -1    40.50   25.89   45.31      0    41.1   25.5"
FAST = _log(["one"] * 8, [LINE.replace("40.50", "fast")])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("all_reduce.log", "all_reduce"),
        ("2024-05-01 nccl allreduce 16 GPUs.txt", "all_reduce"),
        ("AllGather-8x.out", "all_gather"),
        ("reduce-scatter", "reduce_scatter"),
        ("alltoall_perf_h100.log", "all_to_all"),
        ("my.reduce.log", "reduce"),
        ("broadcast8.log", "broadcast"),
    ],
)
def test_a_log_without_its_program_is_of_the_collective_that_its_file_is_named_after(
    tmp_path: Path, name: str, kind: str
) -> None:
    head = _log(["one"] * 8, [LINE]).partition("\n")[2]
    (tmp_path / name).write_text(head)
    assert read_measured(tmp_path / name)[0].call == Call(kind, 8, 1, MIB, "fp32")


def test_one_log_may_hold_several_runs_and_a_folder_several_logs(tmp_path: Path) -> None:
    first = _log(["one"] * 8, [LINE])
    second = _log(["one"] * 8 + ["two"] * 8, [LINE]).replace("all_reduce_perf", "all_gather_perf")
    both = [Call("all_reduce", 8, 1, MIB, "fp32"), Call("all_gather", 16, 2, MIB, "fp32")]
    (tmp_path / "a.log").write_text(first + second)
    assert [row.call for row in read_measured(tmp_path / "a.log")] == both
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "1.log").write_text(first)
    (folder / "2.out").write_text(second)
    (folder / "notes.txt").write_text("measured on Monday")
    rows, left = read_all([folder])
    assert [row.call for row in rows] == both
    assert left == ("notes.txt: the log does not name the collective",)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="no file in it has measured collectives"):
        read_all([empty])
    with pytest.raises(EtSimError, match="cannot be read"):
        read_all([tmp_path / "none.log"])


def test_a_folder_of_logs_of_two_nodes_makes_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    for kind in ("all_reduce", "all_gather"):
        lines = [
            f"  {1 << power}  {1 << (power - 2)}  float  sum  -1  {30 + (1 << power) / 2e5:.2f}  1  1  0"
            for power in range(10, 34)
        ]
        text = _log(["one"] * 8 + ["two"] * 8, lines).partition("\n")[2]
        Path(f"logs/{kind} of 16.log").write_text(text)
    assert main(["calibrate", "nccl", "logs", "--machine", "h200-dgx", "-o", "mine.json", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["calibration"]) <= {"between-latency", "between-bandwidth"}
    machine = json.loads(Path("mine.json").read_text())
    assert "all_gather of 16.log" in machine["sources"]["library"]
    assert main(["machine", "mine.json:16"]) == 0


def test_the_line_of_a_damaged_log_is_the_one_that_editors_show(tmp_path: Path) -> None:
    path = tmp_path / "all_reduce.log"
    path.write_text(FAST)
    number = 1 + FAST.splitlines().index(LINE.replace("40.50", "fast"))
    with pytest.raises(EtSimError, match=rf"all_reduce\.log, line {number}: the time is"):
        [*read_measured(path)]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.log", "hello", "the log does not name the collective"),
        ("all_reduce_perf.log", "hello", "no ranks are listed"),
        ("all_reduce and all_gather.log", "hello", "the log does not name the collective"),
        ("all_reduce.log", HEAD.format(ranks="") + LINE, "no ranks are listed"),
        ("all_reduce.log", FAST, "the time is 'fast'"),
        ("all_reduce.log", _log(["one"] * 8, [LINE.replace("40.50", "0.00")]), "in 0 us"),
        ("all_reduce_perf.log", _log(["one"] * 2, []), "the file has no measured collective"),
        ("a.csv", "collective,us\nall_reduce,3\n", "line 2: the columns do not match"),
        (
            "a.csv",
            "collective,dtype,ranks,nodes,bytes,us\nfold,half,8,1,4096,12.5\n",
            "collective 'fold' is not known",
        ),
        ("a.csv", "collective,dtype,ranks,nodes,bytes,us\nbroadcast,half,8,3,4096,12\n", "on 8 ranks of 3"),
    ],
)
def test_files_without_measurements_are_refused(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(EtSimError) as raised:
        read_measured(tmp_path / name)
    assert why in str(raised.value)


@pytest.mark.deep
def test_a_calibrated_machine_is_named_as_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tables: list[dict[str, Any]] = json.loads(MEASURED.read_text())
    for name, ranks in (("seen.json", (2, 8)), ("unseen.json", (4,))):
        some = [t for t in tables if t["id"].startswith("aic_h200") and t["gpus"] in ranks]
        kept = [t | {"rows": t["rows"][:: 1 if name == "seen.json" else 10]} for t in some]
        Path(name).write_text(json.dumps(kept))
    assert main(["calibrate", "nccl", "seen.json", "--machine", "h200-dgx", "-o", "machine.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "210 rows, 19 factors:"
    assert lines[-1].startswith("unknown: groups on several nodes")
    assert main(["validate", "unseen.json", "--machine", "machine.json", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["machine"] for row in document["rows"]} == {"machine.json"}
    assert max(error["mape"] for error in document["errors"] if error["size"] == "all") < 20
    assert main(["machine", "machine.json:16"]) == 0
    assert "Fitted by et-sim calibrate to seen.json" in capsys.readouterr().out


GRAPH = """host:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0
host:1 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type NVL/PIX, same
host:1 [0] NCCL INFO Pattern 5, crossNic 0, nChannels 8, bw 40.000000/40.000000, type NVL/PIX, same
"""


def test_channels_that_nccl_prints_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("graph.log").write_text(GRAPH.replace("12, bw 30", "10, bw 30"))
    rows = _made(H200, ("all_reduce", "all_gather"), (2, 8))
    lines = [f"{r.call.kind},int8,{r.call.ranks},1,{r.call.size},{r.us}" for r in rows]
    Path("rows.csv").write_text("\n".join(["collective,dtype,ranks,nodes,bytes,us", *lines]))
    fits = ["calibrate", "nccl", "rows.csv", "--machine", "h200-dgx", "--graph", "graph.log"]
    assert main([*fits, "-o", "machine.json"]) == 0
    assert json.loads(Path("machine.json").read_text())["library"]["rings"] == {"on-a-node": [10, 30.0]}
    capsys.readouterr()
    for text, why in (
        (GRAPH[:90], "the log describes no rings"),
        (GRAPH + GRAPH.replace("12", "6"), "which differ"),
    ):
        Path("graph.log").write_text(text)
        assert main(fits) == 2
        assert why in capsys.readouterr().err


TUNING = """host:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0
host:1 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..3}
host:1 [0] NCCL INFO AllReduce: 67108864 Bytes -> Algo 1 proto 2 time 330.1
"""


def test_choices_that_nccl_prints_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = _made(H200, ("all_reduce", "all_gather"), (2, 8))
    lines = [f"{r.call.kind},int8,{r.call.ranks},1,{r.call.size},{r.us}" for r in rows]
    Path("rows.csv").write_text("\n".join(["collective,dtype,ranks,nodes,bytes,us", *lines]))
    Path("tuning.log").write_text(TUNING)
    fits = ["calibrate", "nccl", "rows.csv", "--machine", "h200-dgx", "--tuning", "tuning.log"]
    assert main([*fits, "-o", "machine.json"]) == 0
    assert json.loads(Path("machine.json").read_text())["library"]["choices"] == {
        "all_reduce": [[1, 1024, "tree", "LL"], [1, 67108864, "ring", "Simple"]]
    }
    capsys.readouterr()
    command = ["collective", "library", "--machine", "machine.json:8", "--bytes", "4KiB", "--json"]
    assert main(command) == 0
    ways = json.loads(capsys.readouterr().out)["sizes"][0]["ways"]
    assert [way["way"] for way in ways if way["chosen"]] == ["tree LL"]
    for text, why in (
        (TUNING[:90], "the log describes no choice"),
        (TUNING.partition("\n")[2], "the log has no number of nodes"),
        (TUNING + TUNING.replace("nNodes 1", "nNodes 2"), "communicators on 1 and 2 nodes"),
        (
            TUNING.replace("TREE", "STAR"),
            "tuning.log, line 2: the collective, algorithm or protocol is not known",
        ),
        (
            TUNING.replace("AllReduce: ", ""),
            "tuning.log, line 2: the collective, algorithm or protocol is not known",
        ),
        (
            TUNING + TUNING.replace("TREE", "RING"),
            "tuning.log, line 5: 1024 bytes have two different choices",
        ),
    ):
        Path("tuning.log").write_text(text)
        assert main(fits) == 2
        assert why in capsys.readouterr().err


def test_a_file_that_is_no_machine_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"topology": ["Ring"]}')
    assert main(["machine", f"{other}:8"]) == 2
    assert "the file does not describe a machine by name" in capsys.readouterr().err
    assert main(["machine", f"{tmp_path / 'none.json'}"]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_errors_of_rows_left_out_are_of_their_size_and_their_nodes() -> None:
    cases = [(8, 1, MIB, 1.1), (8, 1, LARGE, 1.2), (16, 2, MIB, 1.3), (16, 2, LARGE, 1.4)]
    calls = [(Call("all_reduce", ranks, nodes, size), ratio) for ranks, nodes, size, ratio in cases]
    found = calibrate_nccl._accuracy([(MeasuredCollective(call, 1.0), ratio) for call, ratio in calls])
    classes = ("small_library", "library", "small_library_between_nodes", "library_between_nodes")
    errors = [entry["random"] / math.sqrt(math.pi / 2) for entry in found.values()]
    assert (*found,) == classes
    assert errors == pytest.approx([math.log(ratio) for _, ratio in calls], abs=1e-4)
