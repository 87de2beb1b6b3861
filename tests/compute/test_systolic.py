"""Systolic arrays: closed forms by hand, properties, both rules. SCALE-Sim's figures are in tests/golden."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.compute.systolic import model as reporting
from et_sim.compute.systolic.corrected import corrected
from et_sim.compute.systolic.layer import Dimensions, Folds, SystolicLayer, slanted_before, slanted_line
from et_sim.compute.systolic.model import LayerReport, reports
from et_sim.compute.systolic.overlapping import Overlapping
from et_sim.compute.systolic.streams import PhaseEnds, Written
from et_sim.compute.systolic.timing import TransferTimes, _estimated, limited, unlimited
from et_sim.machine.systolic import Array, Dataflow, DramBandwidth, SystolicRules

SMALL = Array(4, 4, 1, 1, 1, Dataflow.OUTPUT)
sides = st.integers(1, 12)
arrays = st.builds(
    Array,
    height=sides,
    width=sides,
    ifmap_kb=st.integers(1, 2),
    filter_kb=st.integers(1, 2),
    ofmap_kb=st.integers(1, 2),
    dataflow=st.sampled_from(Dataflow),
    mode=st.sampled_from(DramBandwidth),
    bandwidths=st.tuples(st.integers(1, 40)),
    rules=st.sampled_from(SystolicRules),
)
products = st.builds(
    SystolicLayer.product, st.just("a"), st.integers(1, 60), st.integers(1, 60), st.integers(1, 60)
)


@st.composite
def convolutions(draw: st.DrawFn, is_plain: bool = False) -> SystolicLayer:
    high, wide = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    if is_plain:
        rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
        size = Dimensions(rows * high, columns * wide, high, wide, 3, draw(st.integers(1, 20)), high, wide)
        return SystolicLayer("a", size)
    more = st.integers(0, 10)
    strides = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    counts = draw(st.integers(1, 5)), draw(st.integers(1, 20))
    return SystolicLayer("a", Dimensions(high + draw(more), wide + draw(more), high, wide, *counts, *strides))


layers = st.one_of(products, convolutions())


@pytest.mark.parametrize(
    ("dataflow", "cycles"),
    [
        # 10 x 6 outputs of 5 values each on 4 x 4: down and across, then the cycles of a fold
        (Dataflow.OUTPUT, 3 * 2 * (5 + 4 + 4 - 2)),
        (Dataflow.WEIGHT, 2 * 2 * (2 * 4 + 4 + 10 - 2)),
        (Dataflow.INPUT, 2 * 3 * (2 * 4 + 4 + 6 - 2)),
    ],
)
def test_cycles_are_folds_times_load_fill_stream_and_drain(dataflow: Dataflow, cycles: int) -> None:
    layer = SystolicLayer.product("a", 10, 6, 5)
    array = replace(SMALL, dataflow=dataflow)
    assert LayerReport(layer, array).cycles == cycles - 1  # SCALE-Sim reports the number of the last one
    assert LayerReport(layer, replace(array, rules=SystolicRules.CORRECTED)).cycles == cycles


def test_utilisation_by_hand() -> None:
    layer = SystolicLayer.product("a", 6, 4, 8)  # one fold of 4 rows, one of 2, on 4 x 4: 14 cycles each
    row = LayerReport(layer, replace(SMALL, rules=SystolicRules.CORRECTED)).compute_row
    assert row["Mapping Efficiency %"] == 75
    assert row["Compute Util %"] == pytest.approx(75 * 8 / 14)
    assert row["Overall Util %"] == pytest.approx(75 * 8 / 14)


def test_weights_that_stay_are_counted_twice_while_they_drain_by_scale_sim_only() -> None:
    layer, array = SystolicLayer.product("a", 10, 4, 4), replace(SMALL, dataflow=Dataflow.WEIGHT)
    assert LayerReport(layer, array).compute_row["Compute Util %"] == pytest.approx(100 * 10 / (20 + 3))
    mended = replace(array, rules=SystolicRules.CORRECTED)
    assert LayerReport(layer, mended).compute_row["Compute Util %"] == pytest.approx(100 * 10 / 20)


def test_outputs_that_stay_are_written_once_and_scale_sim_counts_the_sides_of_the_array() -> None:
    layer = SystolicLayer.product("a", 6, 4, 8)
    assert LayerReport(layer, SMALL).sram_words == (48, 64, 24 + 2 * 8)
    assert LayerReport(layer, replace(SMALL, rules=SystolicRules.CORRECTED)).sram_words == (48, 64, 24)


def test_a_corrected_fetch_takes_its_words_by_the_bandwidth() -> None:
    # 1,200 x 1 inputs: more than the 1,024 that fit, so in phases of 512; they stream four per cycle
    layer = SystolicLayer.product("a", 1200, 1, 1)
    array = replace(SMALL, mode=DramBandwidth.GIVEN, rules=SystolicRules.CORRECTED, filter_kb=4, ofmap_kb=4)
    array = replace(array, height=4, width=1, dataflow=Dataflow.OUTPUT)
    free = LayerReport(layer, replace(array, bandwidths=(512,)))
    assert (free.cycles, free.stalls) == (300 * 4, 0)
    # a fetch of 512 words takes 1,024 cycles, and 128 folds of 4 cycles use them up in 512
    slow = LayerReport(layer, replace(array, bandwidths=(1,), ofmap_kb=1 << 10))
    ifmap = slow.timing.dram[0]
    assert ifmap.words == 1200
    assert ifmap.start == -512
    assert ifmap.stop == 512 + 176 - 1  # the first fetch begins with the first line, the next where it ends
    assert slow.stalls == slow.cycles - 1200


@given(layers, arrays, st.integers(1, 40))
def test_more_bandwidth_is_never_slower_by_corrected_rules(
    layer: SystolicLayer, array: Array, more: int
) -> None:
    array = replace(array, mode=DramBandwidth.GIVEN, rules=SystolicRules.CORRECTED)
    faster = replace(array, bandwidths=(array.bandwidths[0] + more,))
    assert LayerReport(layer, faster).cycles <= LayerReport(layer, array).cycles
    calculated = replace(array, mode=DramBandwidth.CALCULATED)
    assert LayerReport(layer, calculated).cycles <= LayerReport(layer, faster).cycles


@given(layers, arrays)
def test_multiplications_are_conserved_and_no_array_does_more_than_it_can(
    layer: SystolicLayer, array: Array
) -> None:
    report = LayerReport(layer, array)
    if report.cycles:
        done = report.overall * report.cycles * array.elements
        assert done == pytest.approx(layer.macs)
    if array.is_corrected:
        assert max(list(report.compute_row.values())[2:]) <= 100 + 1e-9
        assert report.cycles - report.stalls == report.timing.total - report.timing.stalls


@given(layers, arrays)
def test_every_word_moves_at_least_once(layer: SystolicLayer, array: Array) -> None:
    report = LayerReport(layer, array)
    ifmap, filters, ofmap = report.timing.dram
    assert ifmap.words >= layer.image_words
    assert filters.words >= layer.columns * layer.inner
    assert ofmap.words >= layer.rows * layer.columns
    if array.is_corrected:
        fits = layer.image_words <= array.ifmap_kb * 1024
        assert not fits or ifmap.words == layer.image_words
        assert ofmap.words == report.sram_words[2]


@given(convolutions(is_plain=True), arrays)
def test_windows_laid_out_one_by_one_agree_with_the_closed_form(layer: SystolicLayer, array: Array) -> None:
    assert layer.is_plain
    folds = Folds.of(layer, array)
    plain, filters = reporting._streams(layer, folds)
    rule = corrected if array.is_corrected else limited if array.is_limited else unlimited
    laid_out = Overlapping(layer, folds, plain)
    timings = [rule((ifmap, filters), Written(folds), folds, array) for ifmap in (plain, laid_out)]
    assert timings[0] == timings[1]


@given(convolutions())
def test_windows_hold_as_many_words_as_they_have_places_within_the_image(layer: SystolicLayer) -> None:
    size = layer.dimensions
    places = [
        (row * size.stride_height + down, column * size.stride_width + along)
        for row in range(layer.output_height)
        for column in range(layer.output_width)
        for down in range(size.filter_height)
        for along in range(size.filter_width)
    ]
    inside = [place for place in places if place[0] < size.ifmap_height and place[1] < size.ifmap_width]
    assert layer.window_words == len(inside) * size.channels
    assert layer.image_words == len(set(inside)) * size.channels
    assert layer.has_holes == (len(inside) < len(places))
    assert layer.is_plain == (len(set(inside)) == len(places))


@given(sides, sides)
def test_lines_of_a_slanted_block_are_its_diagonals(height: int, width: int) -> None:
    lines = sorted(row + column for row in range(height) for column in range(width))
    assert [slanted_line(entry, height, width) for entry in range(height * width)] == lines
    for line in range(height + width):
        assert slanted_before(line, height, width) == sum(other < line for other in lines)


@given(products, arrays)
def test_lines_of_writes_are_those_of_their_blocks(layer: SystolicLayer, array: Array) -> None:
    folds = Folds.of(layer, array)
    written = Written(folds)
    lines = [written.line_of(entry) for entry in range(written.entries)]
    assert lines == sorted(lines)
    assert (lines[0], lines[-1]) == (written.first_line, written.last_line)
    for line in (0, lines[0], lines[len(lines) // 2], lines[-1], lines[-1] + 1):
        assert written.before(line) == sum(other < line for other in lines)


def test_equal_layers_are_computed_once_and_keep_their_names() -> None:
    twice = [SystolicLayer.product(name, 30, 20, 10) for name in ("a", "b")]
    first, second = reports(twice, SMALL)
    assert (first.layer.name, second.layer.name) == ("a", "b")
    assert second.timing is first.timing


def test_each_operand_has_its_own_bandwidth_by_corrected_rules_only() -> None:
    array = replace(SMALL, mode=DramBandwidth.GIVEN, bandwidths=(1, 2, 3))
    assert [array.bandwidth(operand) for operand in range(3)] == [1, 1, 1]
    mended = replace(array, rules=SystolicRules.CORRECTED)
    assert [mended.bandwidth(operand) for operand in range(3)] == [1, 2, 3]


def test_windows_that_cannot_be_laid_out_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("et_sim.compute.systolic.overlapping.MOST_ENTRIES", 100)
    layer = SystolicLayer("wide", Dimensions(40, 40, 3, 3, 4, 8, 1, 1))
    array = replace(SMALL, mode=DramBandwidth.GIVEN)
    with pytest.raises(InputError, match="layer wide has 51,984 entries of overlapping windows"):
        _ = LayerReport(layer, array).timing
    assert (
        LayerReport(layer, replace(array, rules=SystolicRules.CORRECTED)).timing.dram[0].words
        > layer.image_words
    )


def test_windows_that_would_be_followed_for_hours_are_refused() -> None:
    layer = SystolicLayer("endless", Dimensions(5000, 5000, 3, 3, 512, 64, 1, 1), "net.csv, line 7")
    assert LayerReport(layer, SMALL).cycles == reporting.unlimited_cycles(layer, SMALL)
    for array in (
        SMALL,
        replace(SMALL, mode=DramBandwidth.GIVEN, bandwidths=(1 << 20,), rules=SystolicRules.CORRECTED),
    ):
        with pytest.raises(InputError, match=r"net\.csv, line 7: layer endless (reads|has) \d+"):
            _ = LayerReport(layer, array).timing


@pytest.mark.deep
@pytest.mark.parametrize("dataflow", Dataflow)
def test_blocks_that_are_looked_at_in_pieces_have_the_same_slides(
    dataflow: Dataflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = SystolicLayer.product("tall", 150, 90, 110)
    array = Array(9, 7, 1, 1, 1, dataflow, DramBandwidth.GIVEN, (3,))
    whole = LayerReport(layer, array).timing
    monkeypatch.setattr("et_sim.compute.systolic.streams._AT_ONCE", 5)
    monkeypatch.setattr("et_sim.compute.systolic.streams._MOST_KEPT", 20)
    assert LayerReport(layer, array).timing == whole
    assert whole.stalls > 0


def test_a_layer_that_would_take_hours_is_refused_where_it_is_gone_through() -> None:
    layer = SystolicLayer.product("huge", 1 << 24, 1 << 24, 1 << 24)
    assert LayerReport(layer, SMALL).cycles == 2**44 * (2**24 + 6) - 1
    for array in (replace(SMALL, mode=DramBandwidth.GIVEN), replace(SMALL, rules=SystolicRules.CORRECTED)):
        with pytest.raises(InputError, match="layer huge has 17,592,186,044,416 folds"):
            _ = LayerReport(layer, array).timing


@pytest.mark.parametrize("filled", [(1 << 24, 0, 0), (0, 1 << 24, 0), (0, 0, 1 << 24), (1, 2, (1 << 24) - 3)])
def test_folds_and_filled_halves_of_memories_are_at_most_two_to_the_25(filled: tuple[int, ...]) -> None:
    array = replace(SMALL, ifmap_kb=2, filter_kb=4, ofmap_kb=6, mode=DramBandwidth.GIVEN)
    layer = SystolicLayer.product("edge", array.height << 12, array.width << 12, 1)
    assert Folds.of(layer, array).count == 1 << 24
    report = LayerReport(layer, array)
    words = [times * half + 1023 for times, half in zip(filled, (1024, 2048, 3072), strict=True)]
    vars(report)["sram_words"] = tuple(words)
    report._refuse_endless()
    vars(report)["sram_words"] = (words[0] + 1, *words[1:])
    with pytest.raises(InputError) as refusal:
        report._refuse_endless()
    assert refusal.value.cause == (
        "layer edge has 16,777,216 folds, and fills halves of memories 16,777,217 times"
    )
    assert "the limit is 33,554,432: " in refusal.value.remedy


def test_an_operand_that_fits_is_loaded_in_whole_sets_at_ten_words_per_cycle_before_the_first_cycle() -> None:
    """Load 25 words by sets of 7: 28 words, in 3 cycles that end one before 0."""
    for words, cycles in ((25, 3), (35, 4), (36, 5), (7, 1)):
        stream: Any = SimpleNamespace(phases=lambda _, words=words: PhaseEnds((), words))
        assert _estimated(stream, 700) == TransferTimes(-cycles, -1, words)
