"""The use of links follows from sums over the record of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import FIFO_RING, ring, sent
from pyarrow import feather
from runs_to_show import run_written

import et_sim
from et_sim.cli import main
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.run.selection import selection
from et_sim.views.run.slices import link_table
from et_sim.views.run.topology import tier_uses
from et_sim.views.summary.links import SLICES, link_uses

pytestmark = pytest.mark.usefixtures("warm_engine")

NETWORK = ring(4, "50GB/s")
BYTES = 1 << 18


def _run(folder: Path, **options: Any) -> Path:
    build = et_sim.TraceBuilder()
    work = build.compute("work", micros=3)
    build.collective("all_reduce", BYTES, after=[work])
    workload = et_sim.Workload.of([build.build()] * 4)
    options = {"detail": "links"} | options
    return run_written(folder, workload, NETWORK, **options)


@pytest.mark.parametrize("fold", [True, False])
def test_a_ring_all_reduce_sends_its_share_over_one_link_of_each_rank(tmp_path: Path, fold: bool) -> None:
    uses = link_uses(open_run(_run(tmp_path / "run", model="link", fold=fold)))
    assert uses is not None
    ranks = [int(rank) for use in uses for rank in use.ranks.replace("0-3", "0,1,2,3").split(",")]
    assert sorted(ranks) == [0, 1, 2, 3]
    for use in uses:
        assert use.messages == 2 * 3
        assert use.busy_ns == 6 * (BYTES // 4 // 50)
        assert len(use.busy_shares) == SLICES
        assert all(0 <= used <= 1 for used in use.busy_shares)


def test_runs_without_links_give_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(_run(tmp_path / "run", detail="path")), "links"]) == 0
    assert capsys.readouterr().out.startswith("links were not recorded: simulate with --detail links")
    assert main(["inspect", str(tmp_path / "run"), "links", "--json"]) == 0
    assert capsys.readouterr().out == "null\n"


def test_the_view_fits_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["inspect", str(_run(tmp_path / "run", model="link", fold=False)), "links"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[1] for line in lines if "clockwise" in line] == ["0-3"]


def test_columns_without_space_on_a_narrow_terminal_are_left_out_and_not_wrapped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    run = _run(tmp_path / "run", model="link", fold=False, detail="links")
    assert main(["inspect", str(run), "links"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0].split() == ["dimension", "ranks", "link", "busy", "waiting"]
    assert all(line.split()[0] == "0" for line in lines[1:2])


def test_a_window_of_slices_is_a_part_of_the_whole(tmp_path: Path) -> None:
    run = open_run(_run(tmp_path / "run", model="link", fold=False))
    whole = link_uses(run, selection("1")) or []
    windows = ("0:10us", "10us:15us", "15us:")
    parts = [link_uses(run, selection("1", window)) or [] for window in windows]
    total = sum(use.busy_ns for use in whole)
    assert total - len(windows) <= sum(use.busy_ns for part in parts for use in part) <= total


def test_on_the_analytical_model_a_rank_has_one_line_for_each_dimension(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _run(tmp_path / "run", detail="links")
    uses = link_uses(open_run(run))
    assert uses is not None
    [use] = uses
    assert (use.ranks, use.link, use.bytes, use.wait_ns) == ("0-3", "all it sends", 6 * BYTES // 4, None)
    assert main(["inspect", str(run), "links"]) == 0
    out = capsys.readouterr().out
    assert "on the analytical model, messages overlap" in out
    assert "waiting" not in out


def test_links_that_carry_nothing_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = et_sim.TraceBuilder()
    build.compute("work", micros=3)
    workload = et_sim.Workload.of([build.build()] * 4)
    result = et_sim.simulate(workload, system=FIFO_RING, network=NETWORK, detail="links", model="link")
    write_run(result, tmp_path / "run")
    assert main(["inspect", str(tmp_path / "run"), "links"]) == 0
    assert capsys.readouterr().out == "no link carried a message\n"


def test_damaged_tables_are_refused_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(tmp_path / "run", detail="links,messages")
    table = feather.read_table(run / "links.arrow")
    feather.write_feather(table.drop_columns(["busy_ns"]), run / "links.arrow")
    assert main(["inspect", str(run), "links"]) == 2
    assert "column 'busy_ns' is missing (simulate again with et-sim run)" in capsys.readouterr().err
    (run / "links.arrow").write_bytes((run / "messages.arrow").read_bytes()[:200])
    assert main(["inspect", str(run), "links"]) == 2
    assert "links.arrow: cannot be read" in capsys.readouterr().err
    (run / "messages.arrow").write_bytes(b"")
    assert main(["export", str(run), "--chrome", str(tmp_path / "run.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "run.json").exists()


TREE: dict[str, Any] = {
    "graph": {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 2, "bandwidth": "50GB/s"}
}


def _on_tree(folder: Path, **options: Any) -> Path:
    """Write ranks 0 and 1 that send to 2 and 3: two messages share the links to and from the spine."""
    workload = sent(4, [(source, source + 2, 1_000_000) for source in (0, 1)])
    options = {"detail": "links", "fold": False} | options
    return run_written(folder, workload, TREE, **options)


@pytest.mark.parametrize("model", ["analytical", "link", "flow"])
def test_tiers_are_as_loaded_as_their_links_on_average(tmp_path: Path, model: str) -> None:
    run = open_run(_on_tree(tmp_path / "run", model=model))
    table = link_table(run)
    assert table is not None
    tiers = {tier.tier: tier for tier in tier_uses(run, table, SLICES)}
    makespan = run.summary["makespan_ns"]
    links = {"NPUs to leaf": (4, 2), "leaf to spine": (2, 1), "spine to leaf": (2, 1), "leaf to NPUs": (4, 2)}
    assert {name: tier.links for name, tier in tiers.items()} == {name: n for name, (n, _) in links.items()}
    for name, (count, carrying) in links.items():
        tier = tiers[name]
        assert tier.bytes == 2_000_000
        assert tier.used == pytest.approx(2_000_000 / 50 / count / makespan, abs=1e-6)
        assert tier.most_used == pytest.approx(2_000_000 / 50 / carrying / makespan, abs=1e-6)
        assert sum(tier.used_shares) / SLICES == pytest.approx(tier.used, abs=1e-3)
    at_once = [tiers[name].most_at_once for name in links]
    # Two messages meet on the way to the spine, where the link model lines them up.
    assert at_once == {"analytical": [None] * 4, "link": [1, 2, 1, 1], "flow": [1, 2, 2, 1]}[model]
    halves = [tier_uses(run, table, SLICES, selection(None, window)) for window in ("0:20us", "20us:")]
    assert sum(tier.bytes for half in halves for tier in half) == pytest.approx(8_000_000, abs=10)


def test_the_view_has_a_line_for_each_tier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _on_tree(tmp_path / "run", model="flow")
    assert main(["inspect", str(run), "links"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("tier "))
    assert lines[at + 1].startswith("leaf to spine      2  50 %  100 %  ")
    assert max(map(len, lines)) <= 80
    assert main(["inspect", str(run), "links", "--json"]) == 0
    for tier in json.loads(capsys.readouterr().out):
        assert tier["tier"] in ("NPUs to leaf", "leaf to spine", "spine to leaf", "leaf to NPUs")
        assert 0 < tier["mean_at_once"] <= tier["most_at_once"] == 1 + tier["most_waiting"]
    assert main(["inspect", str(run), "links", "--ranks", "0"]) == 0
    assert "tier " not in capsys.readouterr().out
