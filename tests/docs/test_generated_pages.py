"""Committed pages equal the pages that the code generates."""

from __future__ import annotations

from collections.abc import Callable

import dgx_1_page
import options_page
import profiles_page
import pytest
import timeline_page
from transcripts import REPOSITORY

from et_sim import glossary, reference_page
from et_sim.basics.lazy_names import loaded
from et_sim.tables.declaration import Column

WITHIN = 0.065  # of the link model, where the library runs the simulated algorithm


@pytest.mark.parametrize(
    ("page", "made", "command"),
    [
        ("profiles.md", profiles_page.profiles_page, "tests/docs/profiles_page.py docs/profiles.md"),
        ("timeline.md", timeline_page.timeline_page, "tests/docs/timeline_page.py docs/timeline.md"),
        ("options.md", options_page.options_page, "tests/docs/options_page.py docs/options.md"),
        ("glossary.md", glossary.page, "-m et_sim.glossary docs/glossary.md"),
        pytest.param("dgx-1.md", dgx_1_page.page, "tests/docs/dgx_1_page.py", marks=pytest.mark.deep),
    ],
)
def test_the_committed_page_is_the_generated_one(
    page: str, made: Callable[[], str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    assert (REPOSITORY / "docs" / page).read_text(encoding="utf-8") == made(), f"run: python {command}"


def test_the_committed_pages_of_keys_are_the_generated_ones() -> None:
    pages = reference_page.configuration_pages()
    assert len(pages) == 6
    for name, text in pages.items():
        assert (REPOSITORY / "docs" / name).read_text(encoding="utf-8") == text, (
            "run: python -m et_sim.reference_page docs"
        )


@pytest.mark.parametrize(
    ("page", "statement", "limit"),
    [
        ("calibrating.md", "fewer than {} sizes", "et_sim.calibrate.collective_library:FEWEST_SIZES"),
        (
            "checking.md",
            "At most {} problems of a kind are printed",
            "et_sim.trace.preflight.problem:SPELLED_OUT",
        ),
        ("editing.md", "at most {}, or `--most N`", "converters.commands.graph:MOST_NODES"),
        ("extending.md", "of at most {} ranks", "et_sim.doctor.models:MOST_RANKS"),
        ("inspecting.md", "in up to {} slices", "et_sim.engine.state.traffic_tables:MOST_SLICES"),
        ("output.md", "of more than {} ranks: a sentence", "et_sim.run.simulation:MOST_RANKS_EXPLAINED"),
        ("pictures.md", "At most {} nodes are written", "et_sim.views.export.contents:MOST_SLICES"),
        ("pictures.md", "A label of more than {} letters", "et_sim.views.drawing.scene:MOST_LETTERS"),
        ("pictures.md", "of up to {} actors", "et_sim.views.drawing.timeline:MOST_ACTORS"),
        ("running.md", "has at most {} ranks, so", "et_sim.run.simulation:MOST_RANKS_EXPLAINED"),
        ("search.md", "of up to {} sequences", "et_sim.sweeps.plan_space:MOST_BATCH"),
        ("search.md", "and at least {}, unless", "et_sim.sweeps.plan_space:FEWEST_SEQUENCES"),
        ("software.md", "with more than {} nodes", "et_sim.cli.assumed_software:MOST_NODES"),
        ("stragglers.md", "with {} events or more", "et_sim.calibrate.variation_fit:FEWEST_EVENTS"),
        ("sweeps.md", "of more than {} points requires", "et_sim.sweeps.state:MOST_UNCONFIRMED"),
        ("sweeps.md", "has at most {} values, a line", "et_sim.views.sweep.charts:MOST_JOINED"),
        ("workloads.md", "(write at most {} at a time", "converters.commands:MOST_FILES"),
    ],
)
def test_limits_that_pages_state_are_those_of_the_code(page: str, statement: str, limit: str) -> None:
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    assert statement.format(f"{loaded(limit):,}") in text


def test_every_correction_has_an_example() -> None:
    assert profiles_page.corrections_without_example() == []


@pytest.mark.parametrize(
    ("column", "unit"), [("end_ns", "ns"), ("bytes", "bytes"), ("delta_bytes", "bytes"), ("node", "")]
)
def test_units_follow_from_names(column: str, unit: str) -> None:
    assert Column(column, "int64", "any").unit == unit


@pytest.mark.deep
def test_large_all_reduces_of_a_dgx_1_take_the_measured_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    errors, least = dgx_1_page.errors(), dgx_1_page.SMALLEST_OF_LARGE
    large = [result for (size, _), result in errors.items() if size >= least]
    assert len(large) == 14
    assert all(abs(simulated["link"] / measured - 1) < WITHIN for measured, simulated in large)
