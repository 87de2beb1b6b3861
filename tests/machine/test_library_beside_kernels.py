"""A collective library takes processors from kernels that run beside its collectives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import et_sim
from et_sim.machine.collective_library import Call, Library, LibraryProtocol, LibraryWires
from et_sim.machine.presets import preset
from et_sim.trace.workload import MadeFor

H100 = Library("nccl-2.30", "hopper", LibraryWires(370.8, True, 8, 50), 8)
MIB = 1 << 20
PROCESSORS = 132
LEFT_OUT = {"library": preset("h100-dgx:8").system["library"] | {"occupies": False}}


def _run(workload: et_sim.Workload, **options: Any) -> Any:
    known = preset("h100-dgx:8")
    return et_sim.simulate(
        workload, system=known.system | options.pop("keys", {}), network=known.network, **options
    )


def _workload(*sizes: int, kernel: str = "gemm 16384 16384 8192", after: bool = False) -> et_sim.Workload:
    build = et_sim.TraceBuilder()
    last = build.compute("kernel", layer_shape=kernel, dtype="bf16")
    for size in sizes:
        last = build.collective("all_gather", size, after=[last] if after or size != sizes[0] else [])
    return et_sim.Workload((build.build(),), np.zeros(8, np.int32))


def _span(run: Any, name: str) -> tuple[int, int]:
    rows = run.timeline.to_pylist()
    return next((row["start_ns"], row["end_ns"]) for row in rows if row["name"].startswith(name))


@pytest.mark.parametrize(
    ("size", "held"),
    [(1000, 1), (1 << 18, 8), (64 * MIB, 24)],  # LL of eight ranks, LL128, Simple
)
def test_each_running_channel_holds_a_processor(size: int, held: int) -> None:
    call = Call("all_gather", 8, 1, size)
    assert H100.processors(call, H100.choice(call)) == held


@pytest.mark.parametrize(("limit", "held"), [(0, 24), (6, 6), (100, 24)])
def test_software_may_limit_the_processors_that_are_held(limit: int, held: int) -> None:
    call = Call("all_gather", 8, 1, 64 * MIB)
    limited = replace(H100, most_processors=limit)
    assert limited.processors(call, limited.choice(call)) == held


def test_few_bytes_hold_few_and_rccl_is_not_known() -> None:
    call = Call("all_reduce", 8, 1, 64 * MIB)
    assert H100.processors(call, H100.choice(call)) == 16  # as in logs of NVLS on eight H100
    mi300 = Library("rccl-2.21", "cdna3", LibraryWires(48, True, 8, 50, is_mesh=True), 8)
    assert mi300.processors(call, mi300.choice(call)) == 0
    assert H100.choice(call).protocol is LibraryProtocol.SIMPLE


def test_a_kernel_loses_the_held_part_of_its_processors_while_the_collective_lasts() -> None:
    workload = _workload(8 * MIB)
    alone = _run(workload, keys=LEFT_OUT)
    begin, end = _span(alone, "kernel")
    nominal = end - begin
    beside = _run(workload)
    begin, end = _span(beside, "all_gather")
    collective = end - begin
    held = H100.processors(call := Call("all_gather", 8, 1, 64 * MIB), H100.choice(call))
    lost = collective * held / PROCESSORS
    begin, end = _span(beside, "kernel")
    assert collective < nominal
    assert abs(end - begin - nominal - lost) <= 1


def test_no_time_is_lost_without_overlap_or_with_the_key_off() -> None:
    apart = _run(_workload(8 * MIB, after=True))
    begin, end = _span(apart, "kernel")
    beside = _workload(8 * MIB)
    left_out = _span(_run(beside, keys=LEFT_OUT), "kernel")
    assert left_out[1] - left_out[0] == end - begin
    by_key = _span(_run(beside, keys={"overlap": {"copies": 2}}), "kernel")
    assert by_key[1] - by_key[0] == end - begin


def test_memory_bound_and_recorded_kernels_lose_no_time() -> None:
    of_memory = "layernorm 65536 8192"
    spans = [
        _span(_run(_workload(8 * MIB, kernel=of_memory, after=is_in)), "kernel") for is_in in (True, False)
    ]
    assert spans[0] == spans[1]
    build = et_sim.TraceBuilder()
    build.compute("kernel", micros=500)
    build.collective("all_gather", 8 * MIB)
    recorded = _run(et_sim.Workload((build.build(),), np.zeros(8, np.int32)))
    assert _span(recorded, "kernel") == (0, 500_000)


@pytest.mark.parametrize("exchange", ["deepep-low-latency", "deepep-low-latency-rdma"])
def test_copies_that_travel_alone_hold_no_processors(exchange: str) -> None:
    call = Call("all_to_all", 32, 4, 64 * MIB)
    apart, normal = (replace(H100, expert_exchange=name) for name in (exchange, "deepep"))
    assert apart.processors(call, apart.choice(call)) == 0
    assert normal.processors(call, normal.choice(call)) == 16
    other = Call("all_gather", 8, 1, 64 * MIB)
    assert apart.processors(other, apart.choice(other)) == 24


def test_exchanges_beside_reserved_processors_take_two_bytes_of_memory_for_each_that_they_send() -> None:
    call = Call("all_to_all", 32, 4, 64 * MIB)
    shared = replace(H100, expert_exchange="deepep", shares_memory=True)
    time_us = shared.choice(call).time_us
    assert shared.memory(call, shared.choice(call)) == pytest.approx(2 * 62 * MIB / (1000 * time_us))
    assert replace(shared, shares_memory=False).memory(call, shared.choice(call)) == 0
    assert replace(shared, expert_exchange="").memory(call, shared.choice(call)) == 0
    other = Call("all_gather", 8, 1, 64 * MIB)
    assert shared.memory(other, shared.choice(other)) == 0


def _beside_experts(
    kernel: str, *, reserved: int, begins_after: bool = False, keys: dict[str, Any] | None = None
) -> tuple[int, int]:
    """Return the times of a kernel and of an exchange with experts, on a machine with keys of its system."""
    build = et_sim.TraceBuilder()
    first = build.compute("kernel", layer_shape=kernel, dtype="bf16")
    build.collective("all_to_all", 64 * MIB, after=[first] if begins_after else [])
    software = MadeFor("x", expert_exchange="deepep", reserved=reserved)
    workload = et_sim.Workload((build.build(),), np.zeros(16, np.int32), software=software)
    machine = preset("h100-dgx:16")
    run = et_sim.simulate(workload, system={**machine.system, **(keys or {})}, network=machine.network)
    spans = (_span(run, name) for name in ("kernel", "all_to_all"))
    first, second = (end - begin for begin, end in spans)
    return first, second


def test_a_kernel_that_memory_bounds_loses_what_an_exchange_takes_beside_reserved_processors() -> None:
    kernel = "layernorm 16384 8192"
    alone, exchange = _beside_experts(kernel, reserved=20, begins_after=True)
    assert alone < exchange
    sent = 60 * MIB  # of 64 MiB for 16 ranks
    taken = round(1000 * 2 * sent / exchange / 3350)
    assert 0 < taken < 500
    beside, _ = _beside_experts(kernel, reserved=20)
    assert beside == -(-alone * 1000 // (1000 - taken))
    assert _beside_experts(kernel, reserved=0)[0] == alone


@pytest.mark.parametrize("memory_bw", [50, 1])
def test_an_exchange_that_takes_more_memory_than_there_is_leaves_a_kernel_half_of_it(memory_bw: int) -> None:
    kernel = "layernorm 4096 8192"
    alone, exchange = _beside_experts(kernel, reserved=20, begins_after=True)
    assert 2 * alone < exchange
    beside, _ = _beside_experts(kernel, reserved=20, keys={"local-mem-bw": memory_bw})
    assert beside == 2 * alone


def test_a_kernel_that_arithmetic_bounds_loses_only_reserved_processors() -> None:
    kernel = "gemm 4096 4096 4096"
    alone, _ = _beside_experts(kernel, reserved=20, begins_after=True)
    assert _beside_experts(kernel, reserved=20)[0] == alone


@pytest.mark.deep
@settings(max_examples=settings.default.max_examples // 3)
@given(
    nodes=st.lists(
        st.tuples(
            st.sampled_from([0, 1000, MIB, 20 * MIB]), st.sampled_from([256, 1024, 4096]), st.integers(0, 3)
        ),
        min_size=1,
        max_size=8,
    ),
    late=st.integers(-1, 7),
    model=st.sampled_from(["analytical", "flow"]),
)
def test_folded_is_unfolded(nodes: list[tuple[int, int, int]], late: int, model: str) -> None:
    build, made = et_sim.TraceBuilder(), list[int]()
    for size, side, back in nodes:
        after = [made[-back]] if 0 < back <= len(made) else []
        if size:
            made.append(build.collective("all_gather", size, after=after))
        else:
            made.append(
                build.compute("kernel", layer_shape=f"gemm {side} 4096 4096", dtype="bf16", after=after)
            )
    workload = et_sim.Workload((build.build(),), np.zeros(8, np.int32))
    keys = {"stragglers": [{"ranks": str(late), "delay": "13us"}]} if late >= 0 else {}
    runs = [_run(workload, keys=keys, model=model, fold=fold) for fold in (True, False)]
    assert runs[0].finish_ns.tolist() == runs[1].finish_ns.tolist()
