"""The study of TPU-like arrays: its parts add up, small cases are closed forms, and its page is today's."""

from __future__ import annotations

import pytest
import tpu
import tpu_setup
from study_page import with_texts
from tpu import CLOCK_GHZ, PAGE, Machine, run
from tpu_setup import Product, Step, convolutions, resnet, transformer


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def ws_ns(product: Product, side: int) -> int:
    """Return the time from SCALE-Sim's table of cycles, where weights stay."""
    folds = -(-product.inner // side) * -(-product.columns // side)
    return int(folds * (3 * side + product.rows - 2) / CLOCK_GHZ)


def test_without_waiting_for_dram_kernels_take_the_time_of_their_folds() -> None:
    step = resnet(layers=5)
    result = run(step, Machine(32, "ws"))
    array, dram, sram, network = result.parts
    assert array == sum(ws_ns(kernel, 32) for kernel in step.kernels)
    assert (dram, sram, result.bound) == (0, 0, "array")
    assert array + network == result.step_ns
    assert network > 0  # the last gradients are waited for


def test_less_bandwidth_makes_dram_the_bound_and_slower_links_the_network() -> None:
    step = resnet(layers=3)
    usual = run(step, Machine(256, "ws"))
    starved = run(step, Machine(256, "ws", dram_words=8))
    distant = run(step, Machine(256, "ws", link_gbps=0.001))
    assert [point.bound for point in (starved, distant)] == ["DRAM", "network"]
    assert starved.parts[0] == usual.parts[0] == distant.parts[0]
    assert sum(starved.parts) == starved.step_ns > usual.step_ns
    assert min(starved.parts) >= 0


def test_operands_that_move_again_count_as_sram() -> None:
    """Check a second operand that is read for each fold of rows, as 4 Mi words do not hold it."""
    step = Step.empty()
    step.compute(Product("p", 4096, 4096, 4096))
    array, dram, sram, network = run(step, Machine(256, "os", dram_words=8)).parts
    assert dram == pytest.approx(4096**2 / 8 / CLOCK_GHZ - array)
    assert sram > dram > 0
    assert network == 0


def test_resnet_50_has_its_53_convolutions_and_their_operations() -> None:
    layers = list(convolutions(images=1))
    assert len(layers) == 54
    assert sum(layer.operations for layer in layers) == pytest.approx(2 * 3.8e9, rel=0.02)  # of the paper
    assert sum(layer.gradient_bytes for layer in layers) == pytest.approx(2 * 25.5e6, rel=0.01)


def test_a_shared_transformer_layer_has_its_part_of_all_operations() -> None:
    width, tokens = tpu_setup.WIDTH, tpu_setup.SEQUENCES * tpu_setup.LENGTH
    weights, attention = 12 * width**2, 2 * tpu_setup.LENGTH * width
    forward = 2 * tokens * (weights + attention) // tpu_setup.SHARERS
    assert sum(kernel.operations for kernel in transformer().kernels) == 3 * forward


@pytest.mark.deep
def test_a_row_of_the_page_equals_the_simulation_of_today() -> None:
    row = tpu.found_table({(256, "os"): run(resnet(), Machine(256, "os"))}).splitlines()[-1]
    assert row in PAGE.read_text(encoding="utf-8"), "run: python docs/studies/tpu.py"


@pytest.mark.exhaustive
def test_the_page_and_its_pictures_are_todays() -> None:
    texts, pictures = tpu.study()
    page = PAGE.read_text(encoding="utf-8")
    assert with_texts(page, texts) == page, "run: python docs/studies/tpu.py"
    for name, svg in pictures.items():
        assert (PAGE.parent / name).read_text(encoding="utf-8") == svg, name
