"""`--when-full` of runs, checks and sweeps, and the part of a memory that is reserved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import et_sim
from et_sim.api import run
from et_sim.basics.errors import EtSimError, MachineError, UsageError
from et_sim.cli import main
from et_sim.machine import read_machine
from et_sim.machine.presets import entry, names, preset

CAPACITY = {"local-mem-capacity": 5000}
NETWORK = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
REMOTE = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 10, "remote-mem-bw": 1}


def workload(size: int = 3000) -> et_sim.Workload:
    """Return a workload of tensors of which local memory holds one, not two."""
    build = et_sim.TraceBuilder()
    first = build.compute("first", nanos=1000, outputs={"activations:a": size})
    second = build.compute("second", nanos=1000, outputs={"activations:b": size}, after=[first])
    build.compute("third", nanos=1000, inputs={"activations:a": size}, after=[second])
    return et_sim.Workload.of([build.build()] * 2)


def files(folder: Path, system: dict[str, Any] = CAPACITY) -> list[str]:
    """Write the files, and return the arguments of the command line."""
    et_sim.write_workload(workload(), folder / "w")
    for name, content in (("system", system), ("network", NETWORK), ("memory", REMOTE)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    machine = [f"--{name}={folder / name}.json" for name in ("system", "network")]
    return [str(folder / "w"), *machine]


@pytest.mark.parametrize("of_file", ["stop", "report", "spill"])
@pytest.mark.parametrize("given", ["stop", "report", "spill"])
def test_the_option_overrides_the_system_file(of_file: str, given: str) -> None:
    machine: dict[str, Any] = {"network": NETWORK, "memory": REMOTE}
    by_option = run(workload(), system=CAPACITY | {"when-full": of_file}, when_full=given, **machine)
    by_key = run(workload(), system=CAPACITY | {"when-full": given}, **machine)
    assert by_option.summary() == by_key.summary()
    assert by_option.summary()["status"] == ("out of memory" if given == "stop" else "complete")


def test_a_run_and_a_check_take_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of, out = ["run", *files(tmp_path)], ["--out", str(tmp_path / "r")]
    assert main([*run_of, *out]) == 1
    assert "give --when-full report to see the rest" in capsys.readouterr().err
    assert main([*run_of, *out, "--when-full", "report"]) == 0
    remote = ["--memory", str(tmp_path / "memory.json")]
    assert main([*run_of, *out, "--when-full", "spill", *remote]) == 0
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["spilled"]["stores"] == 4
    capsys.readouterr()
    assert main(["check", *run_of[1:], "--when-full", "spill"]) == 2
    assert "the machine has no remote memory" in capsys.readouterr().out
    assert main(["check", *run_of[1:], "--when-full", "spill", *remote]) == 0


def test_varied_runs_keep_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", *files(tmp_path), "--when-full", "report", "--out", str(tmp_path / "r")]
    assert main(arguments) == 0
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "r"), "critical-path", "--vary", "time of all kernels=2"]) == 0
    assert "6 µs" in capsys.readouterr().out


def test_an_option_without_effect_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--when-full 'spil' is not known"):
        run(workload(), system=CAPACITY, network=NETWORK, when_full="spil")
    with pytest.raises(UsageError, match="the system has no memory capacity"):
        run(workload(), system={}, network=NETWORK, when_full="report")
    assert main(["check", files(tmp_path)[0], "--when-full", "report"]) == 2


def test_sweeps_have_it_in_their_base_and_as_an_axis(tmp_path: Path) -> None:
    base = {"workload": files(tmp_path)[0], "system": CAPACITY, "network": NETWORK}
    delays = {"system.endpoint-delay": [1, 2]}
    assert statuses({"base": base, "axes": {"when-full": ["stop", "report"]}}) == [
        "out of memory",
        "complete",
    ]
    assert statuses({"base": {**base, "when-full": "report"}, "axes": delays}) == ["complete"] * 2
    with pytest.raises(EtSimError, match="spil"):
        statuses({"base": {**base, "when-full": "spil"}, "axes": delays})


def statuses(spec: dict[str, Any]) -> list[str]:
    """Return the endings of the points of a sweep."""
    found: list[str] = et_sim.sweep(spec, workers=1, progress=False).table["status"].to_pylist()
    return found


def test_tensors_get_the_unreserved_memory() -> None:
    for size, status in ((2000, "complete"), (2001, "out of memory")):
        system = {"local-mem-capacity": 5000, "local-mem-reserved": 1000}
        summary = run(workload(size), system=system, network=NETWORK).summary()
        assert summary["status"] == status
    failure = summary["out_of_memory"]
    assert (failure["capacity_bytes"], failure["reserved_bytes"]) == (4000, 1000)
    limit = r"than the limit of 3.91 KiB \(of 4.88 KiB, 1000 B are reserved\) at 1 µs: 4002 B on rank 0"
    with pytest.raises(EtSimError, match=limit):
        et_sim.simulate(workload(size), system=system, network=NETWORK)


def test_a_memory_that_is_reserved_as_a_whole_is_refused() -> None:
    with pytest.raises(MachineError, match="no memory is left for tensors"):
        read_machine(system={"local-mem-capacity": 10, "local-mem-reserved": 10}, network=NETWORK)


@pytest.mark.parametrize("name", names())
def test_machines_by_name_state_their_reserve_and_its_reason(name: str) -> None:
    known, of = preset(name), entry(name)
    assert "memory-reserved" in {**of.sources, **of.estimates}
    memory = read_machine(system=known.system, network=known.network).system.local_memory
    assert memory is not None
    assert 0 <= memory.reserved_bytes < memory.total_bytes / 10
    level = known.system["compute"]["memory"][0]["name"]
    text = {**of.sources, **of.estimates}[level]
    is_nominal = "nominal" in text
    assert is_nominal == name.startswith(("tpu", "trn", "mi325x", "mi250x", "gaudi")), text
    digits = known.system["local-mem-capacity"]
    if not is_nominal:
        assert f"{int(str(digits).removesuffix('MiB')):,}" in text


def test_h100_h200_and_b200_have_the_memory_that_their_driver_reports() -> None:
    for name, mebibytes in (("h100-dgx", 81_559), ("h200-dgx", 143_771), ("b200-dgx", 183_359)):
        known = preset(name)
        memory = read_machine(system=known.system, network=known.network).system.local_memory
        assert memory is not None
        assert memory.total_bytes == mebibytes << 20
        assert memory.capacity_bytes == (mebibytes - 3976) << 20


@pytest.mark.deep
@pytest.mark.parametrize("shared", [["--zero", "2"], ["--zero", "1", "--sum-bytes", "2"]])
def test_the_published_plan_of_llama_3_405b_fits_8192_h100(
    shared: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Check TP 8, PP 16, DP 64, sequences of 8,192 (Llama 3, table 4); FSDP shares states and gradients."""
    plan = ["--tp=8", "--pp=16", "--dp=64", "--micro-batches=32", "--sequence-parallel", "--sequence=8192"]
    stages = ["--stage-layers", ",".join(["7", *["8"] * 14, "7"])]
    command = ["plan", "--model", "llama3-405b", *plan, *stages, *shared]
    assert main([*command, "--machine", "h100-dgx:8192"]) == 0
    assert "of 75.76 GiB (of 79.65 GiB, 3.88 GiB are reserved)" in capsys.readouterr().out
