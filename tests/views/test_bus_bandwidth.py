"""Algorithm and bus bandwidth of collectives are those of nccl-tests, in every view that shows bandwidths."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import KINDS, algorithms, collective, network

import et_sim
from et_sim.cli import main
from et_sim.machine.presets import preset
from et_sim.views.run.directory import open_run
from et_sim.views.summary.bandwidth import rates
from et_sim.views.summary.groups import group_totals
from et_sim.views.summary.operations import bandwidth, operations

RANKS, SIZE, RATE = 4, 64 << 20, 50.0  # bytes per ns of a port

# Size (relative to that of a trace) and bus factor of nccl-tests, for n ranks.
FACTORS = {
    "all_reduce": (lambda _: 1, lambda n: 2 * (n - 1) / n),
    "all_gather": (lambda n: n, lambda n: (n - 1) / n),
    "reduce_scatter": (lambda _: 1, lambda n: (n - 1) / n),
    "all_to_all": (lambda _: 1, lambda n: (n - 1) / n),
    "broadcast": (lambda _: 1, lambda _: 1),
    "reduce": (lambda _: 1, lambda _: 1),
    "send": (lambda _: 1, lambda _: 1),
}


@given(
    st.sampled_from(sorted(FACTORS)), st.integers(1, 10**6), st.integers(1, 10**15), st.integers(1, 10**12)
)
def test_factors_are_those_of_nccl_tests(kind: str, members: int, size: int, span: int) -> None:
    of_size, of_bus = FACTORS[kind]
    measured = bandwidth(kind, members, size, span)
    assert measured.algorithm == pytest.approx(of_size(members) * size / span * 1e9)
    assert measured.bus == pytest.approx(of_size(members) * size / span * 1e9 * of_bus(members))


def test_operations_without_bytes_or_known_members_have_no_bus_bandwidth() -> None:
    assert bandwidth("all_reduce", 8, 0, 10).algorithm is None
    assert bandwidth("all_reduce", 8, 10, 0).algorithm is None
    assert bandwidth("receive", None, 10, 10).algorithm is None
    assert bandwidth("all_reduce", None, 10, 10).bus is None
    assert bandwidth("compute", None, 10, 10).bus is None


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Run four ranks at a switch whose ports carry 50 GB/s, on the flow model."""
    traces = []
    for _ in range(RANKS):
        trace = et_sim.TraceBuilder()
        given = SIZE // RANKS if request.param == "all_gather" else SIZE
        trace.collective(request.param, given)
        traces.append(trace.build())
    folder = tmp_path_factory.mktemp("bus") / request.param
    direct = algorithms("direct")
    switch = network(["Switch"], [RANKS], f"{RATE:g}GB/s", "1ns")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ET_SIM_COMPILE", "never")
        et_sim.simulate(
            et_sim.Workload.of(traces), system=direct, network=switch, model="flow", profile="corrected"
        ).save(folder)
    return request.param, folder


def test_a_direct_collective_has_the_bus_bandwidth_of_its_ports_in_every_view(
    run: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    kind, folder = run
    opened = open_run(folder)
    for measured in (
        operations(opened)[0].bandwidth,
        group_totals(opened)[0].bandwidth,
        (rate := rates(opened)[0]).over(rate.count, rate.moving_ns),
    ):
        assert measured.bus == pytest.approx(RATE * 1e9, rel=0.01)
        factor = FACTORS[kind][1](RANKS)
        assert measured.algorithm == pytest.approx(RATE * 1e9 / factor, rel=0.01)
    assert main(["inspect", str(folder), "ops", "--json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)
    assert data["bus_bytes_per_second"] == measured.bus
    assert data["members"] == RANKS


def test_the_summary_and_the_page_show_the_bus_bandwidth_by_default(
    run: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = run
    assert main(["inspect", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "bus bw" in printed
    assert "GB/s" in printed
    assert "GiB/s" not in printed
    assert main(["report", str(folder), "--html", str(folder / "page.html")]) == 0
    page = (folder / "page.html").read_text()
    assert "bus bw" in page
    assert "GiB/s" not in page


@pytest.mark.parametrize(("machine", "port"), [("h100-dgx:8", 450.0), ("l40s-node:8", 31.5)])
@pytest.mark.parametrize("model", ["flow", "link", "analytical"])
def test_no_late_rank_has_a_larger_bus_bandwidth_than_its_port(
    machine: str, port: float, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(2):
        draw = Random(f"{machine} {model} {seed}")
        kind = draw.choice(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"))
        late = draw.randrange(8)
        found, folder = preset(machine), str(tmp_path / str(seed))
        stragglers = [{"ranks": str(late), "delay": f"{draw.choice((10, 300, 10_000))}us"}]
        et_sim.simulate(
            collective(8, kind, draw.choice((1 << 20, 128 << 20))),
            system=found.system | {"stragglers": stragglers},
            network=found.network,
            model=model,
        ).save(folder)
        for view in ("ops", "groups", "bandwidth"):
            for ranks in ([], ["--ranks", str(late)], ["--ranks", str((late + 1) % 8)]):
                assert main(["inspect", folder, view, *ranks, "--json"]) == 0
                shown = json.loads(capsys.readouterr().out)
                rows = shown["rates"] if view == "bandwidth" else shown
                assert len(rows) == 1
                assert all(0 < row["bus_bytes_per_second"] <= port * 1e9 for row in rows)
