"""Sweeps and runs are data: a Python file that they name runs only if the command line also names it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import RING_2, sent
from small_sweeps import SYSTEM, spec, write

import et_sim
from et_sim.basics.errors import EtSimError
from et_sim.cli import main
from et_sim.sweeps.space import open_space
from et_sim.sweeps.spec import read_spec
from et_sim.sweeps.state import plan_sweep

PODS = Path(__file__).parents[1] / "conformance" / "toys" / "fixed_delay.py"
MARK = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
COMMANDS = ("sweep", "search")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the path of a mark that a network model in the current directory writes when imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    (tmp_path / "pods.py").write_text(PODS.read_text(encoding="utf-8") + MARK, encoding="utf-8")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "pods.py").write_text(MARK, encoding="utf-8")
    before = set(sys.modules)
    yield tmp_path / "ran"
    for name in set(sys.modules) - before:
        if name in ("pods", "inner", "inner.pods"):
            del sys.modules[name]


def _described(folder: Path, name: str, where: str) -> Path:
    """Write a sweep that names a network model in `where`, and return its path."""
    axes: dict[str, Any] = {"bandwidth": {"field": "network.bandwidth[0]", "values": [25, 50]}}
    content: dict[str, Any] = spec(axes=axes, search={"minimise": ["makespan_ns"], "method": "optuna"})
    if where == "base":
        content["base"]["model"] = name
    elif where == "axis":
        axes["model"] = ["analytical", name]
    else:
        content["search"]["ladder"] = ["analytical", name]
    path = folder / "rings.yml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["pods.py", "./pods.py", "inner.pods"])
@pytest.mark.parametrize(
    ("command", "where"), [*((c, w) for c in COMMANDS for w in ("base", "axis")), ("search", "ladder")]
)
def test_a_sweep_and_a_search_run_no_file_that_they_name(
    command: str, where: str, name: str, planted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _described(planted.parent, name, where)
    main([command, str(path), "--workers", "1"])
    ended = capsys.readouterr()
    assert not planted.exists()
    assert not planted.with_name("inner").joinpath("ran").exists()
    if where != "axis":  # there, other points are simulated, and this one is refused in its row
        assert f"network model '{name}' is a program, which only the command line may name" in ended.err


def test_points_of_an_axis_that_name_a_file_are_refused_in_their_rows(planted: Path) -> None:
    table = et_sim.sweep(
        _described(planted.parent, "pods.py", "axis"), "out", workers=1, progress=False
    ).table
    rows = table.select(["model", "status", "error"]).to_pylist()
    assert {row["model"] for row in rows if row["status"] == "complete"} == {"analytical"}
    assert all("is a program" in row["error"] for row in rows if row["model"] == "pods.py")
    assert not planted.exists()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_sweep_takes_the_file_that_the_command_line_names(workers: str, planted: Path) -> None:
    path = write(planted.parent)
    assert main(["sweep", str(path), "--network-model", "pods.py", "--workers", workers]) == 0
    assert planted.exists()


def test_a_model_on_the_command_line_overrides_the_file() -> None:
    base = spec()["base"] | {"model": "link"}
    assert open_space(read_spec(spec(base=base), "flow")).model == "flow"
    assert open_space(read_spec(spec(base=base))).model == "link"


def test_an_axis_of_models_and_one_on_the_command_line_are_refused_together() -> None:
    with pytest.raises(EtSimError, match="an axis names network models, and --network-model link"):
        plan_sweep(spec(axes={"model": ["analytical", "flow"]}), model="link")


def _run(folder: Path, model: str) -> Path:
    et_sim.write_workload(sent(2, [(0, 1, 1000)]), folder / "job")
    for name, content in (("system.json", SYSTEM), ("network.yml", RING_2)):
        (folder / name).write_text(json.dumps(content))
    command = ["run", "job", "--system=system.json", "--network=network.yml", "--out=run", "--detail=path"]
    assert main([*command, f"--network-model={model}"]) == 0
    return folder / "run"


def _name_in(run: Path, model: str) -> None:
    for name in ("run.json", "summary.json"):
        content = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps({**content, "model": model}))


@pytest.mark.parametrize("how", ["--vary", "--verify"])
@pytest.mark.parametrize("name", ["pods.py", "inner.pods"])
def test_a_run_that_is_simulated_again_runs_no_file_that_it_names(
    how: str, name: str, planted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(planted.parent, "analytical")
    _name_in(run, name)
    assert main(["inspect", "run", "critical-path", how]) == 2
    assert f"network model '{name}' is a program" in capsys.readouterr().err
    assert not planted.exists()
    assert not planted.with_name("inner").joinpath("ran").exists()


def test_a_run_is_simulated_again_with_the_file_that_the_command_line_names(
    planted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(planted.parent, "pods.py")
    varied = ["inspect", "run", "critical-path", "--json", "--vary", "time of all kernels=2"]
    capsys.readouterr()
    assert main([*varied, "--network-model", "link"]) == 2
    assert (
        "was simulated with the network model pods.py, and --network-model is link" in capsys.readouterr().err
    )
    assert main(["inspect", "run", "summary", "--network-model", "pods.py"]) == 2
    assert "belongs to --vary and --verify" in capsys.readouterr().err


def test_a_program_that_names_a_file_has_it_run(planted: Path) -> None:
    workload = sent(2, [(0, 1, 1000)])
    result = et_sim.simulate(workload, system=SYSTEM, network=RING_2, model="pods.py")
    assert result.manifest["model"] == "pods.py"
    assert planted.exists()


def test_when_full_on_the_command_line_overrides_the_file() -> None:
    base = spec()["base"] | {"when-full": "stop"}
    assert open_space(read_spec(spec(base=base), when_full="report")).when_full == "report"
    assert open_space(read_spec(spec(base=base))).when_full == "stop"
    with pytest.raises(EtSimError, match="an axis names the treatment of full runs, and --when-full stop"):
        plan_sweep(spec(axes={"when-full": ["stop", "report"]}), when_full="stop")
