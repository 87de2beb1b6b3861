"""Faults in a run's tables are found, and sound runs have none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import feather
from runs_to_show import congested, pipeline, side_by_side

from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.tables.registry import all_tables
from et_sim.views.run.directory import open_run
from et_sim.views.run.soundness import explain_damage

pytestmark = pytest.mark.usefixtures("warm_engine")


def _detailed(folder: Path) -> Path:
    return pipeline(folder, detail="links,phases,path,messages")


def _put(run: Path, table: str, column: str, value: Any) -> None:
    """Put a value into the first row, or null into all rows."""
    file = run / f"{table}.arrow"
    content = feather.read_table(file, memory_map=False)
    kind = content.schema.field(column).type
    others = [None] * len(content) if value is None else [value, *content[column].to_pylist()[1:]]
    at = content.column_names.index(column)
    feather.write_feather(
        content.set_column(at, column, pa.array(others, kind)), file, compression="uncompressed"
    )


@pytest.mark.parametrize("write", [_detailed, side_by_side, congested])
def test_nothing_is_wrong_with_sound_runs(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    assert explain_damage(write(tmp_path / "run")) is None


@pytest.mark.parametrize(
    ("table", "column", "value", "view"),
    [
        ("timeline", "actor", None, "idle"),
        ("timeline", "start_ns", None, "ops"),
        ("timeline", "bytes", None, "groups"),
        ("phases", "actor", None, "phases"),
        ("links", "busy_ns", 2**63 - 1, "links"),
        ("resources", "links", None, "links"),
        ("resources", "tier", None, "links"),
        ("path", "actor", 2**31 - 1, "summary"),
        ("path", "critical_parent", 2**62, "critical-path"),
    ],
)
def test_a_value_that_cannot_be_is_named_by_the_view_that_reads_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], table: str, column: str, value: Any, view: str
) -> None:
    run = _detailed(tmp_path / "run")
    _put(run, table, column, value)
    assert main(["inspect", str(run), view]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert f"{table}.arrow: is damaged: column '{column}'" in line


@pytest.mark.parametrize("value", [float("inf"), -1e300])
def test_figures_with_infinite_products_are_found(tmp_path: Path, value: float) -> None:
    run = _detailed(tmp_path / "run")
    _put(run, "timeline", "memory_utilisation", value)
    assert "timeline.arrow: is damaged: column 'memory_utilisation'" in str(explain_damage(run))


def test_links_that_are_not_there_are_refused_by_the_critical_path(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = _detailed(tmp_path / "run")
    content = feather.read_table(run / "path.arrow", memory_map=False)
    at = content.column_names.index("resource")
    absurd = pa.array([2**31 - 1] * len(content), pa.int32())
    feather.write_feather(
        content.set_column(at, "resource", absurd), run / "path.arrow", compression="uncompressed"
    )
    assert main(["inspect", str(run), "critical-path"]) == 2
    assert "path.arrow: names links that resources.arrow has not" in capfd.readouterr().err


def test_nodes_out_of_order_are_found(tmp_path: Path) -> None:
    run = _detailed(tmp_path / "run")
    content = feather.read_table(run / "timeline.arrow", memory_map=False)
    twice = pa.concat_tables([content.slice(0, 1), content])
    feather.write_feather(twice, run / "timeline.arrow", compression="uncompressed")
    assert "its nodes are not in the order" in str(explain_damage(run))


def test_numbers_of_rows_that_are_not_there_are_refused_when_they_are_read(tmp_path: Path) -> None:
    path = _detailed(tmp_path / "run")
    run = open_run(path)
    columns = [(table, column) for table in all_tables() if run.holds(table.name) for column in table.columns]
    references = [(table, column) for table, column in columns if column.refers_to]
    assert len(references) > 10
    for table, column in references:
        sound = (path / table.file).read_bytes()
        for row in (-1, 2**31 - 1):
            _put(path, table.name, column.name, row)
            message = f"column '{column.name}' names row {row} of {column.refers_to}"
            with pytest.raises(UsageError, match=message):
                run.table(table.name)
            with pytest.raises(UsageError, match=message):
                list(run.batches(table.name, (column.name,)))
        (path / table.file).write_bytes(sound)
