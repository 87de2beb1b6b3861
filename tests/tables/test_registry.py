"""One entry in the registry is a table everywhere: written, read, queried, checked and documented."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import FIFO_RING, RING_4
from timeline_page import timeline_page

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.tables import registry
from et_sim.tables.declaration import FIGURES, STRING, TEXT, WORD, Column, Table
from et_sim.timeline import check_target, write_run
from et_sim.timeline.content import TableContent, Texts, whole
from et_sim.views import open_run

TOY = Table(
    name="toys",
    about="one row for every toy",
    writer=f"{__name__}:toys_content",
    detail="toys",
    columns=(
        Column("actor", "int32", "whose it is", refers_to="actors"),
        Column("toy", WORD + "?", "what it is"),
        Column("found_ns", "int64?", "when it was found; null: never"),
    ),
)


def toys_content(run: Any) -> TableContent | None:
    if "toys" not in run.manifest["detail"]:
        return None
    columns = {
        "actor": np.zeros(2, np.int32),
        "toy": Texts(np.array([1, -1]), ("ball", "kite")),
        "found_ns": np.array([-1, 7]),
    }
    return whole(columns)


def _run(**options: Any) -> et_sim.Result:
    build = et_sim.TraceBuilder()
    work = build.compute("work", micros=1, outputs={"x": 64})
    build.send(1, 64, after=[work])
    build.collective("all_reduce", 1 << 16, after=[work])
    other = et_sim.TraceBuilder()
    other.receive(0, 64)
    other.collective("all_reduce", 1 << 16)
    idle = et_sim.TraceBuilder()
    idle.collective("all_reduce", 1 << 16)
    workload = et_sim.Workload.of([build.build(), other.build(), idle.build(), idle.build()])
    system = FIFO_RING | {"track-local-mem": 1}
    return et_sim.simulate(workload, system=system, network=RING_4, **options)


def test_a_table_is_one_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="detail 'toys' is not known"):
        _run(detail="toys")
    monkeypatch.setattr(registry, "TABLES", (*registry.TABLES, TOY))
    rows = [
        {"actor": 0, "toy": "kite", "found_ns": None},
        {"actor": 0, "toy": None, "found_ns": 7},
    ]
    result = _run(detail="toys")
    assert result.table("toys").to_pylist() == rows
    folder = tmp_path / "run"
    write_run(result, folder)
    run = open_run(folder)
    assert run.table("toys").to_pylist() == rows
    field = run.table("toys").schema.field("found_ns")
    assert field.metadata[b"unit"] == b"ns"
    assert main(["sql", str(folder), "SELECT sum(found_ns) AS n FROM toys", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 7}]
    check_target(folder)  # the file is one of ours, and may be replaced
    assert "## toys.arrow\n\nOne row for every toy." in timeline_page()
    with pytest.raises(UsageError, match="name its directory"):
        open_run(folder / "toys.arrow")


def test_a_table_that_was_not_recorded_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "TABLES", (*registry.TABLES, TOY))
    result = _run()
    with pytest.raises(UsageError, match=r"no table 'toys'.*--detail toys"):
        result.table("toys")
    write_run(result, tmp_path / "run")
    assert not open_run(tmp_path / "run").holds("toys")
    assert main(["sql", str(tmp_path / "run"), "SELECT * FROM toys"]) == 2
    assert "simulate with --detail toys" in capsys.readouterr().err


@pytest.mark.parametrize("table", registry.TABLES, ids=lambda table: table.name)
def test_every_declaration_names_a_writer_and_known_types(table: Table) -> None:
    module, _, function = table.writer.partition(":")
    assert callable(getattr(import_module(module), function))
    assert {column.kind for column in table.columns} <= {*FIGURES, STRING, TEXT, WORD}
    assert all(column.meaning for column in table.columns)
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)


def test_columns_that_refer_to_a_table_hold_numbers_of_its_rows(tmp_path: Path) -> None:
    write_run(_run(detail="phases,messages,links,path"), tmp_path / "run")
    run = open_run(tmp_path / "run")
    sizes = {table.name: len(run.table(table.name)) for table in registry.TABLES if run.holds(table.name)}
    others = {"layers", "peers", "jobs", "ports", "queues", "pauses", "flows", "samples"}
    assert set(sizes) == {table.name for table in registry.TABLES} - others
    checked = 0
    for table in registry.TABLES:
        for column in table.columns:
            if column.refers_to and run.holds(table.name):
                values = [v for v in run.table(table.name)[column.name].to_pylist() if v is not None]
                assert all(0 <= value < sizes[column.refers_to] for value in values), column
                checked += bool(values)
    assert checked >= 8
