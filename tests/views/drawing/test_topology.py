"""Networks are drawn with the use in links.arrow, and large ones with marks for several devices."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import FIFO_RING, network, ring, sent
from pyarrow import feather
from runs_to_show import congested, pipeline, run_written

import et_sim
from et_sim.cli import main
from et_sim.views import open_run
from et_sim.views.drawing.devices import MOST_IN_A_ROW, Devices, joined_lines, placed
from et_sim.views.drawing.network import COLOURS, topology_picture
from et_sim.views.drawing.scene import NothingToDrawError
from et_sim.views.run.selection import EVERYTHING, selection
from et_sim.views.run.topology import topology_of
from et_sim.views.summary.topology import (
    SCALE,
    level_counts,
    level_names,
    level_of,
    most_used_text,
    topology_data,
)
from et_sim.views.text import share

pytestmark = pytest.mark.usefixtures("warm_engine")


def _ring_of_rings(folder: Path, *, fold: bool) -> Path:
    """Write an all-gather along rings of four, and one along pairs behind a switch, of unequal sizes."""
    builders = [et_sim.TraceBuilder() for _ in range(8)]
    for builder in builders:
        first = builder.collective("all_gather", 1 << 16, involved_dims=[True, False])
        builder.collective("all_gather", 1 << 18, involved_dims=[False, True], after=[first])
    grid = network(["Ring", "Switch"], [4, 2], ["50GB/s", "25GB/s"], [500, 700])
    system = FIFO_RING | {
        "all-gather-implementation": ["ring", "direct"],
        "all-reduce-implementation": ["ring"] * 2,
    }
    workload = et_sim.Workload.of([builder.build() for builder in builders])
    return run_written(folder, workload, grid, system, model="link", detail="links", fold=fold)


@pytest.mark.parametrize(("messages", "others"), [(1, ""), (2, ", and 1 other like it")])
def test_the_most_used_link_is_named_with_the_number_of_others_like_it(
    messages: int, others: str, tmp_path: Path
) -> None:
    workload = sent(4, [(at, at + 1, 1 << 20) for at in range(0, 2 * messages, 2)])
    path = run_written(tmp_path / "run", workload, ring(4), detail="links", model="link", fold=False)
    topology = topology_of(open_run(path))
    assert topology is not None
    text = most_used_text(topology)
    assert text.startswith("used most: npu0 to npu1, ")
    assert text.partition(" %")[2] == others


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _ring_of_rings(tmp_path_factory.mktemp("topology") / "grid", fold=False)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return congested(tmp_path_factory.mktemp("topology") / "graph", detail="links")


def test_the_use_of_a_link_of_a_graph_is_that_of_its_slices(graph: Path) -> None:
    run = open_run(graph)
    topology = topology_of(run)
    assert topology is not None
    resources = feather.read_table(graph / "resources.arrow").to_pylist()
    sizes: Counter[str] = Counter()
    for row in feather.read_table(graph / "links.arrow").to_pylist():
        sizes[row["link"]] += row["bytes"]
    wanted = {
        (resource["source"], resource["target"]): sizes[resource["link"]]
        / resource["bytes_per_ns"]
        / run.summary["makespan_ns"]
        for resource in resources
    }
    ends = [
        (topology.names[a], topology.names[b]) for a, b in zip(topology.source, topology.target, strict=True)
    ]
    assert dict(zip(ends, topology.used.tolist(), strict=True)) == pytest.approx(wanted)
    assert all(
        resource["link"].startswith(f"{resource['source']}->{resource['target']}") for resource in resources
    )
    assert topology.names[:3] == ("npu0", "npu1", "npu2")


def test_a_grid_is_the_same_folded_or_not(grid: Path, tmp_path: Path) -> None:
    folded = _ring_of_rings(tmp_path / "folded", fold=True)
    assert open_run(folded).summary["folded"]["actors"] < 8
    of_folded, of_unfolded = (
        {(row["source"], row["target"]): row["used"] for row in topology_data(open_run(path))["links"]}
        for path in (grid, folded)
    )
    assert of_folded == pytest.approx(of_unfolded)
    carrying = {(f"npu{r}", f"npu{r - r % 4 + (r + 1) % 4}") for r in range(8)}
    carrying |= {(f"npu{r}", f"dimension1.switch{r % 4}") for r in range(8)}
    carrying |= {(f"dimension1.switch{r % 4}", f"npu{r}") for r in range(8)}
    assert carrying <= set(of_folded)


def test_lines_have_the_colours_of_their_use(graph: Path) -> None:
    run = open_run(graph)
    drawn, topology = topology_picture(run), topology_of(run)
    assert topology is not None
    used: dict[frozenset[str], float] = {}
    for source, target, share_used in zip(
        topology.source, topology.target, topology.used.tolist(), strict=True
    ):
        pair = frozenset((topology.names[source], topology.names[target]))
        used[pair] = max(used.get(pair, 0.0), share_used)
    lines = re.findall(
        r'stroke="(#\w+)" stroke-width="[\d.]+" d="[^"]+"><title>(\S+) to (\S+): [^,]+,', drawn
    )
    assert {frozenset((a, b)): colour for colour, a, b in lines} == {
        pair: COLOURS[level_of(most)] for pair, most in used.items()
    }
    assert f": {share(max(used.values()), 1)}, " in drawn


def test_steps_of_the_scale_show_one_percent(graph: Path) -> None:
    assert [level_of(used) for used in (0, 0.005, 0.01, 0.02, 0.5, 1, 2)] == [0, 1, 1, 2, 5, 7, 7]
    assert len(level_names()) == len(COLOURS) == len(SCALE) + 1
    topology = topology_of(open_run(graph))
    assert topology is not None
    counts = level_counts(topology)
    assert sum(map(sum, counts.values())) == len(topology.source)


def test_a_window_counts_the_bytes_carried_in_it(graph: Path) -> None:
    run = open_run(graph)
    half = run.summary["makespan_ns"] // 2
    whole, first, second = (
        topology_of(run, selection(window=window)) for window in (None, f"0:{half}ns", f"{half}ns:")
    )
    assert whole is not None
    assert first is not None
    assert second is not None
    np.testing.assert_allclose(first.bytes + second.bytes, whole.bytes, rtol=1e-9, atol=1e-6)


def test_without_single_links_tiers_are_bars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = pipeline(tmp_path / "run", detail="links")
    assert topology_of(open_run(run)) is None
    assert "only tiers are known" in topology_picture(open_run(run), EVERYTHING)
    assert main(["inspect", str(run), "topology"]) == 0
    assert "dimension 0" in capsys.readouterr().out


def test_a_run_without_links_gives_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = pipeline(tmp_path / "run")
    assert main(["inspect", str(run), "topology"]) == 0
    assert "--detail links" in capsys.readouterr().out
    with pytest.raises(NothingToDrawError) as refusal:
        topology_picture(open_run(run))
    assert "--detail links" in refusal.value.remedy


def test_text_names_the_links_that_are_used_most(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = topology_data(open_run(graph))
    assert main(["inspect", str(graph), "topology", "--top", "1"]) == 0
    out = capsys.readouterr().out
    first = data["links"][0]
    assert re.search(rf"^{first['source']} +{first['target']} ", out, re.MULTILINE)
    assert first["used"] == max(link["used"] for link in data["links"])


@given(st.lists(st.integers(1, 90), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_every_device_is_in_one_mark_inside_the_picture(rows: list[int], seed: int) -> None:
    dice = np.random.default_rng(seed)
    of_row = np.repeat(np.arange(len(rows)), rows)
    devices = Devices([f"d{at}" for at in range(len(of_row))], of_row)
    ends = dice.integers(0, len(of_row), (2, 200))
    places = placed(devices, *ends)
    assert np.bincount(places.mark_of, minlength=len(places.x)).tolist() == places.count.tolist()
    if not places.is_flat:
        assert all(np.sum(places.row == row) <= MOST_IN_A_ROW for row in range(len(rows)))
        assert (places.row[places.mark_of] == of_row).all()
    assert (places.x > 0).all()
    assert (places.x < 1020).all()
    assert (places.y < places.bottom).all()
    pairs, of_link = joined_lines(places, *ends)
    assert len({tuple(pair) for pair in pairs.tolist()}) == len(pairs)
    for link, line in enumerate(of_link.tolist()):
        marks = {int(places.mark_of[ends[0][link]]), int(places.mark_of[ends[1][link]])}
        assert (line < 0) == (len(marks) == 1)
        assert line < 0 or set(pairs[line].tolist()) == marks


@settings(max_examples=20)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_a_large_grid_has_few_marks_inside_the_picture(sizes: list[int]) -> None:
    count = int(np.prod(sizes))
    devices = Devices([f"npu{at}" for at in range(count)], np.zeros(count, np.int64), tuple(sizes))
    places = placed(devices, np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert places.count.sum() == count
    assert (places.x < 1010).all()
    assert (places.y < places.bottom).all()
    assert len({*zip(places.x.tolist(), places.y.tolist(), strict=True)}) == len(places.x)


def test_the_page_has_the_network(graph: Path, tmp_path: Path) -> None:
    assert main(["report", str(graph), "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    picture = topology_picture(open_run(graph))
    assert picture in page
    ElementTree.fromstring(picture)
