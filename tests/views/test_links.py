"""How busy links are is what the record of the run adds up to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import et_sim
from et_sim.cli import main
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.links import SLICES, link_uses
from et_sim.views.selection import selection

pytestmark = pytest.mark.usefixtures("warm_engine")

SYSTEM = {"scheduling-policy": "FIFO", "all-reduce-implementation": ["ring"], "local-mem-bw": 50}
NETWORK: dict[str, Any] = {"topology": ["Ring"], "npus_count": [4], "bandwidth": ["50GB/s"], "latency": [500]}
BYTES = 1 << 18


def _run(folder: Path, **options: Any) -> Path:
    build = et_sim.TraceBuilder()
    work = build.compute("work", micros=3)
    build.collective("all_reduce", BYTES, after=[work])
    workload = et_sim.Workload.of([build.build()] * 4)
    write_run(et_sim.simulate(workload, system=SYSTEM, network=NETWORK, detail="path", **options), folder)
    return folder


@pytest.mark.parametrize("fold", [True, False])
def test_a_ring_all_reduce_sends_its_share_over_one_link_of_each_rank(tmp_path: Path, fold: bool) -> None:
    found = link_uses(open_run(_run(tmp_path / "run", model="link", fold=fold)))
    assert found is not None
    ranks = [int(rank) for one in found for rank in one.ranks.replace("0-3", "0,1,2,3").split(",")]
    assert sorted(ranks) == [0, 1, 2, 3]
    for one in found:
        assert one.messages == 2 * 3
        assert one.busy_ns == 6 * (BYTES // 4 // 50)
        assert len(one.busy_shares) == SLICES
        assert all(0 <= used <= 1 for used in one.busy_shares)


def test_a_window_is_a_part_of_the_whole(tmp_path: Path) -> None:
    run = open_run(_run(tmp_path / "run", model="link", fold=False))
    windows = ("0:10us", "10us:15us", "15us:")
    parts = [link_uses(run, selection("1", window)) or [] for window in windows]
    whole = link_uses(run, selection("1"))
    assert whole is not None
    assert sum(one.busy_ns for part in parts for one in part) == sum(one.busy_ns for one in whole)


def test_runs_without_links_say_how_to_come_by_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(_run(tmp_path / "run")), "links"]) == 0
    assert capsys.readouterr().out.startswith("links were not recorded: simulate with --model link")
    assert main(["inspect", str(tmp_path / "run"), "links", "--json"]) == 0
    assert capsys.readouterr().out == "null\n"


def test_the_view_fits_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["inspect", str(_run(tmp_path / "run", model="link", fold=False)), "links"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len([line for line in lines if "clockwise" in line]) == 4
