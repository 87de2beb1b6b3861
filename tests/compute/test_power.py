"""Clocks under a limit of power: closed forms, properties, and figures in the summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_compute_model import NETWORK, RANKS
from test_compute_model import SYSTEM as COMMON

import et_sim
from et_sim import TraceBuilder, Workload
from et_sim.basics.errors import EtSimError
from et_sim.basics.units import format_watts, parse_watts
from et_sim.cli import main
from et_sim.compute import at_full_clock
from et_sim.compute.model import Durations
from et_sim.compute.registry import compute_model
from et_sim.machine.presets import names, preset
from et_sim.machine.readers import read_system_alone
from et_sim.trace import Trace, shapes
from et_sim.trace.files import write_workload

DEVICE: dict[str, Any] = {
    "model": "roofline",
    "peaks": {"bf16": 100, "fp8": 200},
    "dtype": "bf16",
    "memory": [
        {"name": "HBM", "bandwidth": 1000, "capacity": "80GB"},
        {"name": "L2", "bandwidth": 4000, "capacity": "32MB"},
    ],
}
# 900 W at the peak, 200 W at full bandwidth.
POWER = {"idle": "100W", "operation": {"bf16": 9}, "byte": 200, "lowest-clock": 0.25}
SIDE = 8192
OPERATIONS, BYTES = 2 * SIDE**3, 3 * 2 * SIDE**2
PRODUCT, COPY = shapes.gemm(SIDE, SIDE, SIDE), shapes.elementwise(10**9)


def system(cap: str | None = None, power: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    given = {} if cap is None else {"power-cap": cap, "power": POWER | (power or {})}
    return {**COMMON, "compute": {**DEVICE, **given, **changes}}


def program(*kernels: str, dtype: str | None = None) -> Trace:
    build = TraceBuilder()
    for number, shape in enumerate(kernels):
        build.compute(f"k{number}", layer_shape=shape, dtype=dtype)
    return build.build()


def timed(trace: Trace, of: dict[str, Any]) -> Durations:
    return compute_model(read_system_alone(of)).durations(trace, np.arange(len(trace)), 0)


def clocks(trace: Trace, of: dict[str, Any]) -> list[float]:
    used = timed(trace, of).utilisation
    assert used is not None
    return used.clock.tolist()


def draw_watts(trace: Trace, of: dict[str, Any], idle: float = 100) -> float:
    """Return the mean power over the kernels of a program."""
    durations = timed(trace, of)
    assert durations.utilisation is not None
    return idle + durations.utilisation.energy_pj.sum() / durations.ns.sum() / 1000


@pytest.mark.parametrize("voltage", [0, 1, 2])
def test_a_product_that_draws_too_much_has_the_clock_at_which_it_draws_the_cap(voltage: int) -> None:
    (clock,) = clocks(program(PRODUCT), system("500W", {"voltage": voltage, "byte": 0}))
    assert clock == pytest.approx((400 / 900) ** (1 / (1 + voltage)), abs=2e-6)
    (ns,) = timed(program(PRODUCT), system("500W", {"voltage": voltage, "byte": 0})).ns
    assert ns == pytest.approx(OPERATIONS / 100_000 / clock, rel=1e-6)


def test_energy_of_bytes_does_not_fall_with_the_clock() -> None:
    (clock,) = clocks(program(PRODUCT), system("500W"))
    seconds = OPERATIONS / 1e14 / clock
    assert 100 + (OPERATIONS * 9e-12 * clock + BYTES * 200e-12) / seconds == pytest.approx(500, rel=1e-5)


@pytest.mark.parametrize("kernel", [PRODUCT, COPY])
def test_kernels_above_the_cap_at_the_lowest_clock_take_their_energy_over_the_cap(kernel: str) -> None:
    of = system("150W", {"voltage": 2, "lowest-clock": 0.5})
    durations = timed(program(kernel), of)
    assert durations.utilisation is not None
    operations, moved = (OPERATIONS, BYTES) if kernel == PRODUCT else (10**9, 4 * 10**9)
    energy = operations * 9e-12 * 0.5**2 + moved * 200e-12
    assert durations.ns[0] == pytest.approx(energy / 50 * 1e9, rel=1e-6)
    assert durations.utilisation.clock[0] < 0.5


def test_a_datatype_without_an_energy_draws_as_much_at_its_peak() -> None:
    both = [clocks(program(PRODUCT, dtype=name), system("500W", {"byte": 0})) for name in ("bf16", "fp8")]
    assert both[0] == both[1] != [1.0]
    own = {"operation": {"bf16": 9, "fp8": 2}, "byte": 0}
    assert clocks(program(PRODUCT, dtype="fp8"), system("500W", own)) == [1.0]


def test_each_kernel_has_the_clock_that_it_would_have_alone() -> None:
    of = system("500W")
    (alone,) = clocks(program(PRODUCT), of)
    assert clocks(program(COPY, PRODUCT, COPY), of) == [1.0, alone, 1.0]
    assert draw_watts(program(PRODUCT), of) == pytest.approx(500, rel=1e-5)
    assert draw_watts(program(COPY), of) == pytest.approx(302.25)


def test_traffic_and_launches_take_as_long_at_any_clock() -> None:
    launch = {"launch-overhead": "3us"}
    limited, full = (timed(program(PRODUCT, COPY), system(cap, **launch)).ns for cap in ("400W", "1MW"))
    assert limited[0] > full[0]
    assert limited[1] == full[1] == 4 * 10**6 + 3000
    assert clocks(program(COPY), system("400W")) == [1.0]


def test_bytes_from_a_cache_take_no_energy_of_memory() -> None:
    used = timed(program(shapes.elementwise(1000)), system("500W", {"operation": {"bf16": 1e-9}})).utilisation
    assert used is not None
    assert used.energy_pj[0] < 1e-3


def test_a_cap_that_is_never_reached_has_no_effect() -> None:
    trace = program(PRODUCT, COPY)
    assert timed(trace, system("1MW")).ns.tolist() == timed(trace, system()).ns.tolist()
    assert clocks(trace, system("1MW")) == [1.0, 1.0]


def test_at_the_full_clock_no_cap_counts() -> None:
    model = compute_model(at_full_clock(read_system_alone(system("400W"))))
    assert model.durations(program(PRODUCT), np.arange(1), 0).ns.tolist() == [OPERATIONS // 100_000]


sizes = st.integers(1, 3000)
kernels = st.lists(st.builds(shapes.gemm, sizes, sizes, sizes) | st.builds(shapes.elementwise, sizes))
caps = st.integers(110, 2000)


@given(kernels, caps, caps)
def test_no_cap_is_exceeded_and_a_higher_one_slows_no_kernel(mix: list[str], one: int, other: int) -> None:
    trace = program(PRODUCT, *mix)
    low, high = (timed(trace, system(f"{cap}W", memory=DEVICE["memory"][:1])) for cap in sorted((one, other)))
    assert (low.ns >= high.ns).all()
    assert low.utilisation is not None
    used = low.utilisation
    exact = used.launch_ns + np.maximum(used.arithmetic_ns, used.traffic_ns)
    assert (100 + used.energy_pj / np.maximum(exact, 1) / 1000 <= min(one, other) * (1 + 1e-9)).all()


def simulated(cap: str, traces: list[Trace], **options: Any) -> dict[str, Any]:
    result = et_sim.simulate(Workload.of(traces), system=system(cap), network=NETWORK, **options)
    summary: dict[str, Any] = result.summary()
    return summary


def test_a_run_reports_its_cap_its_clocks_and_its_energy() -> None:
    trace = program(PRODUCT, COPY)
    summary = simulated("500W", [trace] * RANKS)
    clock = clocks(trace, system("500W"))[0]
    assert summary["power"]["caps_watts"] == [500]
    share = timed(trace, system("500W")).ns[0] / summary["makespan_ns"]
    assert summary["power"]["lowered_share"] == pytest.approx(share, rel=1e-8)
    assert summary["power"]["mean_clock"] == pytest.approx(clock * share + 1 - share, rel=1e-8)
    seconds, watts = summary["makespan_ns"] / 1e9, 500 * share + 302.25 * (1 - share)
    assert summary["costs"]["computing_joules"] == pytest.approx(watts * RANKS * seconds, rel=1e-5)
    uncapped = et_sim.simulate(Workload.of([trace] * RANKS), system=system(), network=NETWORK)
    assert "power" not in uncapped.summary()


def test_kernels_of_other_models_draw_the_cap_and_idle_time_the_idle_power() -> None:
    build = TraceBuilder()
    build.compute("recorded", micros=1000)
    summary = simulated("500W", [build.build()] + [TraceBuilder().build()] * (RANKS - 1))
    assert summary["costs"]["computing_joules"] == pytest.approx(500e-3)
    assert summary["costs"]["not_computing_joules"] == pytest.approx(100e-3 * (RANKS - 1))
    assert summary["power"]["mean_clock"] is None


def test_folding_changes_no_digit_of_clocks_and_energies() -> None:
    traces = [program(PRODUCT, COPY), program(PRODUCT)] * (RANKS // 2)
    folded, unfolded = (simulated("400W", traces, fold=fold) for fold in (True, False))
    assert folded["folded"]["actors"] < unfolded["folded"]["actors"]
    for name in ("makespan_ns", "power", "costs"):
        assert folded[name] == unfolded[name]


def test_an_option_overrides_the_cap_of_the_system() -> None:
    traces = [program(PRODUCT)] * RANKS
    assert simulated("900W", traces, power="0.4kW") == simulated("400W", traces)
    assert simulated("900W", traces, power="900W") == simulated("900W", traces)


@pytest.mark.parametrize("name", names())
def test_a_cap_of_a_machine_lies_between_its_idle_power_and_its_own_cap(name: str) -> None:
    system_file = preset(name).system
    compute = system_file["compute"]
    if "power" not in compute:
        return
    idle, most = parse_watts(compute["power"]["idle"]), parse_watts(compute["power-cap"])
    for watts, sentence in (
        (idle, f"draws {format_watts(idle)} while idle"),
        (most + 1, f"more than the {format_watts(most)} of the board"),
    ):
        with pytest.raises(EtSimError, match=sentence):
            read_system_alone({**system_file, "compute": {**compute, "power-cap": f"{watts}W"}})
    for watts in (idle + 1, most):
        read_system_alone({**system_file, "compute": {**compute, "power-cap": f"{watts}W"}})


BAD: list[tuple[dict[str, Any], str]] = [
    ({"power": POWER}, 'key "power" requires "power-cap"'),
    ({"power-cap": "500W"}, 'key "power-cap" has no effect without "power"'),
    ({"power": POWER, "power-cap": 500}, 'key "power-cap" is 500: it has no unit'),
    ({"power": POWER, "power-cap": "500J"}, "key \"power-cap\": power '500J' cannot be understood"),
    ({"power": POWER, "power-cap": "0W"}, 'key "power-cap" is "0W"'),
    (
        {"power": POWER, "power-cap": "100W"},
        'key "power-cap" is 100 W, and the device draws 100 W while idle',
    ),
    ({"power": {"idle": "1W"}, "power-cap": "9W"}, 'key "operation" is missing'),
    ({"power": {"idle": "1W", "operation": {}}, "power-cap": "9W"}, "no energy is given"),
    ({"power": {"idle": "1W", "operation": {"bf61": 1}}, "power-cap": "9W"}, "did you mean 'bf16'?"),
    ({"power": {"idle": "1W", "operation": {"bf16": 0}}, "power-cap": "9W"}, 'key "bf16" is 0'),
    (
        {"power": {"idle": "1W", "operation": {"fp64": 1}}, "power-cap": "9W"},
        "energy of fp64, which has no peak",
    ),
    (
        {"power": {**POWER, "limit": "700W"}, "power-cap": "701W"},
        'key "power-cap" is 701 W, more than the 700 W of the board (give 700 W or less, or a higher "limit"'
        ' of "power")',
    ),
    ({"power": {**POWER, "lowest-clock": 1}, "power-cap": "9W"}, 'key "lowest-clock" is 1'),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD)
def test_invalid_power_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EtSimError) as error:
        read_system_alone({**COMMON, "compute": {**DEVICE, **changes}})
    assert sentence in str(error.value)
    assert '<system>: "compute"' in str(error.value)


@pytest.mark.parametrize(
    ("option", "machine", "sentence"),
    [
        (
            "500",
            "h100-dgx:1",
            "power '500' has no unit (allowed: a power with its unit, such as 700W or 1.2kW)",
        ),
        ("50W", "h100-dgx:1", 'key "power-cap" is 50 W, and the device draws 75 W while idle'),
        (
            "5000W",
            "h100-dgx:1",
            '--power 5 kW is more than NVIDIA H100 SXM 80 GB draws: its "power-cap" is 700 W (give 700 W or'
            " less, or leave out --power)",
        ),
        ("600W", "h100-500w:1", 'its "power-cap" is 500 W (give 500 W or less'),
        (
            "500W",
            "tpu-v4-pod:64",
            "--power 500W has no effect: Google TPU v4 chip, 32 GiB has no power model, since no published",
        ),
        ("500W", "gaudi3-node:8", "Intel Gaudi 3, 128 GB has no power model"),
        ("500W", "trn2-node:16", "AWS Trainium2, 96 GB has no power model"),
        ("500W", "mi250x-node:8", "one of its two dies (GCDs) of 64 GB has no power model"),
    ],
)
def test_the_option_is_refused_with_a_remedy(
    option: str, machine: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = tmp_path / "job"
    write_workload(Workload.of([program(PRODUCT)] * int(machine.partition(":")[2])), prefix)
    assert main(["run", str(prefix), "--machine", machine, "--power", option]) == 2
    assert sentence in capsys.readouterr().err


def test_rates_beside_a_device_that_states_its_power_are_refused() -> None:
    rates = {"busy-watts": 500, "idle-watts": 90}
    with pytest.raises(EtSimError, match='key "busy-watts" and key "power" of "compute" both give'):
        read_system_alone({**system("500W"), "costs": rates})
    known = read_system_alone({**system("500W"), "costs": {"network-watts": 30}}).costs
    assert known is not None
    assert (known.busy_watts, known.idle_watts, known.network_watts) == (500, 100, 30)
