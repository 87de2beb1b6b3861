"""Invalid file names are refused with the same message as missing files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from machines import RING_2

import et_sim
from et_sim.basics.errors import EtSimError
from et_sim.timeline import check_target
from et_sim.trace import read_workload
from et_sim.views import open_run

NAMES = ("x" * 5000, "a\0b")


def _with_template(name: str) -> str:
    template = {"file": name, "ranks": "0-1", "peers": "ranks"}
    content = {"et_sim_workload": 1, "ranks": 2, "templates": [template]}
    Path("job.workload.json").write_text(json.dumps(content))
    return "job"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "read",
    [
        read_workload,
        open_run,
        lambda name: read_workload(_with_template(name)),
        lambda name: et_sim.simulate(name, system={}, network=RING_2),
        lambda name: et_sim.simulate("x", system=name, network=RING_2),
        lambda name: et_sim.simulate("x", system={}, network=RING_2, groups=name),
    ],
)
def test_a_name_that_no_file_can_have_is_refused(
    name: str, read: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EtSimError) as caught:
        read(name)
    assert len(str(caught.value)) < 1000


def test_a_target_of_a_run_that_no_file_can_have_is_refused() -> None:
    check_target(Path("short"))
    with pytest.raises(EtSimError, match="cannot be written: its name has 5000 characters"):
        check_target(Path("x" * 5000))
