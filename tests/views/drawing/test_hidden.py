"""What pictures must not hide, and what they leave out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs_to_show import SYSTEM, written

import et_sim
from et_sim.cli import main
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.drawing.activity import PART_COLOURS
from et_sim.views.drawing.colours import COLOURS, NEVER
from et_sim.views.drawing.idle import COLOURS as OF_IDLE
from et_sim.views.drawing.memory import memory_picture
from et_sim.views.drawing.picture import picture
from et_sim.views.drawing.pictures import PICTURES
from et_sim.views.drawing.spread import ALIKE, spread_picture
from et_sim.views.run.selection import EVERYTHING

pytestmark = pytest.mark.usefixtures("warm_engine")


def _run(folder: Path, builders: list[et_sim.TraceBuilder], **options: str) -> Path:
    return written(et_sim.Workload.of([one.build() for one in builders]), folder, **options)


def _stalled(folder: Path) -> Path:
    builders = [et_sim.TraceBuilder() for _ in range(2)]
    for one in builders:
        one.collective("all_reduce", 1 << 20)
    builders[1].receive(0, 4096, tag=1)
    et_sim.write_workload(et_sim.Workload.of([one.build() for one in builders]), folder / "stuck")
    network = {"topology": ["Ring"], "npus_count": [2], "bandwidth": ["50GB/s"], "latency": [500]}
    for name, content in (("system", SYSTEM), ("network", network)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    files = [f"--{name}={folder / name}.json" for name in ("system", "network")]
    assert main(["run", str(folder / "stuck"), *files, "--out", str(folder / "run")]) == 1
    return folder / "run"


def test_what_never_completed_is_drawn_on_top(tmp_path: Path) -> None:
    paths = [line for line in picture(open_run(_stalled(tmp_path))).splitlines() if "<path fill=" in line]
    assert COLOURS[NEVER] in paths[-1]
    assert "h900v3h" in paths[-1]


def test_in_a_spread_every_row_shows_a_difference(tmp_path: Path) -> None:
    builders = [et_sim.TraceBuilder() for _ in range(4)]
    for rank, one in enumerate(builders):
        one.compute("alike", micros=5)
        one.compute("uneven", micros=5 + rank)
    drawn = spread_picture(open_run(_run(tmp_path / "run", builders)))
    assert ">uneven, compute<" in drawn
    assert ">alike, compute<" not in drawn
    assert "in 1 other operation, ranks do not differ" in drawn


def test_a_spread_of_ranks_that_are_alike_says_so(tmp_path: Path) -> None:
    builders = [et_sim.TraceBuilder() for _ in range(2)]
    for one in builders:
        one.compute("alike", micros=5)
    assert ALIKE in spread_picture(open_run(_run(tmp_path / "run", builders)))


def test_a_run_in_which_nothing_happens_has_an_empty_critical_path(tmp_path: Path) -> None:
    run = open_run(_run(tmp_path / "run", [et_sim.TraceBuilder(), et_sim.TraceBuilder()], detail="path"))
    assert CriticalPath(PathRecord(run)).by_cause() == {}
    for draw in PICTURES.values():
        if draw is not PICTURES["schedule"]:
            assert draw(run, EVERYTHING).endswith("</svg>\n")


def test_sentences_in_pictures_break_between_words(tmp_path: Path) -> None:
    drawn = memory_picture(open_run(_run(tmp_path / "run", [et_sim.TraceBuilder()])))
    assert "and 'outputs'" in " ".join(drawn.replace("</text>", "").replace("\n", " ").split())


@pytest.mark.parametrize("colours", [tuple(PART_COLOURS.values()), OF_IDLE])
def test_parts_of_time_differ_from_each_other_and_from_paper(colours: tuple[str, ...]) -> None:
    every = [tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5)) for colour in (*colours, "#ffffff")]
    for number, one in enumerate(every):
        for other in every[:number]:
            assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) >= 60
