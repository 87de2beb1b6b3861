"""What is wrong with a run's tables is found, and nothing is found in those of sound runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import feather
from runs_to_show import congested, pipeline, side_by_side

from et_sim.cli import main
from et_sim.views.run.soundness import explain_damage

pytestmark = pytest.mark.usefixtures("warm_engine")


def _detailed(folder: Path) -> Path:
    return pipeline(folder, detail="links,phases,path,messages")


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
    ],
)
def test_a_value_that_cannot_be_is_named_by_the_view_that_reads_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], table: str, column: str, value: Any, view: str
) -> None:
    run = _detailed(tmp_path / "run")
    file = run / f"{table}.arrow"
    content = feather.read_table(file, memory_map=False)
    kind = content.schema.field(column).type
    others = [None] * len(content) if value is None else [value, *content[column].to_pylist()[1:]]
    at = content.column_names.index(column)
    feather.write_feather(
        content.set_column(at, column, pa.array(others, kind)), file, compression="uncompressed"
    )
    assert main(["inspect", str(run), view]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert f"{table}.arrow: is damaged: column '{column}'" in line
