"""Composition of a run's time, the band that follows, and the accuracy that machines may state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import ring
from msgspec import structs
from msgspec.structs import replace

import et_sim
from et_sim.basics.errors import MachineError
from et_sim.basics.uncertainty import ASSUMED_SOFTWARE, SOFTWARE, UNMEASURED, WHOLE, Composition, ErrorTerm
from et_sim.cli import main
from et_sim.compute.operations import FORMS
from et_sim.machine.accuracy import (
    DEFAULTS,
    EXCHANGES,
    OPERATIONS,
    SHORT_ATTENTION,
    SMALL_GEMM,
    Accuracy,
    of_software,
)
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_system_alone
from et_sim.timeline.node_columns import COMMUNICATION_KINDS, UNNAMED_KIND
from et_sim.views import open_run
from et_sim.views.bands import difference_text
from et_sim.views.summary.sentences import uncertainty_text
from et_sim.workloads import Plan, make_training, read_model
from et_sim.workloads.microbenchmarks import make_microbenchmark

NETWORK = ring(4, "50GB/s")
ROOFLINE = {"model": "roofline", "peaks": {"bf16": 100}, "memory": [{"name": "HBM", "bandwidth": 1000}]}
SYSTEM = {"all-reduce-implementation": ["ring"], "profile": "corrected"}
STATED = {
    "device": "board",
    "gemm": {"basis": "calibrated", "random": 0.1, "common": 0.05},
    "communication": {"random": 0.2, "common": 0.3},
}
BYTES = 1 << 26


def workload(*, hides: bool = False, ranks: int = 4) -> et_sim.Workload:
    """Return kernels of two shapes and one without, and an all-reduce after them, or beside the largest."""
    build = et_sim.TraceBuilder()
    small = build.compute("small", layer_shape="gemm 2048 2048 2048", dtype="bf16")
    other = build.compute("other", layer_shape="elementwise 100000", dtype="bf16", after=[small])
    large = build.compute("large", layer_shape="gemm 8192 8192 8192", dtype="bf16", after=[other])
    build.collective("all_reduce", BYTES, after=[other if hides else large])
    return et_sim.Workload.of([build.build()] * ranks)


def simulated(of: et_sim.Workload, accuracy: Any = STATED, **options: Any) -> et_sim.Result:
    system = {**SYSTEM, "compute": ROOFLINE, "accuracy": accuracy}
    return et_sim.simulate(of, system=system, network=NETWORK, **options)


def test_shares_match_the_timeline() -> None:
    result = simulated(workload())
    rows = {row["name"]: row["end_ns"] - row["start_ns"] for row in result.timeline.to_pylist()}
    composition = result.measurement.composition
    assert composition is not None
    expected = {
        ("gemm", "gemm 2048 2048 2048"): rows["small"],
        ("gemm", "gemm 8192 8192 8192"): rows["large"],
        ("kernels", "elementwise 100000"): rows["other"],
        ("communication", "all_reduce of 4 ranks, from 2^26 B on"): int(result.exposed_comm_ns[0]),
    }
    assert sum(expected.values()) == result.makespan_ns
    shares = {(part.of, part.item): part.share for part in composition.parts}
    assert shares == pytest.approx({key: ns / result.makespan_ns for key, ns in expected.items()}, abs=1e-6)
    assert {name: term.basis for name, term in composition.terms.items()} == {
        "gemm": "calibrated",
        "kernels": "assumed",
        "communication": "modelled",
    }
    summary = result.summary()["uncertainty"]
    assert (summary["low_ns"], summary["high_ns"]) == composition.band(result.makespan_ns)
    assert Composition.read(summary).sigma == composition.sigma


def test_hidden_transfers_are_no_part_of_the_time() -> None:
    composition = simulated(workload(hides=True)).measurement.composition
    assert composition is not None
    assert "communication" not in composition.shares


def test_folding_changes_no_digit() -> None:
    folded, alone = (simulated(workload(), fold=fold).summary()["uncertainty"] for fold in (True, False))
    assert folded == alone


def test_the_time_is_that_of_the_rank_that_others_wait_for() -> None:
    late = et_sim.TraceBuilder()
    late.collective("all_reduce", BYTES)
    busy = workload(ranks=1).templates[0]
    uneven = simulated(et_sim.Workload.of([late.build(), busy, busy, busy]))
    assert uneven.waiting_ns[0] > 0
    assert uneven.measurement.composition == simulated(workload()).measurement.composition


def test_recorded_kernels_rest_on_measurement() -> None:
    build = et_sim.TraceBuilder()
    build.compute("kernel", micros=50)
    build.compute("product", layer_shape="gemm 512 512 512", dtype="bf16")
    of = et_sim.Workload.of([build.build()] * 4)
    system = {**SYSTEM, "compute": {"model": "replay"}, "accuracy": {}}
    composition = et_sim.simulate(of, system=system, network=NETWORK).measurement.composition
    assert composition is not None
    assert composition.bases == {"measured": 1.0}


def test_without_stated_accuracy_there_is_no_band(tmp_path: Path) -> None:
    result = et_sim.simulate(workload(), system={**SYSTEM, "compute": ROOFLINE}, network=NETWORK)
    assert result.uncertainty is None
    assert "uncertainty" not in result.summary()
    assert "accuracy" not in result.manifest
    result.save(tmp_path / "run")
    assert uncertainty_text(open_run(tmp_path / "run").summary) == ""


def test_the_summary_shows_the_band_and_a_comparison_judges_the_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    simulated(workload()).save(a)
    simulated(workload(hides=True)).save(b)
    assert main(["inspect", str(a)]) == 0
    [line] = [line_ for line_ in capsys.readouterr().out.splitlines() if line_.startswith("uncertainty")]
    assert line.startswith("uncertainty  80 %: 11.4 ms to 15.3 ms; 85 % of")
    summaries = [open_run(path).summary for path in (a, b)]
    assert "% of the time is calibrated" in uncertainty_text(summaries[0])
    same = difference_text(summaries[0], summaries[0])
    assert same == "80 %: -3.6 % to +3.7 %: within the error of the model"
    assert difference_text(*summaries).endswith(" % faster")
    assert difference_text(*summaries[::-1]).endswith(" % slower")
    assert main(["compare", str(a), str(b)]) == 0
    assert "uncertainty  80 %: " in capsys.readouterr().out


def test_every_kind_has_a_class() -> None:
    assert set(OPERATIONS) == {*FORMS, SMALL_GEMM, SHORT_ATTENTION}
    assert {*EXCHANGES, UNNAMED_KIND} == set(COMMUNICATION_KINDS)
    assert WHOLE in DEFAULTS


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ("gemm 1024 1024 1024", "gemm"),
        ("gemm 1023 4096 4096", "small_gemm"),
        ("attention 1 8 8 2048 2048 128 causal", "attention"),
        ("attention 1 8 8 1 2048 128", "short_attention"),
        ("attention_backward 1 8 8 64 64 64", "kernels"),
        ("softmax 8 8", "kernels"),
    ],
)
def test_small_kernels_may_be_a_class_of_their_own(shape: str, name: str) -> None:
    result = et_sim.simulate(
        _one(shape), system={**SYSTEM, "compute": ROOFLINE, "accuracy": _small()}, network=ring(1, 1)
    )
    composition = result.measurement.composition
    assert composition is not None
    assert list(composition.shares) == [name]


@pytest.mark.parametrize(
    ("kind", "size", "ranks", "name"),
    [
        ("all_reduce", 64 << 20, 8, "library all_reduce"),
        ("all_reduce", 63 << 20, 8, "small_library all_reduce"),
        ("all_gather", 8 << 20, 8, "library all_gather"),  # of 64 MiB at the end
        ("broadcast", 1 << 20, 8, "small_library"),
        ("all_reduce", 1 << 20, 16, "small_library_between_nodes"),
        ("all_reduce", 64 << 20, 16, "library_between_nodes"),
        ("ring_send_receive", 1 << 20, 8, "communication"),
    ],
)
def test_collectives_of_a_library_are_classes_by_their_size_and_reach(
    kind: str, size: int, ranks: int, name: str
) -> None:
    of = make_microbenchmark(kind, ranks=ranks, size=size)
    composition = et_sim.simulate(of, machine=f"h200-dgx:{ranks}").measurement.composition
    assert composition is not None
    assert list(composition.shares) == [name]


def test_a_missing_entry_is_that_of_the_family() -> None:
    known = {name: DEFAULTS[name] for name in DEFAULTS}
    accuracy = Accuracy("board", known)
    assert accuracy.of_library("all_reduce", 1, is_on_one_node=True) == "small_library"
    assert accuracy.of_library("all_reduce", 1, is_on_one_node=False) == "library"
    own = Accuracy("board", {**known, "all_reduce": DEFAULTS["library"]})
    assert own.of_library("all_reduce", 1, is_on_one_node=False) == own.of_exchange("all_reduce", 1)
    assert own.of_exchange("send", 1) == "communication"


def _one(shape: str) -> et_sim.Workload:
    build = et_sim.TraceBuilder()
    build.compute("one", layer_shape=shape, dtype="bf16")
    return et_sim.Workload.of([build.build()])


def _small() -> dict[str, Any]:
    return {name: {"random": 0.1} for name in ("gemm", "small_gemm", "attention", "short_attention")}


@pytest.mark.parametrize(
    ("accuracy", "message"),
    [
        ({"gem": {}}, 'key "gem" is not known'),
        ({"gemm": 5}, 'key "gemm" is 5'),
        ({"device": 5}, 'key "device" is 5'),
        (5, 'key "accuracy" is 5'),
    ],
)
def test_a_wrong_statement_is_refused(accuracy: Any, message: str) -> None:
    with pytest.raises(MachineError) as refusal:
        simulated(workload(), accuracy)
    assert message in str(refusal.value)
    assert '"accuracy"' in str(refusal.value)


def training_step(**changed: Any) -> et_sim.Result:
    model = replace(read_model("llama3-8b"), layers=1, sequence=1024)
    plan = Plan(**{"data": 2, "micro_batches": 1, **changed})
    return et_sim.simulate(
        make_training(model, plan), machine="h100-dgx:2", system={**H100, "when-full": "report"}
    )


H100 = preset("h100-dgx:2").system


def traits_of(result: et_sim.Result) -> list[str]:
    composition = result.measurement.composition
    assert composition is not None
    return [trait.of for trait in composition.traits]


def test_a_training_step_depends_on_its_software_and_on_the_kind_of_its_plan() -> None:
    plain, long = training_step(), training_step(data=1, context=2)
    assert traits_of(plain)[1:] == []
    assert traits_of(long)[1:] == ["long_sequences"]
    first, second = (result.measurement.composition for result in (plain, long))
    assert first is not None
    assert second is not None
    assert first.traits[0].of in (SOFTWARE, ASSUMED_SOFTWARE)
    assert structs.replace(first.traits[0], job="") == structs.replace(second.traits[0], job="")


def test_a_microbenchmark_has_no_software() -> None:
    assert (
        traits_of(
            et_sim.simulate(make_microbenchmark("all_reduce", ranks=2, size=1 << 20), machine="h100-dgx:2")
        )
        == []
    )


@pytest.mark.parametrize(
    ("kinds", "software", "expected"),
    [
        ("", "", []),
        ("training", "", [ASSUMED_SOFTWARE]),
        ("training", "torchtitan", [SOFTWARE]),
        ("training experts long-sequences", "fsdp2", [SOFTWARE, "experts", "long_sequences"]),
    ],
)
def test_software_that_is_not_stated_has_the_wider_error(
    kinds: str, software: str, expected: list[str]
) -> None:
    accuracy = Accuracy("", DEFAULTS)
    assert [trait.of for trait in accuracy.traits(kinds, software)] == expected


def test_software_with_an_error_of_its_own_has_that_and_any_other_one_that_of_all() -> None:
    own = ErrorTerm("modelled", 0.01, 0.02, 0.03)
    accuracy = Accuracy("", {**DEFAULTS, of_software("torchtitan"): own})
    assert accuracy.traits("training", "torchtitan")[0].term == own
    assert accuracy.traits("training", "fsdp1")[0].term == DEFAULTS[SOFTWARE]
    assert Accuracy.from_dict(accuracy.written) == accuracy


@pytest.mark.parametrize("machine", ["mi300x-node", "mi355x-node", "tpu-v5p-pod", "trn2-node"])
def test_kernels_of_devices_that_were_never_measured_are_a_class_of_their_own(machine: str) -> None:
    accuracy = read_system_alone(preset(machine).system).accuracy
    assert accuracy is not None
    measured = read_system_alone(H100).accuracy
    assert measured is not None
    assert accuracy.of_kernel("gemm 4096 4096 4096") == UNMEASURED
    assert measured.of_kernel("gemm 4096 4096 4096") == "gemm"
    assert accuracy.terms[UNMEASURED].common > measured.terms["gemm"].common


def test_a_kind_that_was_measured_has_its_own_class_where_products_were_not() -> None:
    """Check AMD, whose attention has published times, and a TPU, of which no kernel has."""
    amd, tpu = (read_system_alone(preset(name).system).accuracy for name in ("mi355x-node", "tpu-v5p-pod"))
    assert amd is not None
    assert tpu is not None
    long, short = "attention 1 64 64 8192 8192 128 causal", "attention 1 64 64 512 512 128 causal"
    assert (amd.of_kernel(long), tpu.of_kernel(long)) == ("attention", UNMEASURED)
    assert amd.of_kernel(long.replace("attention", "attention_backward")) == "attention_backward"
    assert amd.of_kernel("layernorm 4096 8192") == amd.of_kernel("gemm 512 64 64") == UNMEASURED
    known, unknown = amd.terms["attention"], amd.terms[UNMEASURED]
    for of_known, of_unknown in zip(known.as_dict().items(), unknown.as_dict().items(), strict=True):
        assert of_known[0] == "basis" or of_known < of_unknown
    of_short = amd.terms[amd.of_kernel(short)]
    assert (of_short.random, of_short.common, of_short.bias) == (unknown.random, unknown.common, unknown.bias)


def test_the_sentence_of_a_band_explains_its_width() -> None:
    low = {"low_ns": 1, "high_ns": 2, "shares": {"assumed": 1.0}, "classes": []}
    stated = {"class": SOFTWARE, "item": "torchtitan", "rows": 22}
    parts = [{"class": UNMEASURED, "item": "gemm 1 1 1", "share": 0.5}]
    within = {"makespan_ns": 1}
    text = uncertainty_text(
        within | {"uncertainty": {**low, "traits": [stated, {"class": "experts"}], "parts": parts}}
    )
    assert text.endswith(
        "; software: torchtitan described, errors of 22 rows left out; experts;"
        " kernels not measured on this device"
    )
    bare = {"uncertainty": {**low, "traits": [{"class": ASSUMED_SOFTWARE}], "parts": []}}
    assert uncertainty_text(within | bare).endswith("100 % of the time is assumed; software not stated")
    above = uncertainty_text({"makespan_ns": 0} | bare)
    assert "1 ns to 2 ns, above the makespan, as such runs took longer than predicted; 100 %" in above


def test_the_composition_of_a_short_run_is_the_same_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulated(workload()).summary()["uncertainty"]
    monkeypatch.setattr("et_sim.timeline.rows.ROWS_AT_ONCE", 2)
    assert simulated(workload()).summary()["uncertainty"] == whole
