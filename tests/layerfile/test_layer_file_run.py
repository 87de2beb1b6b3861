"""Layer files given to `et-sim run` and `check`: warnings about them, and Themis over many passes."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from counting import counted_calls
from machines import RING_4, network_1, system_1

import et_sim
from et_sim.basics.units import format_ns
from et_sim.cli import main
from et_sim.layerfile import read_layer_file
from et_sim.machine import read_machine
from et_sim.plan.lowering import Lowering
from et_sim.run.other_inputs import LayerFileRun
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.run.selection import EVERYTHING
from et_sim.views.summary.layers import Layers, _figure, layers_lines, write_csv

TRAINING = "DATA 1 l -1 100 NONE 0 50 NONE 0 200 ALLREDUCE 65536 0"
MICRO = "MICRO 1 l -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 65536 1"
SYSTEM = system_1(splits=16)
NETWORK = json.dumps(network_1([4, 4]))
MACHINE = ["--system=system.txt", "--network=network.json"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with a machine and a layer file."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("system.txt", SYSTEM), ("network.json", NETWORK), ("micro.txt", MICRO)):
        Path(name).write_text(text)
    return tmp_path


def result(layers: str, more: str = "") -> et_sim.Result:
    Path("layers.txt").write_text(layers)
    Path("more.txt").write_text(SYSTEM + more)
    return et_sim.simulate("layers.txt", system="more.txt", network="network.json")


def warnings_of(layers: str, more: str = "") -> list[str]:
    return [warning["text"] for warning in result(layers, more).manifest["warnings"]]


def test_collectives_that_a_loop_does_not_issue_are_warned_of() -> None:
    layers = "DATA 1 emb -1 5 ALLTOALL 64 5 NONE 0 5 ALLREDUCE 64 0"
    assert warnings_of(layers) == ["forward collective of emb: DATA does not issue it"]
    assert warnings_of(MICRO) == []
    assert warnings_of(MICRO, "comm-scale: 0") == ["weight gradient collective of l: it has 0 bytes"]


def test_collectives_without_members_are_warned_of() -> None:
    row = "l -1 5 ALLREDUCE 64 5 ALLREDUCE 64 5 ALLREDUCE 64 0"
    units = "units-count: 16_1"
    output = "weight gradient collective of all 2 layers: no rank takes part"
    assert warnings_of(f"HYBRID_DATA_MODEL 2 {row} {row}", units) == [output]
    assert warnings_of(f"HYBRID_DATA_MODEL 2 {row} {row}") == []


def test_the_first_layer_s_input_gradient_is_no_reason_for_a_warning() -> None:
    row = "l -1 5 ALLREDUCE 64 5 ALLREDUCE 64 5 NONE 0 0"
    assert warnings_of(f"MODEL 2 {row} {row}") == []


def test_check_reports_the_same_as_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("layers.txt").write_text("DATA 1 emb -1 5 ALLTOALL 64 5 NONE 0 5 ALLREDUCE 64 0")
    assert main(["check", "layers.txt", *MACHINE]) == 0
    assert "forward collective of emb: DATA does not issue it" in capsys.readouterr().out


@pytest.mark.deep
def test_themis_plans_many_passes_in_time_that_grows_like_them() -> None:
    """Check calls: an earlier version planned all passes again for every pass, half a minute for these."""
    row = MICRO.replace("65536", "1048576")
    order = "inter-dimension-scheduling: themis\n"
    few, many = (counted_calls(lambda: result(row, f"{order}num-passes: {count}"))[1] for count in (150, 600))  # noqa: B023
    assert many < 5 * few


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ("comm-scale: 1e30", 'key "comm-scale" is 1e+30: more than 9007199254740992'),
        ("comm-scale: 1e15", "65,535,999,147,448,991,744 bytes once scaled (stay below "),
        ("", "'all-to-all-implementation' is not given (add it with one algorithm per network dimension"),
    ],
)
def test_remedies_are_in_the_words_of_1_0(more: str, cause: str) -> None:
    layers = "MICRO 1 l -1 1 NONE 0 1 NONE 0 1 ALLTOALL 65536 1"
    with pytest.raises(et_sim.EtSimError) as caught:
        result(layers, more)
    assert cause in str(caught.value)


def test_a_file_that_is_no_layer_file_is_named_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    Path("hello.txt").write_text("hello world")
    assert main(["run", "hello.txt", *MACHINE]) == 2
    assert "hello.txt: is a file, but no layer file (" in capsys.readouterr().err


def test_result_files_separate_windows_of_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(result(MICRO), Path("run"))
    ends = [(12_345_680_000, [0.5, 0.0]), (12_345_690_000, [1.0, 0.0])]
    monkeypatch.setattr(Layers, "use_of_windows", lambda _: ends)
    write_csv(Layers(open_run(Path("run"))), Path("csv"))
    rows = Path("csv/dimension_utilization.csv").read_text().splitlines()
    assert rows[1:] == ["12345680,50.000000,0.000000", "12345690,100.000000,0.000000"]


def test_runs_of_before_networks_had_a_price_still_give_all_files() -> None:
    write_run(result(MICRO), Path("run"))
    layers = Layers(open_run(Path("run")))
    del layers.figures["dollars"]
    written = write_csv(layers, Path("csv"))
    assert sorted(Path("csv").iterdir()) == sorted(written)
    assert ",,0.1" in Path("csv/backend_end_to_end.csv").read_text()  # no cost, then MiB


@pytest.mark.parametrize("is_packed", [False, True])
def test_the_simulated_content_is_the_digested_one_because_a_file_is_read_once(
    monkeypatch: pytest.MonkeyPatch, is_packed: bool
) -> None:
    content = gzip.compress(MICRO.encode()) if is_packed else MICRO.encode()
    Path("micro.txt").write_bytes(content)
    read: list[Path] = []
    plain = Path.open

    def counting(path: Path, *how: Any, **more: Any) -> Any:
        read.append(path)
        return plain(path, *how, **more)

    monkeypatch.setattr(Path, "open", counting)
    outcome = read_layer_file("micro.txt")
    assert outcome.sha256 == hashlib.sha256(content).hexdigest()
    road = LayerFileRun("micro.txt", read_machine(system="system.txt", network="network.json"))
    assert road.workload.inputs == (("micro.txt", outcome.sha256),)
    assert read.count(Path("micro.txt")) == 2  # once each


def test_passes_and_scales_are_keys_of_every_system_file() -> None:
    layers = "DATA 1 l -1 100 NONE 0 0 NONE 0 200 ALLREDUCE 65536 0"
    Path("layers.txt").write_text(layers)
    system = {"profile": "corrected", "all-reduce-implementation": ["ring"]}
    more = {"num-passes": 3, "compute-scale": 2.0, "comm-scale": 0.5}
    rows = [
        et_sim.simulate("layers.txt", system=system | keys, network=RING_4).table("layers").to_pylist()[0]
        for keys in ({}, more, {"num-passes": 3})
    ]
    assert rows[0]["forward_compute_ns"] == 100
    assert rows[1]["forward_compute_ns"] == 3 * 2 * 100
    assert rows[1]["weight_gradient_total_ns"] < rows[2]["weight_gradient_total_ns"]


def test_passes_of_a_system_file_are_checked() -> None:
    with pytest.raises(et_sim.MachineError, match='key "num-passes" is 0'):
        read_machine(
            system={"num-passes": 0, "profile": "corrected"},
            network=RING_4,
        )


def test_every_row_of_a_result_file_has_a_cell_for_each_column() -> None:
    row = "-1 5 NONE 0 5 NONE 0 5 ALLREDUCE 65536 5"
    write_run(result(f"DATA 2 first {row} second {row}"), Path("run"))
    for path in write_csv(Layers(open_run(Path("run"))), Path("csv")):
        rows = list(csv.reader(path.read_text().splitlines()))
        assert {len(cells) for cells in rows} == {len(rows[0])}


@pytest.mark.parametrize(("order", "jointly"), [("themis", True), ("ascending", False)])
def test_themis_of_1_0_plans_collectives_of_one_nanosecond_jointly(order: str, jointly: bool) -> None:
    Path("more.txt").write_text(f"{SYSTEM}inter-dimension-scheduling: {order}\n")
    machine = read_machine(system="more.txt", network="network.json")
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1 << 16)
    lowering = Lowering(et_sim.Workload.of([build.build()] * 16), machine)
    assert lowering.collectives.plans_jointly is jointly


@pytest.mark.parametrize(
    ("passes", "shown"), [(1, ""), (2, "2 passes, computed by {}, {}"), (4, "{}, {}, {}, {}")]
)
def test_ends_of_passes_are_listed_if_there_are_several(passes: int, shown: str) -> None:
    write_run(result(TRAINING, f"num-passes: {passes}\n"), Path("run"))
    run = open_run(Path("run"))
    [*_, last] = layers_lines(run, EVERYTHING, 200)
    ends = Layers(run).figures["pass_end_ns"]
    assert len(ends) == passes
    assert shown.format(*map(format_ns, ends)) in last
    assert ("computed by" in last) is (passes > 1)


def test_of_many_passes_the_first_two_and_the_last_are_listed() -> None:
    write_run(result(TRAINING, "num-passes: 5\n"), Path("run"))
    run = open_run(Path("run"))
    first, second, *_, last = map(format_ns, Layers(run).figures["pass_end_ns"])
    assert layers_lines(run, EVERYTHING, 200)[-1] == f"5 passes, computed by {first}, {second}, …, {last}"


def test_figures_of_layers_have_four_digits_and_no_part_of_a_nanosecond_and_zero_is_a_dash() -> None:
    row = {"time": 1_234_567}
    units = (("ns", 1), ("us", 1000), ("ms", 1_000_000))
    assert [_figure("time", unit, size, row) for unit, size in units] == ["1234567", "1235", "1.235"]
    assert _figure("time", "us", 1000, {"time": 0}) == "-"
