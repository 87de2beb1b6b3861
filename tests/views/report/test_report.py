"""The HTML page has the figures of the run's files, needs no other file, and is safe with any names."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import FIFO_RING, ring
from pyarrow import feather
from runs_to_show import congested, pipeline, side_by_side, written

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.basics.intervals import union
from et_sim.basics.units import format_ns
from et_sim.cli import main
from et_sim.timeline import OutputFilter
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.drawing.network import dimensions, links, tiers
from et_sim.views.report.page import report
from et_sim.views.report.pictures import COLUMNS, levels
from et_sim.views.report.timeline import merge
from et_sim.views.report.times import exposed_by_group
from et_sim.views.text import share

pytestmark = pytest.mark.usefixtures("warm_engine")
TYPES = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f8": np.float64}
VOID = {"meta", "link", "br", "input"}


class Page(HTMLParser):
    """A reader of a page that checks nesting, and collects references, ids, and texts by element."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.references += [str(given[name]) for name in ("src", "href", "srcset", "action") if name in given]
        self.ids += [str(given["id"])] if "id" in given else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Ignore elements of drawings that open no further one."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))


def _data(page: str) -> dict[str, Any]:
    match = re.search(r'id="timeline-data">(.*?)</script>', page, re.DOTALL)
    assert match
    content = json.loads(match[1])
    for name, (kind, text) in content["columns"].items():
        content["columns"][name] = np.frombuffer(base64.b64decode(text), TYPES[kind])
    return dict(content)


def _page(run: Path, **options: Any) -> str:
    return report(open_run(run), **options)


def test_the_page_needs_nothing_else_and_is_well_formed(demo: Path) -> None:
    content = _page(demo)
    page = Page(content)
    assert {reference for reference in page.references if not reference.startswith("#")} == {"data:,"}
    assert {reference[1:] for reference in page.references if reference.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "default-src 'none'" in content
    assert set(re.findall(r"https?://\S+", content)) == {'http://www.w3.org/2000/svg"'}
    assert "url(" not in content
    assert len(content) < 115_000


def test_the_page_has_a_part_for_everything(demo: Path) -> None:
    headings = [text for tag, text in Page(_page(demo)).texts if tag == "h2"]
    assert headings[:5] == ["Overview", "Timeline", "Ranks over time", "Ranks", "Waiting and transfer"]
    assert headings[5:8] == ["Exposed communication", "Operations", "Ranks compared"]
    assert headings[8:] == ["Machine", "Coverage", "Configuration"]


def test_the_page_has_a_part_for_everything_that_was_recorded(tmp_path: Path) -> None:
    options = {"detail": "path,phases,links", "system": {"track-local-mem": 1}}
    content = _page(pipeline(tmp_path / "run", **options))
    headings = [text for tag, text in Page(content).texts if tag == "h2"]
    assert headings[:5] == ["Overview", "Timeline", "Ranks over time", "Schedule", "Critical path"]
    assert headings[5:8] == ["Ranks", "Waiting and transfer", "Exposed communication"]
    assert headings[8:11] == ["Operations", "Ranks compared", "Use of links"]
    assert headings[11:13] == ["Network over time", "Local memory"]
    assert headings[13:] == ["Machine", "Coverage", "Configuration"]


@pytest.mark.deep
def test_the_page_shows_queues_incasts_and_causes_of_pauses(tmp_path: Path) -> None:
    content = _page(congested(tmp_path / "run"))
    texts = Page(content).texts
    assert "Queues and pauses" in [text for tag, text in texts if tag == "h2"]
    [pauses] = [text for tag, text in texts if tag == "pre" and "pauses of" in text]
    assert pauses.splitlines()[1].startswith("  spine0->leaf1: ")
    assert ("td", "0-2,5") in texts
    assert '<section id="ports"' not in _page(pipeline(tmp_path / "ring"))


def test_the_page_names_the_slowest_ranks_and_their_cost(demo: Path) -> None:
    slowest = open_run(demo).summary["slowest"]
    assert slowest["ranks"] == "5"
    page = _page(demo)
    assert f"the others wait {format_ns(slowest['cost_ns'])} on average" in page
    assert "waiting for other ranks" in page


def test_the_page_is_the_same_each_time(demo: Path) -> None:
    assert _page(demo) == _page(demo)


def test_the_timeline_holds_every_node_of_the_ranks_that_are_shown(tmp_path: Path) -> None:
    run = pipeline(tmp_path / "run", fold=False)
    data = _data(_page(run, ranks="1-3"))
    column = data["columns"]
    counted = Counter()
    for slice_ in range(len(column["start"])):
        track = data["tracks"][column["track"][slice_]]
        start = int(column["start"][slice_])
        name = data["names"][column["name"][slice_]]
        counted[data["ranks"][track[0]], track[1], name, start, start + int(column["length"][slice_])] += 1
    ranks = {
        row["actor"]: f"rank {row['ranks']}" for row in feather.read_table(run / "actors.arrow").to_pylist()
    }
    rows = feather.read_table(run / "timeline.arrow").to_pylist()
    assert counted == Counter(
        (ranks[row["actor"]], row["lane"], row["name"], row["start_ns"], row["end_ns"])
        for row in rows
        if ranks[row["actor"]] in ("rank 1", "rank 2", "rank 3")
    )
    order = np.lexsort((column["start"], column["track"]))
    assert (order == np.arange(len(order))).all()


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute("</script><script>alert(1)</script><!--", micros=3)
    run = written(et_sim.Workload.of([build.build()] * 2), tmp_path / "a<b>&\"c'")
    page = Page(_page(run))
    assert not any(
        "alert(1)" in text for tag, text in page.texts if tag == "script" and "\\u003c" not in text
    )
    assert ("h1", "a<b>&\"c'") in page.texts


def test_a_stalled_run_begins_with_the_stall(tmp_path: Path) -> None:
    from et_sim.api import run as simulate
    from et_sim.engine.stall import explain_stall
    from et_sim.timeline import write_run

    build = et_sim.TraceBuilder()
    build.receive(1, 64, tag=7)
    idle = et_sim.TraceBuilder()
    idle.compute("work", micros=1)
    workload = et_sim.Workload.of([build.build(), idle.build()])
    network = ring(2, "50GB/s")
    result = simulate(workload, system={"scheduling-policy": "FIFO"}, network=network)
    write_run(result, tmp_path / "run", explain_stall(result.outcome, workload).as_dict())
    content = _page(tmp_path / "run")
    Page(content)
    assert "rank 0 waits for 64 B with tag 7 from rank 1" in content
    stall = open_run(tmp_path / "run").stall
    assert stall is not None
    shown = {text for tag, text in Page(content).texts if tag in ("li", "p")}
    assert stall["nearest"]
    for sentence in (*stall["remedies"], *stall["nearest"], *stall["dead_ends"]):
        assert any(sentence in text for text in shown)
    assert stall["remedies"]
    data = _data(content)
    assert "never completed" in {data["kinds"][kind]["name"] for kind in data["columns"]["kind"].tolist()}


def test_a_page_of_a_part_names_it_and_averages_over_its_ranks(tmp_path: Path) -> None:
    whole = open_run(pipeline(tmp_path / "whole", fold=False))
    part = pipeline(tmp_path / "part", fold=False, output_filter=OutputFilter((range(4),)))
    content = _page(part)
    Page(content)
    assert "are those of the recorded part: ranks 0-3" in content
    of_part = {group.group: group.exposed_ns for group in exposed_by_group(open_run(part))}
    every = {group.group: group.exposed_ns for group in exposed_by_group(whole)}
    assert 0 < of_part["data"] < every["data"]
    assert f"{format_ns(round(of_part['data'] / 4))} <small>" in content


def test_memory_is_drawn_where_it_was_tracked(tmp_path: Path) -> None:
    content = _page(side_by_side(tmp_path / "run"))
    Page(content)
    assert "peak memory" in content
    assert '<path class="line line-0"' in content


def test_memory_is_drawn_of_a_window_after_its_last_release(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    first = build.compute("first", micros=5, outputs={"x": 64})
    second = build.compute("second", micros=5, inputs={"x": 64}, after=[first])
    build.compute("third", micros=50, inputs={}, outputs={}, after=[second])
    options: dict[str, Any] = {"system": {"track-local-mem": 1}}
    late = OutputFilter(window=(20_000, 50_000))
    content = _page(
        written(et_sim.Workload.of([build.build()] * 2), tmp_path / "run", output_filter=late, **options)
    )
    assert "peak memory" in content
    assert '<path class="line line-0"' in content


def test_dimensions_are_as_busy_as_their_phases(tmp_path: Path) -> None:
    run = open_run(pipeline(tmp_path / "run", detail="phases"))
    heat = dimensions(run)
    assert heat is not None
    assert heat.names == ("dimension 0",)
    busy = 0
    for actor in range(2):
        rows = [
            row for row in feather.read_table(run.path / "phases.arrow").to_pylist() if row["actor"] == actor
        ]
        busy += len({t for row in rows for t in range(row["start_ns"] // 64, row["end_ns"] // 64)}) * 64
    assert heat.shares.mean() == pytest.approx(busy / 2 / run.summary["makespan_ns"], rel=0.02)
    content = _page(run.path)
    Page(content)
    assert heat.note in content


@pytest.mark.deep
@pytest.mark.parametrize("model", ["analytical", "link"])
def test_the_critical_path_is_described_and_marked(tmp_path: Path, model: str) -> None:
    run = open_run(pipeline(tmp_path / "run", detail="path", model=model, fold=False))
    path = CriticalPath(PathRecord(run))
    content = _page(run.path)
    Page(content)
    for cause, spent in path.by_cause().items():
        assert f">{cause} {escape(share(spent, path.makespan_ns))} {format_ns(spent)}<" in content
    data = _data(content)
    column = data["columns"]
    actors = [row["ranks"] for row in feather.read_table(run.path / "actors.arrow").to_pylist()]
    nodes = path.record.nodes
    wanted = {
        (f"rank {actors[nodes.actor[row]]}", int(nodes.node[row]))
        for row in path.node[(path.node >= 0) & (path.spent_ns > 0)].tolist()
    }
    places = [data["ranks"][track[0]] for track in data["tracks"]]
    marked = {
        (places[column["track"][row]], int(column["node"][row]))
        for row in np.flatnonzero(column["critical"]).tolist()
    }
    assert marked == wanted


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_links_are_as_busy_as_their_slices(tmp_path: Path, model: str) -> None:
    run = open_run(pipeline(tmp_path / "run", detail="links", model=model, fold=False))
    heat = links(run)
    assert heat is not None
    rows = feather.read_table(run.path / "links.arrow").to_pylist()
    assert len(heat.names) == len({(row["actor"], row["link"]) for row in rows})
    busy = sum(min(row["busy_ns"], row["end_ns"] - row["start_ns"]) for row in rows)
    assert heat.shares.mean(axis=1).sum() == pytest.approx(busy / run.summary["makespan_ns"], rel=1e-3)
    assert heat.shares.max() <= 1
    assert ("on the analytical model" in heat.note) is (model == "analytical")
    content = _page(run.path)
    Page(content)
    assert heat.note in content


@pytest.mark.parametrize(("leaves", "rows"), [(4, 32), (6, 40)])
def test_heat_maps_show_tiers_and_of_many_links_the_busiest_of_each(
    tmp_path: Path, leaves: int, rows: int
) -> None:
    shape = {"generator": "leaf-spine", "leaves": leaves, "spines": 2, "npus-per-leaf": 2}
    build = et_sim.TraceBuilder()
    build.collective("all_to_all", 1 << 16)
    result = et_sim.simulate(
        et_sim.Workload.of([build.build()] * 2 * leaves),
        system={"profile": "corrected", "all-to-all-implementation": ["direct"] * 2},
        network={"graph": {**shape, "bandwidth": "50GB/s"}, "routing": "ecmp"},
        model="flow",
        detail="links",
    )
    run = open_run(result.save(tmp_path / "run"))
    of_tiers, of_links = tiers(run), links(run)
    assert of_tiers is not None
    assert of_links is not None
    names = [name.rsplit(", ", 1) for name in of_tiers.names]
    expected = ["NPUs to leaf", "leaf to NPUs", "leaf to spine", "spine to leaf"]
    assert sorted(name for name, _ in names) == expected
    assert {links for _, links in names} == {f"{2 * leaves} links"}
    assert len(of_links.names) == rows
    shown = [name.rsplit(", ", 1)[1] for name in of_links.names]
    assert shown == sorted(shown)
    assert [shown.count(tier) for tier in expected] == [rows // 4] * 4
    assert (f"the busiest 40 of {8 * leaves} links" in of_links.note) is (rows < 8 * leaves)
    busiest = dict.fromkeys(expected, 0)
    for row in feather.read_table(run.path / "links.arrow").to_pylist():
        busiest[row["tier"]] += row["bytes"]
    for (name, _), shares in zip(names, of_tiers.shares, strict=True):
        wanted = busiest[name] / 50 / (2 * leaves) / result.makespan_ns
        assert shares.mean() == pytest.approx(wanted, rel=1e-3)
    content = _page(run.path)
    Page(content)
    assert of_tiers.note in content
    assert of_links.note in content


def test_exposed_time_of_one_group_is_that_of_the_ranks(demo: Path) -> None:
    run = open_run(demo)
    [group] = exposed_by_group(run)
    assert group.group == "all"
    assert group.exposed_ns == sum(entry["exposed_comm_ns"] for entry in run.summary["per_rank"])


def test_exposed_time_of_folded_groups_is_that_of_all_ranks(tmp_path: Path) -> None:
    folded, unfolded = (
        exposed_by_group(open_run(pipeline(tmp_path / str(fold), fold=fold))) for fold in (True, False)
    )
    assert folded == unfolded
    assert {group.group for group in folded} == {"sends and receives", "tensor", "data"}


spans = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 15)), max_size=30)


@given(spans, st.sampled_from((1, 2**60)))
def test_a_union_counts_every_nanosecond_once(drawn: list[tuple[int, int, int]], late: int) -> None:
    actor, start, length = (np.array([span[at] for span in drawn], np.int64) for at in range(3))
    offset = np.where(start > 30, late, 0)
    begin = (start + offset).tolist()
    spans_of = [
        [(b, b + n) for k, b, n in zip(actor, begin, length.tolist(), strict=True) if k == a]
        for a in range(5)
    ]
    wanted = [len({moment for span in of_actor for moment in range(*span)}) for of_actor in spans_of]
    joined = union(actor, start + offset, start + offset + length)
    assert joined.lengths(5).tolist() == wanted
    parts = list(zip(joined.owner.tolist(), joined.start.tolist(), joined.end.tolist(), strict=True))
    assert all(earlier[0] < later[0] or earlier[2] < later[1] for earlier, later in pairwise(parts))


@given(spans, st.integers(1, 9))
def test_shares_of_columns_are_those_counted_by_hand(drawn: list[tuple[int, int, int]], columns: int) -> None:
    owner, start, length = (np.array([span[at] for span in drawn], np.int64) for at in range(3))
    span = columns * 7
    shares = union(owner, start, start + length).shares(4, columns, span)
    for k in range(4):
        busy = {t for a, s, n in drawn if a == k for t in range(s, s + n)}
        wanted = [sum(t in busy for t in range(c * 7, c * 7 + 7)) / 7 for c in range(columns)]
        assert shares[k].tolist() == pytest.approx(wanted)


@given(spans, st.integers(1, 12), st.randoms(use_true_random=False))
def test_merging_keeps_totals_and_separate_kinds(
    given_spans: list[tuple[int, int, int]], limit: int, random: Any
) -> None:
    track, start, length = (np.array([span[at] for span in given_spans], np.int64) for at in range(3))
    kind = np.array([random.randrange(3) for _ in given_spans], np.int64)
    merged = merge(track, kind, start, start + length, limit)
    assert int(merged.count.sum()) == len(track)
    assert int(merged.busy_ns.sum()) == int(length.sum())
    for slice_ in range(len(track)):
        drawn = merged.of_slice[slice_]
        assert track[merged.first[drawn]] == track[slice_]
        assert kind[merged.first[drawn]] == kind[slice_]
        assert merged.start_ns[drawn] <= start[slice_]
        assert merged.end_ns[drawn] >= start[slice_] + length[slice_]
    several = merged.count > 1
    assert ((merged.end_ns - merged.start_ns)[several] < 2 * merged.bin_ns).all()
    if len(track) <= limit:
        assert len(merged.first) == len(track)


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 99)), min_size=1, max_size=60),
    st.integers(1, 6000),
)
def test_a_curve_shows_the_most_of_each_column(changes: list[tuple[int, int]], makespan: int) -> None:
    changes = sorted({time: value for time, value in changes if time <= makespan}.items())
    time, alive = (np.array([change[at] for change in changes], np.int64) for at in range(2))
    highest = levels(time, alive, makespan)
    for column in range(0, COLUMNS, 37):
        first, last = column * makespan // COLUMNS, (column + 1) * makespan // COLUMNS
        before = [value for at, value in changes if at <= first][-1:] or [0]
        assert highest[column] == max(before + [value for at, value in changes if first < at < last])


def test_more_nodes_than_fit_are_merged_with_a_note(demo: Path) -> None:
    content = _page(demo, limit=60)
    data = _data(content)
    assert len(data["columns"]["start"]) < 328
    assert int(data["columns"]["count"].sum()) == 328
    assert "draws short nodes that stand close together as one" in content


def test_a_window_cuts_the_timeline(demo: Path) -> None:
    data = _data(_page(demo, window=(1000, 2_000_000)))
    assert (data["from"], data["to"]) == (1000, 2_000_000)
    assert len(data["columns"]["start"]) < 50


def test_the_command_writes_the_page(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "page.html"
    assert main(["report", str(demo), "--html", str(target)]) == 0
    assert re.fullmatch(r".*page\.html: [0-9.]+ KiB; open it in a browser\n", capsys.readouterr().out)
    assert target.read_text(encoding="utf-8") == _page(demo)


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (["--limit", "0"], "--limit is 0"),
        (["--ranks", "99"], "no rank 99"),
        (["--window", "x"], "window 'x'"),
    ],
)
def test_bad_calls_are_refused(
    demo: Path, tmp_path: Path, options: list[str], refusal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(demo), "--html", str(tmp_path / "x.html"), *options]) == 2
    assert refusal in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_missing_tables_have_no_section_and_a_line_has_the_remedy(tmp_path: Path) -> None:
    page = report(open_run(pipeline(tmp_path / "run")))
    for name in ("critical", "network", "memory"):
        assert f'<section id="{name}"' not in page
    assert page.count("Not recorded: the critical path: simulate with --detail path; ") == 1


def test_the_machine_is_on_the_page_as_it_was_given_if_it_is_known(tmp_path: Path) -> None:
    folder = pipeline(tmp_path / "run")
    known = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    card = report(open_run(folder)).partition('<section id="machine"')[2].partition("</section>")[0]
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", card)
    assert dict(zip(cells[:12:2], cells[1:12:2], strict=True)) == {
        "dimension": "0",
        "topology": "Ring",
        "npus_count": "8",
        "bandwidth": "50GB/s",
        "latency": "500 ns",
        "all-reduce": "ring",
    }
    assert dict(zip(cells[14::2], cells[15::2], strict=True)) == {
        "scheduling-policy": "FIFO",
        "local-mem-bw": "50",
        "corrections.port-bandwidth": "false",
    }
    del known["configuration"]
    (folder / "run.json").write_text(json.dumps(known), encoding="utf-8")
    assert 'id="machine"' not in report(open_run(folder))


def test_a_graph_of_many_links_is_shown_by_its_generator_or_counted(tmp_path: Path) -> None:
    folder = congested(tmp_path / "run", detail="links")
    page = report(open_run(folder))
    assert "<td>graph.generator</td><td>leaf-spine</td>" in page
    assert "<td>protocol.congestion-control</td><td>none</td>" in page
    known = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    known["configuration"]["network"] = {"links": [{"from": "a", "to": "b"}] * 5000, "odd": {}, "n": None}
    (folder / "run.json").write_text(json.dumps(known), encoding="utf-8")
    page = report(open_run(folder))
    assert "<td>links</td><td>5,000 entries</td>" in page
    known["configuration"]["system"] = [1]
    (folder / "run.json").write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(UsageError, match=r"configuration\.system is not an object"):
        open_run(folder)


def test_the_head_names_the_machine_by_its_name_or_its_files(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute("kernel", nanos=10)
    workload = et_sim.Workload.of([build.build()])
    (tmp_path / "small.json").write_text(json.dumps(FIFO_RING))
    by_name = et_sim.simulate(workload, machine="h100-dgx:1")
    by_files = et_sim.simulate(workload, system=tmp_path / "small.json", network=ring(1, "50GB/s", 10))
    for result, machine in ((by_name, "h100-dgx:1"), (by_files, "small.json, a network of its own")):
        result.save(tmp_path / "run")
        head = report(open_run(tmp_path / "run")).partition("</header>")[0]
        assert f"machine: {machine} (1 NPU)" in head


def test_steps_of_the_critical_path_have_their_times(tmp_path: Path) -> None:
    run = open_run(pipeline(tmp_path / "run", detail="path", fold=False))
    content = _page(run.path)
    hops = CriticalPath(PathRecord(run)).hops()
    assert len(hops) > 3
    for hop in sorted(hops, key=lambda hop: hop.start_ns - hop.end_ns)[:3]:
        start, takes = format_ns(hop.start_ns), format_ns(hop.end_ns - hop.start_ns)
        assert re.search(rf">{re.escape(start)}</td><td[^>]*>{re.escape(takes)}<", content)
