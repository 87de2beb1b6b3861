"""Software is an input: each key of a description changes the kernels of ranks, or the options of a run."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import network, system
from msgspec.structs import replace
from training_jobs import decoder, rows_named

import et_sim
from et_sim.basics.errors import InputError, UsageError
from et_sim.cli import main
from et_sim.trace import Trace, Workload, write_manifest
from et_sim.trace.columns import NodeKind
from et_sim.trace.files import read_workload
from et_sim.workloads import Model, Plan, make_training
from et_sim.workloads.kernels import stored_bytes
from et_sim.workloads.models.model import Attention, FeedForward
from et_sim.workloads.software import DEFAULT, read_software, software_names
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.plan import plan_of
from et_sim.workloads.training.units import activation_bytes

VALUE = 2  # bytes
LLAMA = {"attention": Attention(8, 2, 8), "feed_forward": FeedForward(128, is_gated=True)}
NOTES = ("sources", "estimates", "fitted")


def described(tmp_path: Path, description: dict[str, Any]) -> str:
    """Write a file with a description, and return its path."""
    path = tmp_path / f"own{len(list(tmp_path.iterdir()))}.json"
    path.write_text(json.dumps({"about": "a test"} | description), encoding="utf-8")
    return str(path)


def job(tmp_path: Path, description: dict[str, Any], model: Model | None = None, **plan: Any) -> Workload:
    """Return a step of a small model with grouped queries and a gate in some software."""
    chosen = {"micro_batches": 1} | plan
    return make_training(
        decoder(**LLAMA) if model is None else model,
        plan_of({"software": described(tmp_path, description), **chosen}),
    )


def trace(tmp_path: Path, description: dict[str, Any], **plan: Any) -> Trace:
    return job(tmp_path, description, **plan).trace(0)


def moved(of: Trace, ending: str) -> list[tuple[int, int]]:
    """Return bytes and launches of the first two kernels whose names have an ending."""
    rows = np.flatnonzero(rows_named(of, ending))
    launches = np.where(of.has("launches"), of.launches, 1)
    return [(int(of.tensor_bytes[row]), int(launches[row])) for row in rows[:2]]


@pytest.mark.parametrize("name", software_names())
def test_every_figure_of_a_description_has_a_note(name: str) -> None:
    content = json.loads((files("et_sim.workloads.software") / f"{name}.json").read_text(encoding="utf-8"))
    noted = {word for note in NOTES for word in content.get(note, {})}
    assert set(content) - {"about", "like", *NOTES} <= noted
    assert read_software(name).name == name
    assert len(read_software(name).about) < 80


def test_the_default_is_one_kernel_for_each_part_and_hides_no_exchange_of_tensor_parallel_ranks() -> None:
    assert Plan().by.name == DEFAULT
    assert plan_of({}) == Plan(overlap_tensor=False)


def test_overlap_of_products_with_their_own_exchange_needs_no_other_option() -> None:
    options = {"tensor": 2, "sequence_parallel": True, "tensor_overlap": 4}
    assert plan_of(options).overlap_tensor
    assert plan_of(options | {"tensor_overlap": 1}) == plan_of(
        options | {"overlap_tensor": False, "tensor_overlap": 1}
    )


def test_options_of_a_plan_stand_before_the_defaults_of_software() -> None:
    assert plan_of({"software": "torchtitan"}).zero == 3
    assert plan_of({"software": "torchtitan"}).gradient_bytes == 4
    assert plan_of({"software": "torchtitan", "zero": 0, "gradient_bytes": 2}).zero == 0
    assert not plan_of({"software": "megatron-2021"}).fused_attention
    assert plan_of({"software": "megatron-2021", "fused_attention": True}).fused_attention


def test_a_description_inherits_the_keys_of_another_one(tmp_path: Path) -> None:
    own = described(tmp_path, {"like": "fsdp1", "host": {"step": "3ms"}, "estimates": {"host": "a guess"}})
    parent, software = read_software("fsdp1"), read_software(own)
    assert software.host == replace(parent.host, step_ns=3e6)
    assert software.shares == parent.shares
    assert software.estimates["host"] == "a guess"
    assert "host" not in software.sources


@pytest.mark.parametrize(
    ("description", "sentences"),
    [
        ({"kernel": 1}, ['key "kernel" is not known']),
        ({"like": "torchtian"}, ["key \"like\" is 'torchtian'", "allowed: one of"]),
        ({"attention": "flash"}, ['key "attention" is "flash"', "flash-2"]),
        ({"casts": {"reads": 0}}, ['"casts"', 'key "reads" is 0', "allowed: an integer >= 1"]),
        ({"shares": {"beside": ["messages"]}}, ['key "beside" names "messages"', "weights, gradients"]),
        ({"host": {"launch": -1}}, ['"host"', 'key "launch" is -1']),
        ({"element-wise": {"gate": {"forward": {}}}}, ['"gate"', 'key "backward" is missing']),
        ({"fitted": dict.fromkeys("abcdefg", "rows")}, ['key "fitted" has 7 figures', "at most 6"]),
        ({"selective": 1}, ['key "selective" is 1']),
        ({"kernels": 0}, ['key "kernels" is 0']),
        (
            {"element-wise": {"dropout": {"values": 2, "strided": 3}}},
            ['"dropout"', 'key "strided" is 3, and "values" 2', "at most as many"],
        ),
        (
            {"element-wise": {"dropout": {"values": 2, "strided": 1}}},
            ['"dropout"', 'key "launches" is 1, and only some accesses are "strided"', "at least 2"],
        ),
    ],
)
def test_a_refusal_names_file_key_value_and_remedy(
    tmp_path: Path, description: dict[str, Any], sentences: list[str]
) -> None:
    path = described(tmp_path, description)
    with pytest.raises(InputError) as caught:
        read_software(path)
    for sentence in (path, *sentences):
        assert sentence in str(caught.value)


@pytest.mark.parametrize("name", ["torchtian", "missing.json"])
def test_unknown_software_is_refused_with_all_names(name: str) -> None:
    with pytest.raises(UsageError, match=r"torchtitan"):
        Plan(software=name)


@pytest.mark.parametrize(
    ("options", "overlap", "exchange"),
    [
        ({"tensor": 2, "sequence_parallel": True}, 4, "all-to-all"),
        ({"tensor": 2}, 1, "all-to-all"),
        ({"tensor": 2, "sequence_parallel": True, "lora_rank": 8}, 1, "all-to-all"),
        ({"tensor": 2, "sequence_parallel": True, "overlap_tensor": False}, 1, "all-to-all"),
        ({"data": 16, "expert": 16}, 1, "deepep"),
        ({"data": 8, "expert": 8, "node_ranks": 6}, 1, "all-to-all"),
        ({"data": 8, "expert": 8, "expert_exchange": "all-to-all"}, 1, "all-to-all"),
    ],
)
def test_a_default_of_software_that_a_plan_cannot_have_is_left_out(
    options: dict[str, Any], overlap: int, exchange: str
) -> None:
    plan = plan_of({"software": "megatron-bridge", **options})
    assert (plan.tensor_overlap, plan.expert_exchange) == (overlap, exchange)


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = Path(described(tmp_path, {}))
    assert read_software(str(path)).host.launch_ns == 0
    path.write_text('{"about": "changed", "host": {"launch": "5us"}}', encoding="utf-8")
    assert read_software(str(path)).host.launch_ns == 5000


WAYS = {"forward": {"values": 4, "fp32": 7, "launches": 8}, "backward": {"values": 8, "launches": 12}}


@pytest.mark.parametrize(
    ("part", "name", "values"),
    [
        ("rms-norm", "attention norm", 32 * 64),
        ("rotary", "rotary", 32 * 10 * 8),
        ("gate", "feed-forward activation", 32 * 128),
        ("loss", "loss", 32 * 128),
    ],
)
def test_an_unfused_part_moves_the_stated_bytes(tmp_path: Path, part: str, name: str, values: int) -> None:
    model = replace(decoder(**LLAMA), layers=1)
    apart = job(tmp_path, {"element-wise": {part: WAYS}}, model).trace(0)
    assert moved(apart, name) == [(values * (4 * VALUE + 7 * 4), 8), (values * 8 * VALUE, 12)]
    assert moved(job(tmp_path, {}, model).trace(0), name) != moved(apart, name)


def test_dropout_apart_is_kernels_more_where_a_model_has_it(tmp_path: Path) -> None:
    model = decoder(has_dropout=True)
    description = {"element-wise": {"dropout": {"values": 2, "launches": 1}}}
    (fused, one), _ = moved(job(tmp_path, {}, model).trace(0), "attention sum")
    (apart, two), _ = moved(job(tmp_path, description, model).trace(0), "attention sum")
    assert (apart - fused, one, two) == (32 * 64 * 2 * VALUE, 1, 2)


def test_layer_norm_stays_one_kernel(tmp_path: Path) -> None:
    model = decoder(norm_vectors=2)
    apart = job(tmp_path, {"element-wise": {"rms-norm": WAYS}}, model).trace(0)
    assert moved(apart, "attention norm") == moved(job(tmp_path, {}, model).trace(0), "attention norm")


def test_attention_is_the_kernel_that_software_has(tmp_path: Path) -> None:
    kernel = trace(tmp_path, {"attention": "flash-2"})
    shapes = [shape for shape in kernel.layer_shapes if shape.startswith("attention")]
    assert shapes
    assert all(shape.endswith("causal flash-2") for shape in shapes)
    for own in ("best", "unfused"):
        assert not any("flash" in shape for shape in trace(tmp_path, {"attention": own}).layer_shapes)


def test_products_apart_compute_the_same_and_add_up_gradients(tmp_path: Path) -> None:
    together, apart = trace(tmp_path, {}), trace(tmp_path, {"splits-products": True})
    is_product = [np.char.startswith(np.array(of.layer_shapes), "gemm") for of in (together, apart)]
    operations = [
        int(of.num_ops[mask[of.layer_shape]].sum())
        for of, mask in zip((together, apart), is_product, strict=True)
    ]
    assert operations[0] == operations[1]
    one = 32 * 64 * VALUE
    assert moved(apart, "queries sums")[0] == (4 * one, 1)
    assert moved(apart, "feed-forward up sums")[0] == (3 * one, 1)
    eager = trace(tmp_path, {"splits-products": True, "sums-fused": False})
    assert moved(eager, "queries sums")[0] == (6 * one, 2)
    assert moved(eager, "feed-forward up sums")[0] == (3 * one, 1)


def test_keys_are_copied_for_every_query_head_only_if_fewer(tmp_path: Path) -> None:
    copies = trace(tmp_path, {"expands-keys": True})
    assert moved(copies, "keys expanded")[0] == (32 * 10 * 16 * VALUE, 2)
    assert not rows_named(trace(tmp_path, {}), "keys expanded").any()
    equal = job(tmp_path, {"expands-keys": True}, decoder()).trace(0)
    assert not rows_named(equal, "keys expanded").any()


def test_selective_recomputation_is_that_of_the_software(tmp_path: Path) -> None:
    def again(selective: str, *, apart: bool) -> set[str]:
        made = trace(tmp_path, {"selective": selective, "splits-products": apart}, recompute="selective")
        return {name.partition("again ")[2] for name in made.names if "layer 0 again" in name}

    assert again("core-attention", apart=False) == {"attention"}
    assert again("norms", apart=True) == {"attention norm", "feed-forward norm"}
    by_operators = {
        *("attention norm", "keys", "rotary", "attention output", "attention sum"),
        *("feed-forward norm", "feed-forward gate", "feed-forward activation"),
    }
    assert again("op", apart=True) == by_operators
    assert again("op", apart=False) == by_operators - {"keys", "feed-forward gate"} | {
        "qkv",
        "feed-forward up",
    }


def test_operators_that_run_again_leave_as_much_apart_as_together(tmp_path: Path) -> None:
    def left(*, apart: bool) -> int:
        software = described(tmp_path, {"selective": "op", "splits-products": apart})
        plan = plan_of({"software": software, "recompute": "selective"})
        return activation_bytes(ModelLayers(decoder(**LLAMA), plan), 0)

    assert left(apart=True) == left(apart=False) > 0


def test_casts_have_the_reads_and_launches_of_the_software(tmp_path: Path) -> None:
    values, stored = 32 * 64, stored_bytes(32 * 64, "fp8")

    def inputs(**casts: Any) -> list[tuple[int, int]]:
        return moved(trace(tmp_path, {"casts": casts}, products="fp8"), "layer 0 qkv inputs cast")

    assert inputs() == [(values * VALUE + 2 * stored, 1)]
    assert inputs(reads=2, launches=3) == [(values * 2 * VALUE + 2 * stored, 3)]
    assert inputs(kept=False) == [(values * VALUE + stored, 1)] * 2
    fused = trace(tmp_path, {"casts": {"fused": ["qkv"]}}, products="fp8")
    assert not rows_named(fused, "qkv inputs cast").any()
    assert moved(fused, "layer 0 qkv inputs transposed") == [(2 * stored, 1)]


def test_products_that_stay_wide_are_not_cast(tmp_path: Path) -> None:
    wide = trace(tmp_path, {"casts": {"wide-products": ["head", "qkv"]}}, products="fp8")
    assert not rows_named(wide, "qkv inputs cast").any()
    assert rows_named(wide, "attention output inputs cast").any()
    all_cast = trace(tmp_path, {"casts": {"wide-products": []}}, products="fp8")
    assert rows_named(all_cast, "head inputs cast").any()


SHARED: dict[str, Any] = {"data": 2, "zero": 3}


def test_copies_around_shared_weights_are_kernels_of_all_weights(tmp_path: Path) -> None:
    shares = {
        "after-gather": {"values": 2, "launches": 1},
        "before-reduce": {"values": 1, "fp32": 1, "launches": 3},
    }
    copied = trace(tmp_path, {"shares": shares}, **SHARED)
    weights = ModelLayers(decoder(**LLAMA), Plan()).dense_weights(0)
    assert moved(copied, "layer 0 weights copied") == [(weights * 2 * VALUE, 1)] * 2
    assert moved(copied, "layer 0 gradients copied") == [(weights * 6, 3)]
    for plan in ({"data": 1, "zero": 3}, {"data": 2, "zero": 0}):
        assert not rows_named(trace(tmp_path, {"shares": shares}, **plan), "copied").any()


def test_units_that_keep_their_weights_are_not_gathered_again(tmp_path: Path) -> None:
    def gathers(kept: int) -> int:
        return int(
            rows_named(trace(tmp_path, {"shares": {"kept-units": kept}}, **SHARED), "all-gather").sum()
        )

    assert [gathers(0) - gathers(kept) for kept in (1, 2, 6)] == [1, 2, 6]


@pytest.mark.parametrize("beside", [["weights"], ["gradients"]])
def test_kernels_wait_for_exchanges_that_are_not_beside_them(tmp_path: Path, beside: list[str]) -> None:
    def time(words: list[str]) -> int:
        workload = job(tmp_path, {"shares": {"beside": words}}, **SHARED)
        machine = {"system": system(profile="corrected"), "network": network(["Ring"], [2])}
        return int(et_sim.simulate(workload, **machine).makespan_ns)

    assert time(beside) > time(["weights", "gradients"])


def test_updated_weights_are_gathered_by_the_first_pass_if_ahead(tmp_path: Path) -> None:
    plan = {"data": 2, "zero": 1, "micro_batches": 2}
    late, ahead = (trace(tmp_path, {"shares": {"updated-ahead": on}}, **plan) for on in (False, True))
    assert all(name.startswith("step") for name in late.names if name.endswith("weights all-gather"))
    gathers = [name for name in ahead.names if name.endswith("weights all-gather")]
    assert len(gathers) == 6
    assert all(name.startswith("forward 0") for name in gathers)
    assert late.comm_bytes.sum() == ahead.comm_bytes.sum()


def test_an_update_has_the_accesses_of_the_software(tmp_path: Path) -> None:
    least = {"gradients": 1, "states": 0, "copies": False}
    ((weights, _),) = moved(trace(tmp_path, {"optimizer": least}), "optimizer")
    assert weights == 4 * decoder(**LLAMA).weights
    one = weights // 4
    assert moved(trace(tmp_path, {}), "optimizer") == [(one * (7 * 4 + 2 * 12 + 4 + VALUE), 4)]
    own = {"gradients": 5, "states": 6, "copies": False, "launches": 400}
    assert moved(trace(tmp_path, {"optimizer": own}), "optimizer") == [(one * (5 * 4 + 6 * 12), 400)]


def simulated(workload: Workload, **keys: Any) -> Any:
    return et_sim.simulate(
        workload, system=system(profile="corrected", **keys), network=network(["Ring"], [1])
    )


def test_a_run_takes_the_times_of_the_host_unless_the_machine_has_its_own(tmp_path: Path) -> None:
    plain = simulated(job(tmp_path, {})).makespan_ns
    slow = {"host": {"launch": "10ms", "step": "7s"}}
    workload = job(tmp_path, slow)
    launches = int(np.where(workload.trace(0).has("launches"), workload.trace(0).launches, 1).sum())
    assert simulated(workload).makespan_ns >= 7 * 10**9 + launches * 10**7
    stepped = simulated(job(tmp_path, {"host": {"step": "7s"}})).makespan_ns
    assert stepped == simulated(workload, **{"host-time": 0}).makespan_ns == plain + 7 * 10**9
    assert simulated(job(tmp_path, {"host": {"launch": "10ms", "graphs": True}})).makespan_ns == plain


def test_a_stage_whose_host_waits_launches_nothing_before_its_first_message(tmp_path: Path) -> None:
    launch = 10**9  # ns, so that hosts hold everything up

    def makespan(waits: bool, fold: bool = True, **plan: Any) -> int:
        workload = job(tmp_path, {"host": {"launch": "1s", "waits": waits}}, **plan)
        ranks = workload.ranks
        machine = {"system": system(profile="corrected"), "network": network(["Ring"], [ranks])}
        return int(et_sim.simulate(workload, **machine, fold=fold).makespan_ns)

    stages: dict[str, Any] = {"pipeline": 2, "overlap_pipeline": False}
    late, early = makespan(True, **stages), makespan(False, **stages)
    trace_of_first = job(tmp_path, {}, **stages).trace(0)
    is_forward = np.array([trace_of_first.names[at].startswith("forward") for at in trace_of_first.name])
    is_kernel = is_forward & (trace_of_first.kind == NodeKind.COMP)
    counts = np.where(trace_of_first.has("launches"), trace_of_first.launches, 1)
    assert late - early > int(counts[is_kernel].sum()) * launch
    assert makespan(True, fold=False, **stages) == late
    assert makespan(True) == makespan(False)


def test_software_limits_the_processors_that_collectives_take(tmp_path: Path) -> None:
    from et_sim.machine.presets import preset

    known = preset("h100-dgx:8")
    model = decoder(hidden=4096, heads=32, sequence=2048, layers=2)

    def time(description: dict[str, Any]) -> int:
        workload = job(tmp_path, description, model, data=8, zero=3)
        return int(et_sim.simulate(workload, system=known.system, network=known.network).makespan_ns)

    assert time({"processors": 1}) < time({})


def test_a_manifest_names_the_software_and_gives_it_back(tmp_path: Path) -> None:
    workload = job(tmp_path, {"host": {"launch": "5us", "step": "1ms", "waits": True}, "processors": 4})
    write_manifest(workload, tmp_path / "job.workload.json")
    again = read_workload(tmp_path / "job.workload.json")
    assert again.software == workload.software
    assert again.software is not None
    assert again.software.as_written() == {
        "name": again.software.name,
        "about": "a test",
        "launch": 5000.0,
        "step": 1e6,
        "processors": 4,
        "host-waits": True,
    }


def test_jobs_of_different_hosts_run_without_host_times_and_warn(tmp_path: Path) -> None:
    for name, description in (("a", {}), ("b", {"host": {"launch": "5us"}})):
        write_manifest(job(tmp_path, description), tmp_path / f"{name}.workload.json")

    def warnings(*names: str) -> list[str]:
        jobs = [
            {"name": f"{name}{at}", "workload": str(tmp_path / f"{name}.workload.json"), "npus": str(at)}
            for at, name in enumerate(names)
        ]
        result = et_sim.simulate(
            {"jobs": jobs}, system=system(profile="corrected"), network=network(["Ring"], [2])
        )
        return [notice["text"] for notice in result.manifest["warnings"]]

    assert any("different software" in text for text in warnings("a", "b"))
    assert not any("different software" in text for text in warnings("b", "b"))


@pytest.mark.parametrize("name", software_names())
def test_folding_changes_no_time_of_any_software(name: str) -> None:
    workload = make_training(
        decoder(**LLAMA),
        plan_of({"software": name, "data": 2, "tensor": 2, "micro_batches": 2, "recompute": "selective"}),
    )
    runs = [
        et_sim.simulate(
            workload, system=system(profile="corrected"), network=network(["Ring"], [4]), fold=fold
        )
        for fold in (True, False)
    ]
    assert runs[0].finish_ns.tolist() == runs[1].finish_ns.tolist()


def test_the_page_lists_every_description() -> None:
    page = (Path(__file__).parents[2] / "docs" / "software.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{name}` | {read_software(name).about} |" for name in software_names()]


def test_a_run_prints_the_software_and_puts_it_into_its_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_manifest(job(tmp_path, {"host": {"launch": "5us"}}), tmp_path / "job.workload.json")
    machine = {"system.json": system(profile="corrected"), "network.yml": network(["Ring"], [1])}
    for name, content in machine.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    command = ["run", "job.workload.json", "--system", "system.json", "--network", "network.yml"]
    assert main([*command, "--out", "out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("assumes") and "a test, 5 µs" in line for line in lines[:6])
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert summary["software"]["about"] == "a test"
    assert summary["software"]["launch"] == 5000


@pytest.mark.parametrize(("sum_bytes", "bytes_apart"), [(2, 6), (4, 8)])
def test_gradients_are_added_up_by_products_or_kernels_that_read_them(
    tmp_path: Path, sum_bytes: int, bytes_apart: int
) -> None:
    """Expect the first gradients as the sum if sums have the bytes of values and products do not add."""
    plan = {"micro_batches": 3, "sum_bytes": sum_bytes}
    apart, within = (trace(tmp_path, {"sums-in-products": is_within}, **plan) for is_within in (False, True))
    weights = ModelLayers(decoder(**LLAMA), Plan()).dense_weights(0)
    ending = "layer 0 sum of gradients"
    each, launches = bytes_apart * weights, int(sum_bytes == VALUE)
    assert moved(apart, ending) == [(each, launches)] * 2
    assert moved(within, ending) == [(2 * sum_bytes * weights, 0)] * 2
    assert rows_named(apart, ending).sum() == 3 - (sum_bytes == VALUE)
    assert rows_named(within, ending).sum() == 3


SCALED = {
    "forward": {"values": 5, "strided": 2, "launches": 5},
    "backward": {"values": 3, "strided": 3, "launches": 1},
}


@pytest.mark.parametrize(("is_scaled", "sizes"), [(False, [2, 0, 2, 0]), (True, [3, 2, 0, 3])])
def test_positions_with_a_factor_have_kernels_of_their_own(
    tmp_path: Path, is_scaled: bool, sizes: list[int]
) -> None:
    model = decoder(attention=Attention(8, 2, 8, is_scaled=is_scaled))
    of = job(tmp_path, {"element-wise": {"scaled-rotary": SCALED}}, model).trace(0)
    names = [f"{way} 0 layer 0 rotary{end}" for way in ("forward", "backward") for end in ("", " strided")]
    found = [of.tensor_bytes[rows_named(of, name)].sum() for name in names]
    assert found == [VALUE * 32 * 10 * 8 * size for size in sizes]
    if is_scaled:
        assert [moved(of, name)[0][1] for name in (names[0], names[1], names[3])] == [3, 2, 1]


def test_positions_with_a_factor_are_turned_as_others_without_a_key_of_software(tmp_path: Path) -> None:
    plain, scaled = (
        job(tmp_path, {}, decoder(attention=Attention(8, 2, 8, is_scaled=is_scaled))).trace(0)
        for is_scaled in (False, True)
    )
    assert plain.names == scaled.names
    assert (plain.tensor_bytes == scaled.tensor_bytes).all()


@pytest.mark.parametrize(("key_heads", "split"), [(2, 8 + 2), (8, 8)])
def test_rotary_operands_are_copied_apart_and_joined(tmp_path: Path, key_heads: int, split: int) -> None:
    """Expect copies of values, and of queries whose heads share keys, and a join of all gradients."""
    model = decoder(attention=Attention(8, key_heads, 8))
    copied = job(tmp_path, {"splits-copy": True}, model).trace(0)
    values, ways = 32 * 8, ("forward 0 layer 0 split", "backward 0 layer 0 split")
    sizes = [moved(copied, way)[0][0] for way in ways]
    assert sizes == [2 * VALUE * values * split, 2 * VALUE * values * (8 + 2 * key_heads)]
    assert not rows_named(job(tmp_path, {}, model).trace(0), "split").any()


def test_gradients_are_gathered_as_they_are_cast_where_casts_are_exchanged(tmp_path: Path) -> None:
    plan = {"tensor": 2, "sequence_parallel": True, "products": "fp8"}
    wide, cast = (trace(tmp_path, {"casts": {"exchanged": is_cast}}, **plan) for is_cast in (False, True))
    share = 32 * 64 // 2
    for part, way, product in (
        ("attention", "forward", "qkv"),
        ("feed-forward", "forward", "feed-forward up"),
        ("attention", "backward", "attention output"),
        ("feed-forward", "backward", "feed-forward down"),
    ):
        gather, which = f"{way} 0 layer 0 {part} all-gather", "inputs" if way == "forward" else "gradients"
        for of, size in ((wide, share * VALUE), (cast, stored_bytes(share, "fp8"))):
            assert of.comm_bytes[rows_named(of, gather)].tolist() == [size]
        assert moved(cast, f"0 layer 0 {part} {which} cast")
        assert not moved(wide, f"0 layer 0 {part} {which} cast") or part == product
    again = "layer 0 qkv weights all-gather"
    assert cast.comm_bytes[rows_named(cast, again)].tolist() == [stored_bytes(share, "fp8")]


def test_gradients_of_products_in_fp8_keep_full_sums(tmp_path: Path) -> None:
    of = trace(tmp_path, {}, products="fp8")
    named = {of.names[int(of.name[row])]: of.layer_shapes[int(of.layer_shape[row])] for row in range(len(of))}
    assert named["forward 0 layer 0 qkv"].split()[0] == "gemm"
    assert "full-sums" not in named["forward 0 layer 0 qkv"]
    for gradients in ("inputs", "weights"):
        assert named[f"backward 0 layer 0 qkv {gradients}"].endswith(" full-sums")
        assert "full-sums" not in named[f"backward 0 head {gradients}"]


def test_gradients_that_bridge_reduces_in_bf16_are_summed_up_in_bf16() -> None:
    plan = plan_of({"data": 2, "software": "megatron-bridge"})
    assert (plan.gradient_bytes, plan.sum_bytes) == (2, 2)
    assert plan_of({"data": 2, "software": "megatron-bridge", "sum_bytes": 4}).sum_bytes == 4
