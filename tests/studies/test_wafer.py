"""The study of wafers, in small: the claims of its page hold, and its rows are today's."""

from __future__ import annotations

import numpy as np
import pytest
import wafer
from msgspec.structs import replace
from study_page import with_texts
from wafer import BASELINE, PAGE, SHAPES, THEMIS, Job, Shape, Study, cut, simulated, transformer, trillion

FLAT = Shape("1-D", (32,), (350,))
CONVENTIONAL = Shape("3-D", (4, 4, 2), (200, 100, 50))


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_networks_have_512_npus_and_the_bandwidth_of_a_flat_one(shape: Shape) -> None:
    assert shape.npus == wafer.SIZE
    assert sum(wafer.wafer_like(shape).gbps) == sum(shape.gbps) == int(shape.name.split()[1])
    assert {shape.grown(8, inside=way).npus for way in (True, False)} == {4096}


def test_dimensions_are_cut_where_ranks_that_share_a_model_end() -> None:
    assert cut((512,), 16) == ((16, 32), 1)
    assert cut((32, 16), 128) == ((32, 4, 4), 2)
    assert cut((2, 8, 8, 4), 16) == ((2, 8, 8, 4), 2)
    assert cut((16, 8, 4), 1) == ((16, 8, 4), 0)


def test_a_flat_network_is_as_fast_as_its_bandwidth_with_any_cut() -> None:
    job = Job("all-reduce", wafer.all_reduce)
    whole = simulated(job, FLAT, BASELINE).whole
    assert whole == pytest.approx(2 * 31 / 32 / 350 * 1e3, rel=0.01)
    cut_up = wafer.network(FLAT, (4, 8))
    assert cut_up["logical-dimensions"] == [4, 8]
    assert [len(link["from"]) for link in cut_up["links"]] == [32]


def test_themis_brings_an_all_reduce_near_to_that_of_a_flat_network() -> None:
    job = Job("all-reduce", wafer.all_reduce)
    flat, usual, better = (
        simulated(job, *how).whole
        for how in ((FLAT, BASELINE), (CONVENTIONAL, BASELINE), (CONVENTIONAL, THEMIS))
    )
    assert usual == pytest.approx(2 * 3 / 4 / 200 * 1e3, rel=0.2)  # of the first dimension
    assert flat < better < 1.25 * flat < usual


def test_collectives_of_transformers_run_along_parts_of_the_dimensions() -> None:
    small = replace(trillion(), layers=1)
    made = transformer(small, 8, 1)(32)
    result = wafer.along_dimensions(made, 3, 2)
    before, after = made.templates[0], result.templates[0]
    for name, bits in (("tensor", 0b011), ("data", 0b100)):
        rows = before.group == before.group_names.index(name)
        assert rows.any()
        assert set(after.involved_dims[rows].tolist()) == {bits}
    assert not after.group.any()
    assert np.array_equal(before.comm_bytes, after.comm_bytes)


def test_a_transformer_exposes_less_on_a_flat_network_and_computes_the_same() -> None:
    job = Job("small", transformer(replace(trillion(), layers=2), 16, 1), 16, 4)
    flat, conventional = (simulated(job, shape, THEMIS) for shape in (FLAT, CONVENTIONAL))
    assert flat.computing == conventional.computing
    assert flat.exposed < conventional.exposed


@pytest.mark.deep
def test_rows_of_all_reduces_on_the_page_equal_the_simulation_of_today() -> None:
    done = Study()
    point = done.point(done.names[0], SHAPES[1], THEMIS)
    page = PAGE.read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| {done.names[0]}: {SHAPES[1].name}"))
    assert wafer.milliseconds(point.whole) in row, "run: python docs/studies/wafer.py"


@pytest.mark.exhaustive
def test_the_page_of_wafers_and_its_pictures_are_todays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ET_SIM_COMPILE")
    texts, pictures = wafer.study()
    page = PAGE.read_text(encoding="utf-8")
    assert with_texts(page, texts) == page, "run: python docs/studies/wafer.py"
    for name, svg in pictures.items():
        assert (PAGE.parent / name).read_text(encoding="utf-8") == svg, name
