"""Content that pictures must show, and content that they leave out."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from machines import FIFO_RING, ring
from runs_to_show import written

import et_sim
from et_sim.cli import main
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.drawing.bars import ALIKE, spread_picture
from et_sim.views.drawing.bars import IDLE_COLOURS as OF_IDLE
from et_sim.views.drawing.scene import COLOURS, NEVER, PART_COLOURS, NothingToDrawError, nothing_to_draw
from et_sim.views.drawing.timeline import picture
from et_sim.views.run.selection import EVERYTHING, selection
from et_sim.views.view import DRAWN, VIEWS

pytestmark = pytest.mark.usefixtures("warm_engine")


def _run(folder: Path, builders: list[et_sim.TraceBuilder], **options: str) -> Path:
    return written(et_sim.Workload.of([builder.build() for builder in builders]), folder, **options)


def _stalled(folder: Path) -> Path:
    builders = [et_sim.TraceBuilder() for _ in range(2)]
    for builder in builders:
        builder.collective("all_reduce", 1 << 20)
    builders[1].receive(0, 4096, tag=1)
    et_sim.write_workload(et_sim.Workload.of([builder.build() for builder in builders]), folder / "stuck")
    network = ring(2, "50GB/s")
    for name, content in (("system", FIFO_RING), ("network", network)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    files = [f"--{name}={folder / name}.json" for name in ("system", "network")]
    assert main(["run", str(folder / "stuck"), *files, "--out", str(folder / "run")]) == 1
    return folder / "run"


def test_nodes_that_never_completed_are_drawn_on_top(tmp_path: Path) -> None:
    paths = [line for line in picture(open_run(_stalled(tmp_path))).splitlines() if "<path fill=" in line]
    assert COLOURS[NEVER] in paths[-1]
    assert "h900v3h" in paths[-1]


def test_in_a_spread_every_row_shows_a_difference(tmp_path: Path) -> None:
    builders = [et_sim.TraceBuilder() for _ in range(4)]
    for rank, builder in enumerate(builders):
        builder.compute("alike", micros=5)
        builder.compute("uneven", micros=5 + rank)
    drawn = spread_picture(open_run(_run(tmp_path / "run", builders)))
    assert ">uneven, compute<" in drawn
    assert ">alike, compute<" not in drawn
    assert "in 1 other operation, ranks do not differ" in drawn


def test_a_spread_of_equal_ranks_is_stated(tmp_path: Path) -> None:
    builders = [et_sim.TraceBuilder() for _ in range(2)]
    for builder in builders:
        builder.compute("alike", micros=5)
    with pytest.raises(NothingToDrawError, match=ALIKE):
        spread_picture(open_run(_run(tmp_path / "run", builders)))


def test_a_run_in_which_nothing_happens_has_an_empty_critical_path(tmp_path: Path) -> None:
    run = open_run(_run(tmp_path / "run", [et_sim.TraceBuilder(), et_sim.TraceBuilder()], detail="path"))
    assert CriticalPath(PathRecord(run)).by_cause() == {}


@pytest.mark.parametrize("view", sorted(DRAWN))
@pytest.mark.parametrize("detail", [None, "links", "phases", "path"])
def test_a_run_in_which_nothing_happens_is_drawn_or_refused_in_a_sentence(
    tmp_path: Path, view: str, detail: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = {} if detail is None else {"detail": detail}
    run = _run(tmp_path / "run", [et_sim.TraceBuilder(), et_sim.TraceBuilder()], **cut)
    target = tmp_path / "drawn.svg"
    status = main(["inspect", str(run), view, "--svg", str(target)])
    printed = capsys.readouterr().err
    if view in ("picture", "ranks", "activity"):
        assert (status, printed) == (0, "")
        ElementTree.fromstring(target.read_text(encoding="utf-8"))
        return
    assert status == 2
    assert printed.count("\n") == 1
    assert f"{run}: nothing to draw: " in printed
    assert not target.exists()


NEEDS = {
    "links": "simulate with --detail links",
    "topology": "simulate with --detail links",
    "phases": "simulate with --detail phases",
    "critical-path": "simulate with --detail path",
    "queues": "simulate with --network-model packet --detail ports",
    "memory": "'outputs'",
    "roofline": "roofline-enabled",
}


@pytest.mark.parametrize(("view", "how"), NEEDS.items())
def test_missing_tables_are_refused_with_a_remedy(tmp_path: Path, view: str, how: str) -> None:
    builder = et_sim.TraceBuilder()
    builder.compute("alone", micros=5)
    run = open_run(_run(tmp_path / "run", [builder]))
    with pytest.raises(NothingToDrawError) as refusal:
        VIEWS[view].drawn(run, EVERYTHING)
    assert how in refusal.value.remedy
    with pytest.raises(NothingToDrawError, match="of rank 0 from 1 µs to 2 µs"):
        raise nothing_to_draw(refusal.value.cause, run, selection("0", "1us:2us"))


@pytest.mark.parametrize("colours", [tuple(PART_COLOURS.values()), OF_IDLE])
def test_parts_of_time_differ_from_each_other_and_from_paper(colours: tuple[str, ...]) -> None:
    every = [tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5)) for colour in (*colours, "#ffffff")]
    for number, colour in enumerate(every):
        for other in every[:number]:
            assert sum(abs(a - b) for a, b in zip(colour, other, strict=True)) >= 60
