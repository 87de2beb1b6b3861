"""Details of a run: one, several, or none; and refusals before anything is simulated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from machines import FIFO_RING, ring

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.run import simulation
from et_sim.tables.registry import details
from et_sim.timeline import write_run
from et_sim.timeline.scope import details_of

MACHINE: dict[str, Any] = {"system": FIFO_RING, "network": ring(4, "50GB/s")}


def _workload() -> et_sim.Workload:
    build = et_sim.TraceBuilder()
    work = build.compute("work", micros=3)
    build.collective("all_reduce", 1 << 16, after=[work])
    return et_sim.Workload.of([build.build()] * 4)


def _files(folder: Path) -> list[str]:
    (folder / "system.json").write_text(json.dumps(MACHINE["system"]))
    (folder / "network.yml").write_text(json.dumps(MACHINE["network"]))
    et_sim.write_workload(_workload(), folder / "work")
    return [
        "run",
        str(folder / "work"),
        f"--system={folder / 'system.json'}",
        f"--network={folder / 'network.yml'}",
        f"--out={folder / 'run'}",
    ]


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ("nodes", ("nodes",)),
        ("path", ("nodes", "path")),
        ("path,phases", ("nodes", "phases", "path")),
        (" path , nodes", ("nodes", "path")),
        (["path", "phases,nodes", "path"], ("nodes", "phases", "path")),
        ([], ("nodes",)),
    ],
)
def test_details_are_named_in_one_order(requested: str | Sequence[str], expected: tuple[str, ...]) -> None:
    assert details_of(requested) == expected


@pytest.mark.parametrize("requested", ["everything", "phases,", "", ["path", "phase"], "phases;path"])
def test_an_unknown_detail_is_refused_with_all_choices(requested: str | list[str]) -> None:
    with pytest.raises(
        UsageError, match=f"is not known.*known: {', '.join(('nodes', *details()))}, or several of them"
    ):
        details_of(requested)


@pytest.mark.parametrize("how", [["--detail=path,phases"], ["--detail=path", "--detail=phases"]])
def test_details_can_be_combined_without_changing_a_table(tmp_path: Path, how: list[str]) -> None:
    assert main([*_files(tmp_path), *how]) == 0
    for name in ("phases", "path"):
        write_run(et_sim.simulate(_workload(), **MACHINE, detail=name), tmp_path / name)
        alone, together = (_rows(tmp_path / folder / f"{name}.arrow") for folder in (name, "run"))
        assert alone == together
    for file in ("summary.json", "run.json"):
        content = json.loads((tmp_path / "run" / file).read_text())
        assert content["detail"] == ["nodes", "phases", "path"]


def _rows(path: Path) -> list[dict[str, Any]]:
    from pyarrow import feather

    return list(feather.read_table(path).to_pylist())


def test_ranks_that_do_not_exist_are_refused_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = _files(tmp_path)
    monkeypatch.setattr(simulation, "run_plan", None)  # calling it would fail
    assert main([*command, "--ranks", "2-4"]) == 2
    assert "--ranks: there is no rank 4 (the last one is 3)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
