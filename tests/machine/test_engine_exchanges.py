"""All-reduces of inference engines: measured times, their limits, and equal results folded and unfolded."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import et_sim
from et_sim.basics.engine_names import BY_CARDS, DEEPEP, ENGINES, EXPERT_EXCHANGES, LOW_LATENCY
from et_sim.basics.errors import MachineError, TraceError
from et_sim.cli import main
from et_sim.machine.collective_library import Call, Library
from et_sim.machine.collective_library.engines import ENGINE_ALL_REDUCES, ONE_SHOT, TWO_SHOTS, copies
from et_sim.machine.collective_library.engines import EXPERT_EXCHANGES as EXPERT_EXCHANGE_OF
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_machine
from et_sim.trace.workload import MadeFor
from et_sim.validation.predictions import predictions
from et_sim.validation.rows import measured_rows
from et_sim.workloads import Batch, Plan, Segment, make_inference, read_model
from et_sim.workloads.inference.forward import run_by
from et_sim.workloads.microbenchmarks import make_microbenchmark

KIB, MIB = 1 << 10, 1 << 20
# us in a graph, on 4 GPUs of H200, which the constants were not fitted to (docs/machines.md has the source)
MEASURED = {
    "sglang": {8 * KIB: 2.774, 128 * KIB: 4.304, MIB: 10.37, 8 * MIB: 43.41},
    "trtllm": {8 * KIB: 3.178, 128 * KIB: 4.178, MIB: 12.85, 8 * MIB: 57.75},
    "vllm": {8 * KIB: 4.769, 128 * KIB: 5.815, MIB: 12.1, 8 * MIB: 51.77},
}


def library(name: str = "h200-dgx", ranks: int = 8, **changes: Any) -> Library:
    known = preset(f"{name}:{ranks}")
    found = read_machine(system=known.system, network=known.network).system.library
    assert found is not None
    return replace(found, **changes)


def all_reduce(ranks: int, size: int, nodes: int = 1) -> Call:
    return Call("all_reduce", ranks, nodes, size, "bf16")


@pytest.mark.parametrize("engine", ENGINES)
def test_times_on_gpus_left_out_of_the_fit_are_within_twelve_percent_in_the_mean(engine: str) -> None:
    found = library(ranks=4, engine=engine)
    ratios = [found.choice(all_reduce(4, size)).time_us / us for size, us in MEASURED[engine].items()]
    assert math.exp(sum(abs(math.log(ratio)) for ratio in ratios) / len(ratios)) < 1.12


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_more_bytes_take_longer_and_none_pass_faster_than_the_links_carry_them(
    engine: str, ranks: int
) -> None:
    for name, link in (("h200-dgx", 450e3), ("b200-dgx", 900e3)):
        own = ENGINE_ALL_REDUCES[engine]
        times = [own.way(ranks, 1 << power, link / 1000) for power in range(25)]
        assert sorted(times, key=lambda way: way[1]) == times
        for power, (way, us) in enumerate(times):
            least = (ranks - 1) * (1 if way == ONE_SHOT else 2 / ranks) * (1 << power) / link
            assert us > own.latency + least
            assert library(name, engine=engine).choice(all_reduce(ranks, 1 << power)).time_us == us
        assert times[0][0] == ONE_SHOT
        assert times[-1][0] == (TWO_SHOTS if ranks > 2 else ONE_SHOT)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("h200-dgx", all_reduce(8, 16 * MIB + 1)),
        ("h200-dgx", all_reduce(16, 8 * KIB, nodes=2)),
        ("gb200-nvl72", all_reduce(16, 8 * KIB)),
        ("h100-pcie-node", all_reduce(8, 8 * KIB)),
        ("h200-dgx", Call("all_gather", 8, 1, 8 * KIB)),
        ("h200-dgx", Call("barrier", 8, 1, 0)),
    ],
)
def test_an_engine_leaves_other_collectives_to_the_library(name: str, call: Call) -> None:
    plain = library(name, 72 if name == "gb200-nvl72" else 8 * call.nodes)
    assert replace(plain, engine="vllm").choice(call) == plain.choice(call)


def test_eager_launches_bound_the_time_of_short_all_reduces_only() -> None:
    graph, eager = (library(engine="vllm", eager=eager) for eager in (False, True))
    least = ENGINE_ALL_REDUCES["vllm"].eager
    for size in (1, 8 * KIB, 16 * MIB):
        time = graph.choice(all_reduce(8, size)).time_us
        assert eager.choice(all_reduce(8, size)).time_us == max(time, least)
    assert graph.choice(all_reduce(8, 8 * KIB)).time_us < 6 < least


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("kernels", EXPERT_EXCHANGES)
def test_tokens_reach_experts_no_faster_than_links_and_cards_carry_them(kernels: str, nodes: int) -> None:
    ranks, found = 8 * nodes, library(ranks=8 * nodes, expert_exchange=kernels)
    times = []
    for size in (1, 64 * KIB, MIB, 64 * MIB, 1 << 30):
        times.append(found.choice(Call("all_to_all", ranks, nodes, size)).time_us)
        least = max(size * 7 / ranks / 450e3, size * (ranks - 8) / ranks / 50e3)
        assert times[-1] > least + 10
    assert times == sorted(times)
    assert library(ranks=ranks).choice(Call("all_to_all", ranks, nodes, MIB)).time_us not in times


# us of dispatch (fp8) and combine (bf16) of 128 tokens of 7,168 values, each to 8 experts, on H800 with a
# card of 50 GB/s a GPU (deepseek-ai/DeepEP, docs/legacy.md@0297fc8017, and its README before June 2025); 16,
# 64 and 256 GPUs of the first table were fitted to (docs/collectives.md)
DISPATCH, COMBINE = 128 * 8 * (7168 + 224), 128 * 8 * 7168 * 2
WITH_LINKS = {8: (77, 114), 16: (118, 195), 32: (155, 273), 64: (173, 314), 128: (192, 369), 256: (194, 360)}
BY_CARDS_ONLY = {
    8: (163, 318),
    16: (173, 329),
    32: (182, 350),
    64: (186, 353),
    128: (192, 369),
    256: (194, 360),
}


@pytest.mark.parametrize(
    ("kernels", "table", "left_out", "furthest", "mean"),
    [
        (LOW_LATENCY, WITH_LINKS, (8, 32, 128), 0.15, 0.06),
        (BY_CARDS, BY_CARDS_ONLY, tuple(BY_CARDS_ONLY), 0.1, 0.04),
    ],
)
def test_published_times_of_low_latency_that_were_left_out_are_within_a_few_percent(
    kernels: str, table: dict[int, tuple[int, int]], left_out: tuple[int, ...], furthest: float, mean: float
) -> None:
    errors = []
    for ranks in left_out:
        found = library("h800-node", max(ranks, 16), expert_exchange=kernels)
        for size, us in zip((DISPATCH, COMBINE), table[ranks], strict=True):
            time = found.choice(Call("all_to_all", ranks, max(ranks // 8, 1), size)).time_us
            errors.append(abs(time / us - 1))
    assert max(errors) < furthest
    assert sum(errors) / len(errors) < mean


def test_copies_over_cards_alone_take_longer_and_without_cards_pass_the_links() -> None:
    for ranks in (16, 64):
        call = Call("all_to_all", ranks, ranks // 8, DISPATCH)
        links, cards = (
            library("h800-node", ranks, expert_exchange=kernels).choice(call).time_us
            for kernels in (LOW_LATENCY, BY_CARDS)
        )
        assert cards > links
    call = Call("all_to_all", 8, 1, DISPATCH)
    alone = [library(ranks=8, expert_exchange=kernels).choice(call) for kernels in (LOW_LATENCY, BY_CARDS)]
    assert alone[0] == alone[1]


@pytest.mark.parametrize("kernels", EXPERT_EXCHANGES)
def test_ranks_alone_on_their_nodes_exchange_over_cards_where_links_join_pairs(kernels: str) -> None:
    call = Call("all_to_all", 2, 2, 256 * MIB)
    found = library("mi300x-node", 16, expert_exchange=kernels)
    switched = replace(found, wires=replace(found.wires, is_mesh=False))
    assert found.choice(call).time_us == switched.choice(call).time_us


def test_few_processors_carry_in_proportion_less_and_low_latency_kernels_are_not_limited() -> None:
    call, times = Call("all_to_all", 8, 1, 256 * MIB), {}
    for kernels in EXPERT_EXCHANGES:
        for limit in (0, 38, 19, 10, 5):
            found = library(expert_exchange=kernels, most_processors=limit)
            times[kernels, limit] = found.choice(call).time_us
    assert times[DEEPEP, 0] == times[DEEPEP, 38] == times[DEEPEP, 19]
    latency = EXPERT_EXCHANGE_OF[DEEPEP].latency
    assert math.isclose(times[DEEPEP, 5] - latency, 2 * (times[DEEPEP, 10] - latency))
    assert len({times[LOW_LATENCY, limit] for limit in (0, 38, 19, 10, 5)}) == 1


def test_rows_of_fewer_processors_are_predicted_in_proportion_longer(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    shapes = [f"deepep_normal combine 1 65536 7168 8 256 {processors}" for processors in (5, 10)]
    file.write_text("".join(["table,shape,us\n", *(f"t,{shape},1\n" for shape in shapes)]))
    file.with_suffix(".json").write_text('{"t": {"gpu": "H200", "software": "SGLang"}}')
    few, more = (prediction.predicted_us for prediction in predictions(measured_rows(file)))
    assert few == pytest.approx(2 * (more or 0), rel=0.01)


def test_eager_passes_wait_for_the_launch_of_every_kernel() -> None:
    model, batches = replace(read_model("llama3-8b"), layers=1), [Batch.of([Segment(1, 100)])]
    times = [
        et_sim.simulate(
            make_inference(model, Plan(), batches, run_by("vllm", eager=eager, launch_ns=launch_ns)),
            machine="h200-dgx:1",
        ).makespan_ns
        for eager, launch_ns in ((False, 0), (False, 10**6), (True, 0), (True, 10**6))
    ]
    kernels = make_inference(model, Plan(), batches).nodes
    assert times[0] == times[1] == times[2]
    assert kernels * 10**6 < times[3] < kernels * 10**6 + times[0]


def test_a_token_travels_once_for_each_expert_or_for_each_rank_that_has_one() -> None:
    assert copies(LOW_LATENCY, 8, 8) == copies(BY_CARDS, 8, 8) == 8
    assert copies(DEEPEP, 1, 8) == 1
    drawn = [len({*choice}) for choice in itertools.product(range(3), repeat=4)]
    assert math.isclose(copies(DEEPEP, 4, 3), sum(drawn) / len(drawn))


def test_an_exchange_of_experts_takes_its_time_in_a_run() -> None:
    workload = make_microbenchmark("all_to_all", ranks=16, size=4 * MIB)
    workload = replace(workload, software=run_by("sglang", expert_exchange=LOW_LATENCY))
    call = Call("all_to_all", 16, 2, 4 * MIB)
    output = library(ranks=16, expert_exchange=LOW_LATENCY).choice(call).time_us * 1000
    assert abs(et_sim.simulate(workload, machine="h200-dgx:16").makespan_ns - output) <= 2


@settings(max_examples=settings.default.max_examples // 2)
@given(
    name=st.sampled_from(["h100-dgx", "b200-dgx", "h100-quad", "mi300x-node"]),
    engine=st.sampled_from(ENGINES),
    ranks=st.integers(2, 4),
    size=st.integers(1, 16 * MIB),
    model=st.sampled_from(["analytical", "flow"]),
)
def test_a_lone_all_reduce_takes_the_time_of_the_engine(
    name: str, engine: str, ranks: int, size: int, model: str
) -> None:
    known = preset(f"{name}:{ranks}")
    system = {**known.system, "library": {**known.system["library"], "engine": engine}}
    workload = make_microbenchmark("all_reduce", ranks=ranks, size=size)
    run = et_sim.simulate(workload, system=system, network=known.network, model=model)
    read = read_machine(system=system, network=known.network).system.library
    assert read is not None
    assert abs(run.makespan_ns - read.choice(all_reduce(ranks, size)).time_us * 1000) <= 2


@st.composite
def jobs(draw: st.DrawFn) -> tuple[int, dict[str, list[int]], list[tuple[str, int]]]:
    """Draw ranks of up to two nodes, groups anywhere on them, and all-reduces of these."""
    ranks = 8 * draw(st.integers(1, 2))
    members = st.lists(st.integers(0, ranks - 1), min_size=2, max_size=8, unique=True).map(sorted)
    groups = {str(number + 1): draw(members) for number in range(draw(st.integers(1, 3)))}
    call = st.tuples(st.sampled_from(["", *groups]), st.sampled_from([100, 8 * KIB, MIB, 12 * MIB, 32 * MIB]))
    return ranks, groups, draw(st.lists(call, min_size=1, max_size=4))


@pytest.mark.deep
@settings(max_examples=settings.default.max_examples // 3)
@given(
    job=jobs(),
    name=st.sampled_from(["h100-dgx", "mi300x-node"]),
    engine=st.sampled_from(ENGINES),
    model=st.sampled_from(["analytical", "flow"]),
    late=st.integers(-1, 15),
)
def test_groups_anywhere_fold_without_a_difference(
    job: tuple[int, dict[str, list[int]], list[tuple[str, int]]],
    name: str,
    engine: str,
    model: str,
    late: int,
) -> None:
    ranks, groups, calls = job
    traces = []
    for rank in range(ranks):
        build, last = et_sim.TraceBuilder(), list[int]()
        for group, size in calls:
            if not group or rank in groups[group]:
                last = [build.collective("all_reduce", size, group=group, after=last)]
        if not last:
            build.compute("nothing", micros=1)
        traces.append(build.build())
    known = preset(f"{name}:{ranks}")
    system: dict[str, Any] = dict(known.system)
    if 0 <= late < ranks:
        system["stragglers"] = [{"ranks": str(late), "delay": "13us"}]
    workload = et_sim.Workload(
        tuple(traces), np.arange(ranks, dtype=np.int32), software=MadeFor(engine, engine=engine)
    )
    runs = [
        et_sim.simulate(workload, system=system, network=known.network, groups=groups, model=model, fold=fold)
        for fold in (True, False)
    ]
    assert runs[0].finish_ns.tolist() == runs[1].finish_ns.tolist()


def test_a_pass_takes_the_exchanges_of_its_engine_and_keeps_them_in_files(tmp_path: Any) -> None:
    model, batches = replace(read_model("llama3-8b"), layers=1), [Batch.of([Segment(1, 100)])]
    times = {
        name: et_sim.simulate(
            make_inference(model, Plan(tensor=8), batches, run_by(name) if name else None),
            machine="h200-dgx:8",
        ).makespan_ns
        for name in (None, *ENGINES)
    }
    vllm, sglang = (
        library(engine=name).choice(all_reduce(8, model.hidden * 2)).time_us * 1000
        for name in ("vllm", "sglang")
    )  # both have the same attention; exchanges come after embedding, attention, and feed-forward
    assert abs(times["vllm"] - times["sglang"] - 3 * (vllm - sglang)) <= 6
    assert max(times[name] for name in ENGINES) < times[None]
    prefix = tmp_path / "pass"
    more = ["--layers", "1", "--tp", "8", "--context", "100", "--machine", "h200-dgx:8", "-o", str(prefix)]
    assert main(["make", "decode", "--model", "llama3-8b", "--exchanges", "vllm", *more]) == 0
    kept = et_sim.simulate(f"{prefix}.workload.json", machine="h200-dgx:8")
    assert kept.makespan_ns == times["vllm"]


def test_a_machine_overrides_the_engine_of_a_workload() -> None:
    known = preset("h200-dgx:8")
    system = {**known.system, "library": {**known.system["library"], "engine": "sglang"}}
    workload = replace(make_microbenchmark("all_reduce", ranks=8, size=8 * KIB), software=run_by("vllm"))
    run = et_sim.simulate(workload, system=system, network=known.network)
    assert abs(run.makespan_ns - library(engine="sglang").choice(all_reduce(8, 8 * KIB)).time_us * 1000) <= 2


def test_unknown_engines_and_eager_launches_without_one_are_refused(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    known = preset("h200-dgx:8")
    system = {**known.system, "library": {**known.system["library"], "engine": "nobodys"}}
    with pytest.raises(MachineError, match="engine"):
        read_machine(system=system, network=known.network)
    path = tmp_path / "job.workload.json"
    path.write_text(
        '{"et_sim_workload": 1, "ranks": 1, "templates": [], "software": {"name": "x", "engine": "y"}}'
    )
    with pytest.raises(TraceError, match="engine"):
        et_sim.simulate(path, machine="h200-dgx:1")
    command = [
        "make",
        "decode",
        "--model",
        "llama3-8b",
        "--context",
        "9",
        "--eager",
        "-o",
        str(tmp_path / "x"),
    ]
    assert main(command) != 0
    assert "--exchanges" in capsys.readouterr().err
