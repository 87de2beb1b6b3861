"""The training loops, as steps, as traces, and as tables by layer: against ASTRA-sim 1.0 and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden_1x import played, program_of, records
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from one_npu import Machine1, Play, Ring
from trace_oracle import assert_same_trace

from et_sim.basics.errors import InputError, TraceError, UsageError
from et_sim.layerfile import (
    Keyword,
    Layer,
    LayerFile,
    LayerPhase,
    LayerTable,
    PhaseWork,
    layer_program,
    layer_table,
    layer_workload,
    parse_layer_file,
)
from et_sim.layerfile.loops import steps_of
from et_sim.layerfile.passes import END, LayerProgram
from et_sim.layerfile.program import URGENT, _Unrolling, _Where
from et_sim.trace import CollectiveKind, GroupRule, NodeKind
from et_sim.trace.preflight import find_problems

ALL_CASES = records("loops.jsonl.xz")
CASES = [case for case in ALL_CASES if set(case["network"]["topologies-per-dim"]) == {"Ring"}]
# Chunks of two collectives end at once, and which comes first decides when the first collective is done.
TIED = ("example_run_multi_8_1", "example_run_multi_8_2")
FORWARD, INPUT, WEIGHT = LayerPhase
REDUCED = PhaseWork(10, CollectiveKind.ALL_REDUCE, 4096)
COLUMNS = {"fwd": FORWARD, "ig": INPUT, "wg": WEIGHT}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_finish_and_pass_ends_match_1_0(case: dict[str, Any]) -> None:
    table = played(case)
    assert table.finish_ns == case["expected"]["finish_ns"]
    if "pass_compute_end_ns" in case["expected"]:
        assert table.pass_end_ns.tolist() == case["expected"]["pass_compute_end_ns"]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["id"] not in TIED], ids=lambda case: case["id"]
)
def test_the_table_by_layer_is_that_of_1_0(case: dict[str, Any]) -> None:
    table = played(case)
    assert len(case["expected"]["layers_us"]) == len(table.names)
    for layer, row in enumerate(case["expected"]["layers_us"]):
        for word, phase in COLUMNS.items():
            for what, column in (
                ("compute", table.compute_ns),
                ("exposed comm", table.exposed_ns),
                ("total comm", table.total_ns),
            ):
                assert round(row[f"{word} {what}"] * 1000) == column[layer, phase], (layer, word, what)


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case["id"])
def test_computation_by_layer_is_that_of_1_0_on_any_machine(case: dict[str, Any]) -> None:
    program = program_of(case)
    computed = np.zeros((len(program.layer_file.layers), len(LayerPhase)), np.int64)
    steps = program.steps
    np.add.at(computed, (steps.layer, steps.phase), program.trace.duration_ns[steps.compute_row])
    for layer, row in enumerate(case["expected"]["layers_us"]):
        printed = [round(row[f"{word} compute"] * 1000) for word in COLUMNS]
        assert computed[layer].tolist() == printed


def silent(keyword: str, layers: int, extra: str = "") -> LayerFile:
    """Return layers of 10 ns per phase that do not communicate."""
    tail = " DATA" if keyword == "HYBRID_CUSTOMIZED" else ""
    lines = [f"l{k} -1 10 NONE 0 10 NONE 0 10 NONE 0 5{tail}" for k in range(layers)]
    return parse_layer_file("\n".join([f"{keyword} {extra}", str(layers), *lines]))


def run(program: LayerProgram) -> LayerTable:
    machine = Machine1((Ring(4, 100, 10.0), Ring(2, 100, 10.0)), 10, 4, True)
    return layer_table(program, *Play(machine, program.trace).run())


@pytest.mark.parametrize(
    ("keyword", "extra", "computations", "extra_ticks"),
    [
        ("DATA", "", 2 + 3, 0),
        ("DATA_REORDER", "", 2 + 3, 0),
        ("MODEL", "", 2 + 4, 0),
        ("HYBRID_DATA_MODEL", "", 2 + 4, 0),
        ("HYBRID_MODEL_DATA", "", 2 + 4, 0),
        ("HYBRID_CUSTOMIZED", "", 2 + 4, 0),
        ("HYBRID_TRANSFORMER", "group: 2", 2 + 4, 0),
        ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "g: 2 c: 1 0 i: 1 1", 2 + 1 + 4, 1),
        ("HYBRID_DLRM", "0", 2 + 3, 0),
        ("HYBRID_DLRM_ENHANCED", "0", 2 + 3, 0),
        ("DISTRIBUTED_INFERENCE", "", 2, 0),
        ("MICRO", "", 0, 0),
    ],
)
@pytest.mark.parametrize("passes", [1, 3])
def test_without_communication_a_pass_takes_its_computations_and_a_tick_each(
    keyword: str, extra: str, computations: int, extra_ticks: int, passes: int
) -> None:
    table = run(layer_program(silent(keyword, 2, extra), passes, (4, 2)))
    each = computations * 11 + extra_ticks
    assert table.finish_ns == passes * each
    assert table.pass_end_ns.tolist() == ([(k + 1) * each - 1 for k in range(passes)] if each else [])
    assert (table.compute_ns.sum(), table.exposed_ns.sum(), table.total_ns.sum()) == (
        passes * computations * 10,
        0,
        0,
    )


def test_every_keyword_has_a_loop_with_forward_steps_in_ascending_order_first() -> None:
    layers = (Layer("a", keyword=Keyword.DATA), Layer("b", keyword=Keyword.DATA))
    for keyword in Keyword:
        steps = list(steps_of(LayerFile(keyword, layers, 2, last_bottom_layer=0), 1))
        forward = [step.computes.layer for step in steps[:2]]
        assert forward == ([] if keyword == Keyword.MICRO else [0, 1])


def test_blocking_communication_stops_the_loop_until_its_update_has_passed() -> None:
    text = "MODEL 1 l0 -1 10 ALLREDUCE 4096 0 NONE 0 0 NONE 0 7"
    program = layer_program(parse_layer_file(text), 1, (4, 2))
    machine = Machine1((Ring(4, 100, 10.0), Ring(2, 100, 10.0)), 10, 1, True)
    reduction_ns = sum(duration for _, duration in machine.phases(CollectiveKind.ALL_REDUCE, 4096, (0, 1)))
    table = layer_table(program, *Play(machine, program.trace).run())
    assert table.exposed_ns[0].tolist() == [reduction_ns + 7, 0, 0]
    assert table.finish_ns == 10 + reduction_ns + 7 + 3


def test_micro_issues_the_first_layers_weight_gradient_once_per_pass_at_the_start() -> None:
    file = LayerFile(Keyword.MICRO, (Layer("a", REDUCED, REDUCED, REDUCED), Layer("b", REDUCED)))
    program = layer_program(file, 3, (4,))
    assert program.trace.kind.tolist() == [NodeKind.COLL] * 3
    assert len(program.trace.data_deps) == 0
    assert program.collectives.pass_number.tolist() == [0, 1, 2]


def test_only_the_embeddings_exchanges_of_dlrm_are_urgent() -> None:
    exchange = PhaseWork(5, CollectiveKind.ALL_TO_ALL, 4096)
    layers = (
        Layer("embedding", exchange, exchange, REDUCED),
        *(Layer(f"l{k}", REDUCED, REDUCED, REDUCED) for k in (1, 2)),
    )
    program = layer_program(LayerFile(Keyword.HYBRID_DLRM, layers, last_bottom_layer=1), 1, (4, 2))
    issued = program.collectives
    assert issued.layer[issued.is_urgent].tolist() == [0, 0]
    assert issued.phase[issued.is_urgent].tolist() == [FORWARD, INPUT]
    urgent = program.trace.comm_priority[issued.row]
    assert urgent.tolist() == np.where(issued.is_urgent, URGENT, 0).tolist()
    assert program.skipped[1, FORWARD, "no rank"] == 0  # the loop does not issue it at all


@pytest.mark.parametrize(
    ("sizes", "left"), [((4, 2), [FORWARD, INPUT, WEIGHT]), ((4,), [FORWARD, INPUT]), ((1, 4), [WEIGHT])]
)
def test_collectives_on_no_dimension_are_left_out_and_counted(
    sizes: tuple[int, ...], left: list[LayerPhase]
) -> None:
    file = LayerFile(Keyword.HYBRID_DATA_MODEL, (Layer("a"), Layer("b", REDUCED, REDUCED, REDUCED)))
    program = layer_program(file, 2, sizes)
    assert sorted(set(program.collectives.phase.tolist())) == left
    assert program.skipped == {(1, phase, "no rank"): 2 for phase in LayerPhase if phase not in left}


def test_collectives_of_no_bytes_are_left_out_and_counted_also_when_scaling_makes_them_so() -> None:
    file = LayerFile(Keyword.DATA, (Layer("a", weight_gradient=PhaseWork(1, CollectiveKind.ALL_REDUCE, 3)),))
    assert layer_program(file, 1, (4,), 1.0, 0.2).skipped == {(0, WEIGHT, "0 bytes"): 1}


@pytest.mark.parametrize(
    ("value", "scale", "scaled"),
    [
        (100, 0.29, 29),  # 28.999… in double precision
        (16_777_217, 1.0, 16_777_216),  # 2^24 + 1 is no single-precision number
        (16_777_217, None, 16_777_217),
        (3, 1.5, 4),
    ],
)
def test_scaling_is_in_single_precision_and_truncates(value: int, scale: float | None, scaled: int) -> None:
    work = PhaseWork(value, CollectiveKind.ALL_REDUCE, value)
    program = layer_program(
        LayerFile(Keyword.MODEL, (Layer("a", work, update_ns=value),)), 1, (4,), scale, scale
    )
    trace = program.trace
    assert trace.duration_ns[program.steps.compute_row[0]] == scaled
    assert trace.comm_bytes[program.collectives.row[0]] == scaled
    assert trace.duration_ns[program.collectives.update_row[0]] == value


@pytest.mark.parametrize("ranks", [8, 12])
def test_transformers_without_a_machine_have_groups_by_rule(ranks: int) -> None:
    layers = (Layer("a", REDUCED, REDUCED, REDUCED, 5),)
    workload, program = layer_workload(LayerFile(Keyword.HYBRID_TRANSFORMER, layers, 4), ranks, 1)
    assert workload.group_rules == {"model": GroupRule(4, 1), "data": GroupRule(ranks // 4, 4)}
    names = [program.trace.group_names[group] for group in program.trace.group[program.collectives.row]]
    assert names == ["model", "model", "data"]
    assert find_problems(workload) == []


@pytest.mark.parametrize(("group", "named"), [(1, {"data"}), (8, {"model"}), (16, {"data"})])
def test_groups_of_one_rank_do_not_communicate(group: int, named: set[str]) -> None:
    layers = (Layer("a", REDUCED, REDUCED, REDUCED),)
    workload, _ = layer_workload(LayerFile(Keyword.HYBRID_TRANSFORMER, layers, group), 8, 1)
    assert workload.group_rules.keys() == named


def test_a_group_that_does_not_divide_the_ranks_is_refused() -> None:
    file = LayerFile(Keyword.HYBRID_TRANSFORMER, (Layer("a"),), 3, source="gpt.txt")
    with pytest.raises(
        InputError, match=r"gpt.txt: model-parallel groups of 3 do not divide 8 ranks .*example to [24]"
    ):
        layer_workload(file, 8, 1)


@pytest.mark.parametrize(
    ("passes", "scale", "sentence"),
    [
        (0, 1.0, "passes is 0"),
        (10**8, 1.0, "are up to"),
        (1, -1.0, "comm-scale is -1"),
        (1, 1e13, "once scaled"),
    ],
)
def test_impossible_arguments_are_refused(passes: int, scale: float, sentence: str) -> None:
    file = LayerFile(Keyword.DATA, (Layer("a", REDUCED),))
    with pytest.raises((UsageError, InputError), match=sentence):
        layer_program(file, passes, (4,), 1.0, scale)


@pytest.mark.parametrize(
    ("keyword", "sentence"),
    [
        (Keyword.HYBRID_CUSTOMIZED, "a layer has no keyword of its own"),
        (Keyword.HYBRID_TRANSFORMER, "the model-parallel group is None"),
        (Keyword.HYBRID_DLRM, "the last bottom layer is None"),
    ],
)
def test_layers_made_in_python_have_all_that_a_file_requires(keyword: Keyword, sentence: str) -> None:
    with pytest.raises(TraceError, match=sentence):
        LayerFile(keyword, (Layer("a"),))
    with pytest.raises(TraceError, match="there are no layers"):
        LayerFile(keyword, ())
    with pytest.raises(TraceError, match=r"recomputation at layers \(0,\) from checkpoints \(0,\)"):
        LayerFile(keyword, (Layer("a", keyword=Keyword.DATA),), 2, (0,), (0,), 0)


works = st.builds(
    PhaseWork,
    st.integers(0, 2000),
    st.sampled_from([None, CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL]),
    st.sampled_from([0, 4096, 262_144]),
)
layers_of_any_kind = st.lists(
    st.builds(Layer, st.just("l"), works, works, works, st.integers(0, 50)), min_size=2, max_size=5
)


@given(st.sampled_from(list(Keyword)), layers_of_any_kind, st.integers(1, 3), st.booleans())
def test_time_is_computation_and_ticks_and_exposed_communication(
    keyword: Keyword, layers: list[Layer], passes: int, lifo: bool
) -> None:
    own = Keyword.HYBRID_MODEL_DATA if keyword == Keyword.HYBRID_CUSTOMIZED else None
    file = LayerFile(
        keyword,
        tuple(structs.replace(layer, keyword=own) for layer in layers),
        4 if "TRANSFORMER" in keyword else None,
        last_bottom_layer=0 if "DLRM" in keyword else None,
    )
    program = layer_program(file, passes, (4, 2))
    machine = Machine1((Ring(4, 100, 10.0), Ring(2, 100, 10.0)), 10, 4, lifo)
    start, end = Play(machine, program.trace).run()
    assert (end >= 0).all()
    table = layer_table(program, start, end)
    assert (table.exposed_ns <= table.total_ns).all()
    if keyword == Keyword.MICRO:
        return
    last = int(end[program.steps.tick_row[-1]])  # until then the NPU computes, takes a tick, or waits
    waits, done = program.waits, end[program.collectives.done_row]
    at_end = [ns - last for ns in done[waits.collective[waits.place == END]].tolist() if ns > last]
    waited = int(table.exposed_ns.sum()) - min(at_end, default=0)
    assert last == table.compute_ns.sum() + len(program.steps.layer) + waited


@given(st.sampled_from(list(Keyword)), layers_of_any_kind, st.integers(3, 5), st.integers(0, 1), st.data())
def test_passes_copied_from_the_second_are_the_passes_played(
    keyword: Keyword, layers: list[Layer], passes: int, bottom: int, data: st.DataObject
) -> None:
    own = Keyword.HYBRID_MODEL_DATA if keyword == Keyword.HYBRID_CUSTOMIZED else None
    recomputes = keyword == Keyword.HYBRID_TRANSFORMER_FWD_IN_BCKWD and data.draw(st.booleans())
    file = LayerFile(
        keyword,
        tuple(structs.replace(layer, keyword=own) for layer in layers),
        4 if "TRANSFORMER" in keyword else None,
        (0,) if recomputes else (),
        (1,) if recomputes else (),
        bottom if "DLRM" in keyword else None,
    )
    program = layer_program(file, passes, (4, 2), None, None)
    played_out = _Unrolling(file, _Where(file, (4, 2), None)).program(passes, file)
    assert_same_trace(program.trace, played_out.trace)
    for table in ("steps", "collectives", "waits"):
        mine, other = getattr(program, table), getattr(played_out, table)
        for column in mine.__struct_fields__:
            assert getattr(mine, column).dtype == getattr(other, column).dtype
            assert getattr(mine, column).tolist() == getattr(other, column).tolist(), (table, column)
    assert program.skipped == played_out.skipped


def test_ten_thousand_passes_are_made_in_a_moment() -> None:
    file = LayerFile(Keyword.DATA, (Layer("a", REDUCED, REDUCED, REDUCED),))
    program = layer_program(file, 10_000, (4, 2))
    assert len(program.collectives.row) == 10_000
    assert program.collectives.pass_number[-1] == 9_999
