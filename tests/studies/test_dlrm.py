"""The study of a DLRM, in small: the claims of its page hold, and its page shows its results."""

from __future__ import annotations

from pathlib import Path

import dlrm
import dlrm_page
import pytest
from dlrm import FULL, SAME_ORDER, Results, lone, simulated, trained
from dlrm_page import exposed, ms
from dlrm_setup import MIB, SMALL, SYSTEMS, layer_file
from study_page import with_texts

SIZE = SMALL.sizes[0]
SHORT = 14  # packets in a queue


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def test_the_page_shows_the_results() -> None:
    results, page = Results(dlrm.RESULTS), dlrm_page.PAGE.read_text(encoding="utf-8")
    assert results.missing(dlrm.points(FULL)) == [], "run: python docs/studies/dlrm.py"
    assert with_texts(page, dlrm_page.texts(FULL, results)) == page
    for name, picture in dlrm_page.pictures(FULL, results).items():
        assert (dlrm_page.PAGE.parent / name).read_text(encoding="utf-8") == picture
        assert f"({name})" in page


def test_without_contention_a_direct_all_reduce_takes_a_part_of_the_time() -> None:
    analytical, flow, packets = (
        ms(simulated(lone(SMALL, model, "direct", SIZE))) for model in ("analytical", "flow", "packet")
    )
    assert packets > 2 * analytical
    assert flow < packets < 1.15 * flow


@pytest.mark.deep
def test_an_incast_waits_for_its_timers_only_where_queues_are_short() -> None:
    shorter, longer = (
        simulated(lone(SMALL, "packet", SAME_ORDER, SIZE, SHORT, timeout)) for timeout in ("1ms", "10ms")
    )
    roomy = simulated(lone(SMALL, "packet", SAME_ORDER, SIZE))
    rotated = simulated(lone(SMALL, "packet", "direct", SIZE, SHORT))
    assert shorter["packets"]["lost"] == longer["packets"]["lost"] > 0
    assert roomy["packets"]["lost"] == rotated["packets"]["lost"] == 0
    rounds = round(ms(shorter))
    assert rounds > 0
    assert ms(longer) - ms(shorter) == pytest.approx(9 * rounds, abs=0.1)
    assert ms(roomy) < 0.1


@pytest.mark.deep
def test_systems_rank_as_on_the_page_and_injection_slows_flat_ones_most() -> None:
    results = {system: simulated(trained(SMALL, system)) for system in SYSTEMS}
    assert ms(results["Flat800G"]) < ms(results["Flat100G"])
    assert ms(results["HierOpt"]) < ms(results["Hier"]) < ms(results["Flat100G"])
    assert exposed(results["HierOpt"]) <= exposed(results["Flat100G"])
    late = {
        system: ms(simulated(trained(SMALL, system, injection="100us"))) for system in ("Flat100G", "HierOpt")
    }
    grown = {system: late[system] - ms(results[system]) for system in late}
    assert grown["Flat100G"] > grown["HierOpt"] > 0


def test_a_study_that_was_ended_goes_on(tmp_path: Path) -> None:
    path, point = tmp_path / "found.json", lone(SMALL, "analytical", "ring", SIZE)
    other = lone(SMALL, "flow", "ring", SIZE)
    Results(path).add(point, simulated(point))
    again = Results(path)
    assert again.missing(iter([point, other, other])) == [other]
    assert again[point]["makespan_ns"] > 0


def test_the_layer_file_has_the_sizes_of_the_study() -> None:
    rows = [line.split() for line in layer_file(FULL).splitlines()[2:]]
    assert int(rows[0][4]) == 4 * MIB  # bytes that a GPU exchanges for the embeddings
    assert sum(int(row[10]) for row in rows) == pytest.approx(106.5e6, rel=0.01)  # gradients
    assert [row[0] for row in rows].count("top0") == 1
