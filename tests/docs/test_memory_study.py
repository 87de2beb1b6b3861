"""The study of experts in remote memory, in small: the claims of its page hold for small models too."""

from __future__ import annotations

import memory as study
import pytest

SMALL = study.Model(pairs=2, hidden=1024, inner=4096, experts=4, tokens=512)
FOUR = study.Machine(nodes=2, gpus=2, tflops=100.0, in_node=100.0, between_nodes=5.0)


@pytest.fixture(scope="module")
def found() -> study.Study:
    return study.Study(SMALL, FOUR)


def test_a_pool_alone_is_level_with_a_tier_of_the_same_bandwidth(found: study.Study) -> None:
    tier, pool = found.point(study.TIER).seconds, found.point(study.POOL).seconds
    assert tier < pool < 1.02 * tier


def test_collectives_on_the_way_take_experts_off_the_network(found: study.Study) -> None:
    pool, switches = found.point(study.POOL), found.point(study.SWITCHES)
    assert switches.seconds < pool.seconds
    assert switches.parts[2] < pool.parts[2]  # exposed communication
    assert found.tuned().seconds <= switches.seconds


def test_bandwidth_never_slows_an_iteration(found: study.Study) -> None:
    for way in (study.TIER, study.POOL, study.SWITCHES):
        times = [found.point(way, memory=memory).seconds for memory in (25.0, 100.0, 400.0)]
        assert times == sorted(times, reverse=True)


def test_the_parts_of_an_iteration_are_all_of_it(found: study.Study) -> None:
    for _, point in found.chosen():
        assert sum(point.parts) == pytest.approx(point.seconds)
        assert all(part >= 0 for part in point.parts)


def test_the_page_has_the_assumptions_that_the_script_simulates() -> None:
    page = study.PAGE.read_text(encoding="utf-8")
    assert study.assumptions(study.Model(), study.Machine()) in page
    for name in ("memory-parts.svg", "memory-bandwidth.svg", "memory-fabric.svg"):
        assert (study.PAGE.parent / name).is_file()
        assert f"({name})" in page
