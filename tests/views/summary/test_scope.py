"""Every summary states the effects that its figures include and leave out, declared once for each model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import FIFO_RING, ring

import et_sim
from et_sim.cli import main
from et_sim.compute.registry import AT_THE_ROOFS
from et_sim.machine.roofline import RooflineDevice
from et_sim.network.registry import MODELS, SCOPES
from et_sim.timeline import write_run
from et_sim.views.summary.sentences import scope_text

pytestmark = pytest.mark.usefixtures("warm_engine")
NETWORKS_PAGE = Path(__file__).parents[3] / "docs" / "network-models.md"


def scope_of(model: str, system: dict[str, Any] = FIFO_RING, ranks: int = 2, **options: Any) -> Any:
    build = [et_sim.TraceBuilder() for _ in range(ranks)]
    for builder in build:
        builder.compute("kernel", nanos=10)
        builder.collective("all_reduce", 1000)
    workload, network = et_sim.Workload.of([builder.build() for builder in build]), ring(ranks, "50GB/s", 10)
    return et_sim.simulate(workload, system=system, network=network, model=model, **options).summary()[
        "scope"
    ]


def test_every_network_model_states_its_scope_and_the_page_repeats_it() -> None:
    assert {name.split(" ")[0] for name in SCOPES} == set(MODELS)
    page = NETWORKS_PAGE.read_text(encoding="utf-8")
    assert [
        scope for scope in SCOPES.values() if f"| {scope.includes} | {scope.leaves_out} |" not in page
    ] == []


@pytest.mark.parametrize("model", ["analytical", "link", "flow"])
def test_the_scope_of_a_run_joins_its_model_and_its_profile(model: str) -> None:
    corrected, reference = (scope_of(model, profile=name) for name in ("corrected", "reference"))
    with_ports = SCOPES.get(f"{model} with ports", SCOPES[model])
    assert with_ports.includes in corrected["includes"]
    assert SCOPES[model].includes in reference["includes"]
    assert not any("correction" in text for text in corrected["leaves_out"])
    assert any("correction" in text for text in reference["leaves_out"])


def test_unused_models_are_not_included() -> None:
    alone = scope_of("flow", ranks=1)
    assert SCOPES["flow"].includes not in alone["includes"]
    tracked = scope_of("flow", FIFO_RING | {"track-local-mem": 1})
    assert "local memory" in tracked["includes"]
    assert "whether memory suffices" in alone["leaves_out"]


@pytest.mark.parametrize(
    "command", [["plan", "--model", "gpt2"], ["compare", "a", "b"], ["inspect", "a"], ["report", "a"]]
)
def test_every_summary_begins_in_short_and_states_its_scope(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, nanos in (("a", 10), ("b", 20)):
        build = et_sim.TraceBuilder()
        build.compute("kernel", nanos=nanos)
        workload = et_sim.Workload.of([build.build()])
        result = et_sim.simulate(workload, system=FIFO_RING, network=ring(1, "50GB/s", 10))
        write_run(result, tmp_path / name)
    assert main([*command, *(["--html", "page.html"] if command[0] == "report" else [])]) == 0
    shown = capsys.readouterr().out
    if command[0] == "report":
        shown = Path("page.html").read_text(encoding="utf-8")
        assert scope_text(result.summary()["scope"]) in shown
        assert '<p class="short">Compute is ' in shown
    else:
        first = [line.split("  ")[0] for line in shown.splitlines() if line[0:1].strip()][:3]
        assert {"in short", "includes"} <= set(first)


def test_a_roofline_without_launches_states_it_and_presets_have_launches() -> None:
    build = et_sim.TraceBuilder()
    build.compute("kernel", num_ops=10**9, tensor_bytes=10**6)
    workload = et_sim.Workload.of([build.build()])
    plain = FIFO_RING | {"roofline-enabled": 1, "peak-perf": 100}
    of_files = et_sim.simulate(workload, system=plain, network=ring(1, "50GB/s", 10)).summary()["scope"]
    by_name = et_sim.simulate(workload, machine="h100-dgx:1").summary()["scope"]
    assert AT_THE_ROOFS[0] in of_files["includes"]
    assert AT_THE_ROOFS[1] in of_files["leaves_out"]
    assert RooflineDevice.scope[0] in by_name["includes"]
    assert AT_THE_ROOFS[1] not in by_name["leaves_out"]
