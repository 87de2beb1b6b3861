"""Energy and price of a run: closed forms, folding, and keys of machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import ring

import et_sim
from et_sim.basics.errors import MachineError
from et_sim.views.view import view_text

NETWORK = ring(4, "50GB/s")
SYSTEM = {"all-reduce-implementation": ["ring"]}
RATES = {"busy-watts": 700, "idle-watts": 90.5, "network-watts": 30, "price-per-hour": 3.6, "currency": "EUR"}


def workload(*kernels_ns: int) -> et_sim.Workload:
    """Return ranks with a kernel each, then an all-reduce of all of them."""
    traces = []
    for nanos in kernels_ns:
        build = et_sim.TraceBuilder()
        first = build.compute("kernel", nanos=nanos)
        build.collective("all_reduce", 1 << 20, after=[first])
        traces.append(build.build())
    return et_sim.Workload.of(traces)


UNEVEN = workload(1_000_000, 2_000_000, 1_000_000, 1_000_000)


def costs(rates: dict[str, Any], fold: bool = True, of: et_sim.Workload = UNEVEN) -> Any:
    return et_sim.simulate(of, system=SYSTEM | {"costs": rates}, network=NETWORK, fold=fold).summary()[
        "costs"
    ]


def test_energy_and_price_are_rates_times_the_time_of_all_ranks() -> None:
    makespan = et_sim.simulate(UNEVEN, system=SYSTEM, network=NETWORK).makespan_ns
    all_ns, computing = 4 * makespan, 5_000_000
    figures = costs(RATES)
    assert figures["computing_joules"] == pytest.approx(computing * 700e-9, rel=1e-11)
    assert figures["not_computing_joules"] == pytest.approx((all_ns - computing) * 90.5e-9, rel=1e-11)
    assert figures["network_joules"] == pytest.approx(all_ns * 30e-9, rel=1e-11)
    parts = ("computing_joules", "not_computing_joules", "network_joules")
    assert figures["joules"] == pytest.approx(sum(figures[name] for name in parts), rel=1e-11)
    assert figures["price"] == pytest.approx(all_ns * 1e-9 / 3600 * 3.6, rel=1e-11)
    assert figures["currency"] == "EUR"


def test_folding_changes_no_digit() -> None:
    alike = workload(1_234_567, 1_234_567, 1_234_567, 1_234_567)
    assert costs(RATES, of=alike) == costs(RATES, fold=False, of=alike)


def test_a_machine_may_state_only_one_of_them_or_none() -> None:
    price = costs({"price-per-hour": 1})
    assert (price["joules"], price["computing_joules"], price["currency"]) == (None, None, "USD")
    energy = costs({"busy-watts": 1, "idle-watts": 0})
    assert (energy["price"], energy["network_joules"]) == (None, 0)
    assert costs({}) is None


def test_the_summary_shows_both_in_a_line_each(tmp_path: Path) -> None:
    et_sim.simulate(UNEVEN, system=SYSTEM | {"costs": RATES}, network=NETWORK).save(tmp_path / "run")
    lines = {line.split()[0]: line for line in view_text("summary", tmp_path / "run").splitlines() if line}
    figures = costs(RATES)
    share = round(100 * figures["computing_joules"] / figures["joules"])
    assert f"{figures['joules']:.2f} J: computing {share} %, not computing " in lines["energy"]
    assert lines["price"].endswith(f" {figures['price']:.4g} EUR")


@pytest.mark.parametrize(
    ("rates", "cause"),
    [
        ({"busy-watts": 700}, 'key "busy-watts" without "idle-watts"'),
        ({"network-watts": 700}, 'key "network-watts" without "busy-watts"'),
        ({"busy-watts": 70, "idle-watts": 80}, '"busy-watts" 70 is below "idle-watts" 80'),
        ({"busy-watts": -1, "idle-watts": 80}, 'key "busy-watts" is -1'),
        ({"currency": "EUR"}, 'key "currency" has no effect without "price-per-hour"'),
        ({"busy": 1}, "did you mean 'busy-watts'"),
    ],
)
def test_rates_that_cannot_be_used_are_refused(rates: dict[str, Any], cause: str) -> None:
    with pytest.raises(MachineError, match='"costs": ') as refusal:
        costs(rates)
    assert cause in str(refusal.value)
