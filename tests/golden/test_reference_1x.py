"""Every available run of ASTRA-sim 1.0, from its own files: same files in, same nanoseconds out.

Finish, pass ends, computation, exposed and total communication of every layer, bytes sent by NPU 0 and mean
chunk latencies are compared, without any tolerance beyond the digits that 1.0 prints: folded for every fourth
case in every run of these tests; unfolded, and with a record of causes, for some of the small ones. With
`--deep` all run folded, every second one unfolded (and the others on the next day), and every fourth
recorded; with `--exhaustive` all do in every way.
"""

from __future__ import annotations

import csv
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import some
from causes import check, check_causes
from traffic_checks import DETAIL, check_sent_by_layers, check_traffic, check_unfolded

import et_sim
from et_sim.basics.errors import MachineError
from et_sim.run.result import Result
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.summary.layers import Layers, write_csv

DATA = Path(__file__).parent / "data" / "astra_1.jsonl.xz"
CASES = [json.loads(line) for line in lzma.decompress(DATA.read_bytes()).splitlines()]
RUNS = [case for case in CASES if "finish_ns" in case["expected"]]
REFUSED = {"ring8_links1", "fc8_links6"}  # by 1.0, too
# 1.0 stops without a word, or crashes; here these complete.
MENDED = {"sw4xsw4_AR_oneRing", "Ring4_ring_ALLREDUCE_4MB"}
PHASES = (("fwd", 0), ("ig", 1), ("wg", 2))
LONG = {"ex3_1_themis_1GB_512npu"}  # interpreted; nothing else needs the engine that it would have compiled
DETAILED = (
    *("tiny_DATA_torus2d_p1_LIFO", "ring8_ring_ALLREDUCE_1MB", "ring2x4_AR_themis_gap4"),
    *("slides_resnet50_torus444_2pass", "ex1_ring8_1MB", "switch8_doubleBinaryTree_ALLREDUCE_64MB"),
)


def simulate(case: dict[str, Any], folder: Path, *, fold: bool, detail: str = "nodes") -> Result:
    network = case["network"]
    (folder / "layers.txt").write_text(case["workload"])
    settings = case["system"] | case["args"]
    text = {key: "_".join(map(str, v)) if isinstance(v, list) else v for key, v in settings.items()}
    (folder / "system.txt").write_text("".join(f"{key}: {value}\n" for key, value in text.items()))
    (folder / "network.json").write_text(json.dumps(network))
    return et_sim.simulate(
        folder / "layers.txt",
        system=folder / "system.txt",
        network=folder / "network.json",
        model="link" if "topology" in network else "analytical",
        fold=fold,
        detail=detail,
    )


def chunk_means_us(result: Result) -> list[float]:
    assert result.phases is not None
    assert result.layers is not None
    logged = np.concatenate(list(result.phases.blocks()))
    plan = result.outcome.plan
    logged = logged[logged["actor"] == plan.actor_of_rank[0]]
    dimension = plan.phases["dimension"][logged["phase_row"]]
    time = logged["end_ns"] - logged["start_ns"]
    return [
        float(time[dimension == d].mean()) / 1000 if (dimension == d).any() else np.nan
        for d in range(len(result.layers.dimensions))
    ]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["id"], marks=[pytest.mark.deep] * (case["id"] in LONG or number % 4))
        for number, case in enumerate(RUNS)
    ],
)
def test_folded_the_run_is_that_of_1_0_to_the_nanosecond(case: dict[str, Any], tmp_path: Path) -> None:
    compare(case, simulate(case, tmp_path, fold=True))


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("case", some(RUNS, 12))
def test_unfolded_the_run_is_that_of_1_0_to_the_nanosecond(case: dict[str, Any], tmp_path: Path) -> None:
    compare(case, simulate(case, tmp_path, fold=False))


@pytest.mark.parametrize("case", some(RUNS, 12, deep_step=4))
def test_records_explain_the_run_folded_or_not(case: dict[str, Any], tmp_path: Path) -> None:
    paths = [recorded_path(case, tmp_path, fold=fold) for fold in (True, False)]
    assert paths[0].by_operation() == paths[1].by_operation()


def recorded_path(case: dict[str, Any], folder: Path, *, fold: bool) -> CriticalPath:
    """Return the critical path of a run, after comparing it with 1.0 and checking its record."""
    result = simulate(case, folder, fold=fold, detail="path")
    compare(case, result)
    check(result)
    write_run(result, folder / "run")
    path = CriticalPath(PathRecord(open_run(folder / "run")))
    check_causes(path, result)
    return path


@pytest.mark.parametrize("case", some(RUNS[::8], 5))
def test_messages_add_up_to_the_bytes_sent_in_1_0(case: dict[str, Any], tmp_path: Path) -> None:
    results = [simulate(case, tmp_path, fold=fold, detail=DETAIL) for fold in (True, False)]
    for result in results:
        check_traffic(result)
        check_sent_by_layers(result)
        assert result.makespan_ns == case["expected"]["finish_ns"]
    check_unfolded(*results)


@pytest.mark.parametrize("kind", ["ring", "halvingDoubling", "doubleBinaryTree"])
def test_requests_of_rendezvous_count_as_sent(kind: str, tmp_path: Path) -> None:
    """Ring of 8, four chunks of 14 messages: 56 requests of 8 KiB beside 1.75 MiB are 2.1875, as in 1.0."""
    [case] = [case for case in CASES if case["id"] == f"ring8_{kind}_ALLREDUCE_1MB"]
    asking = {**case, "system": case["system"] | {"rendezvous-protocol": "true"}}
    result = simulate(asking, tmp_path, fold=True, detail=DETAIL)
    check_sent_by_layers(result)
    assert result.layers is not None
    if kind == "ring":
        assert result.makespan_ns == 77_937
        assert result.layers.sent_bytes == [round(2.1875 * 2**20)]


def compare(case: dict[str, Any], result: Result) -> None:
    expected = case["expected"]
    layers = result.layers
    assert layers is not None
    assert result.makespan_ns == expected["finish_ns"]
    assert layers.pass_end_ns == expected.get("pass_compute_end_ns", layers.pass_end_ns)
    figures = {"compute": layers.compute_ns, "exposed comm": layers.exposed_ns, "total comm": layers.total_ns}
    results = [
        {"layer": name}
        | {f"{short} {words}": of[row, at] / 1000 for words, of in figures.items() for short, at in PHASES}
        for row, name in enumerate(layers.names)
    ]
    assert results == expected["layers_us"]
    if "backend_end_to_end" in expected:
        sent = {k: v for k, v in expected["backend_end_to_end"].items() if k.startswith("PayloadSize_Dim")}
        assert layers.dollars == pytest.approx(expected["backend_end_to_end"]["Cost"], rel=1e-6)
        assert [round(size / 2**20, 6) for size in layers.sent_bytes] == [sent[key] for key in sorted(sent)]
        wanted = [float(value) for value in expected["avg_chunk_latency_us_per_logical_dim"]]
        # 1.0 prints six digits.
        assert chunk_means_us(result) == pytest.approx(wanted, rel=1e-5, nan_ok=True)


def test_no_case_is_left_out() -> None:
    failing = {case["id"] for case in CASES if case not in RUNS}
    assert failing == REFUSED | MENDED


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_runs_that_1_0_refuses_are_refused_with_a_remedy(name: str, tmp_path: Path) -> None:
    [case] = [case for case in CASES if case["id"] == name]
    with pytest.raises(MachineError, match="links-count"):
        simulate(case, tmp_path, fold=True)


@pytest.mark.parametrize("name", sorted(MENDED))
def test_runs_that_never_end_in_1_0_complete(name: str, tmp_path: Path) -> None:
    [case] = [case for case in CASES if case["id"] == name]
    folded, alone = (simulate(case, tmp_path, fold=fold) for fold in (True, False))
    assert folded.makespan_ns == alone.makespan_ns > 0


@pytest.mark.parametrize("name", DETAILED)
def test_result_files_have_the_columns_and_digits_of_1_0(name: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case["id"] == name)
    expected = case["expected"]
    write_run(simulate(case, tmp_path, fold=True), tmp_path / "run")
    write_csv(Layers(open_run(tmp_path / "run")), tmp_path / "csv")
    assert rows_of(tmp_path / "csv" / "EndToEnd.csv", expected["layers_us"]) == expected["layers_us"]
    detailed = rows_of(tmp_path / "csv" / "detailed.csv", expected["detailed_us"])
    assert detailed == [pytest.approx(row, abs=2e-6) for row in expected["detailed_us"]]
    with (tmp_path / "csv" / "backend_end_to_end.csv").open() as file:
        [back_end] = csv.DictReader(file)
    assert {key: float(value) for key, value in back_end.items()} == expected["backend_end_to_end"]
    if "dimension_utilization" in expected:
        wanted = expected["dimension_utilization"]
        with (tmp_path / "csv" / "dimension_utilization.csv").open() as file:
            header, *rows = csv.reader(file)
        assert header == wanted["header"]
        assert [[float(cell) for cell in row] for row in rows] == [pytest.approx(r) for r in wanted["rows"]]


def rows_of(path: Path, like: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a file with the wanted columns, which must be the only ones that are filled."""
    with path.open() as file:
        result = list(csv.DictReader(file))
    return [
        {key: row["layer"] if key == "layer" else float(row[key]) for key in wanted}
        for row, wanted in zip(result, like, strict=True)
    ]
