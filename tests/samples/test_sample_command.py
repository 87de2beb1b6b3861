"""`et-sim run --samples`: its files, its view, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from machines import ring
from sampled_cases import VARIED, pipeline

import et_sim
from et_sim.cli import main
from et_sim.trace import write_workload


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write a pipeline with its machine; return the arguments of a run."""
    monkeypatch.chdir(tmp_path)
    write_workload(pipeline([4000, 5000, 6000], 4), "job")
    Path("net.yml").write_text(yaml.safe_dump(ring(3)), encoding="utf-8")
    _system(VARIED)
    return ["run", "job", "--system", "sys.json", "--network", "net.yml"]


def _system(*entries: dict[str, Any]) -> None:
    system = {"variation": [*entries]} if entries else {}
    Path("sys.json").write_text(json.dumps(system), encoding="utf-8")


def test_samples_leave_the_tables_of_the_run_as_they_are(files: list[str], capsys: Any) -> None:
    assert main([*files, "--out", "plain"]) == 0
    assert main([*files, "--out", "varied", "--samples", "12", "--seed", "3"]) == 0
    assert main([*files, "--out", "again", "--samples", "12", "--seed", "3"]) == 0
    for path in Path("varied").iterdir():
        assert path.read_bytes() == Path("again", path.name).read_bytes()
        if path.suffix == ".arrow" and path.stem != "samples":
            assert path.read_bytes() == Path("plain", path.name).read_bytes(), path.name
    plain, varied = (json.loads(Path(name, "summary.json").read_text()) for name in ("plain", "varied"))
    samples = varied.pop("samples")
    assert varied == plain
    assert (samples["samples"], samples["seed"], samples["nominal_ns"]) == (12, 3, plain["makespan_ns"])
    printed = capsys.readouterr().out
    assert "p99" in printed
    assert main(["inspect", "varied", "samples", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == samples


def test_python_gives_the_samples_of_the_command_line(files: list[str]) -> None:
    assert main([*files, "--out", "command", "--samples", "6", "--seed", "3"]) == 0
    inputs = {"system": "sys.json", "network": "net.yml"}
    result = et_sim.simulate("job", **inputs, samples=6, seed=3, other_profile=True)  # as the command does
    result.save("python")
    for path in Path("command").iterdir():
        if path.suffix == ".arrow":
            assert path.read_bytes() == Path("python", path.name).read_bytes(), path.name
    samples = json.loads(Path("command", "summary.json").read_text())["samples"]
    assert result.samples is not None
    assert result.samples.summary() == samples
    assert result.samples.step_ns.tolist() == result.table("samples")["step_ns"].to_pylist()[::2]
    assert et_sim.simulate("job", **inputs).samples is None


def test_samples_can_be_queried(files: list[str], capsys: Any) -> None:
    assert main([*files, "--out", "run", "--samples", "5"]) == 0
    capsys.readouterr()
    query = 'SELECT "without", count(*), min(step_ns) FROM samples GROUP BY 1 ORDER BY 1'
    assert main(["sql", "run", query, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [[*row.values()][:2] for row in rows] == [["kernel, by event", 5], ["nothing", 5]]


def test_a_run_without_samples_says_how_to_get_them(files: list[str], capsys: Any) -> None:
    assert main([*files, "--out", "run"]) == 0
    assert main(["inspect", "run", "samples"]) == 0
    assert "--samples" in capsys.readouterr().out
    assert main(["inspect", "run", "samples", "--svg", "none.svg"]) == 2
    assert "--samples" in capsys.readouterr().err
    assert not Path("none.svg").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", "3"], "--seed has no effect without --samples"),
        (["--samples", "1"], "--samples is 1"),
        (["--samples", "0"], "--samples is 0"),
        (["--samples", "1000000"], "--samples is 1000000"),
        (["--samples", "5", "--seed", "-1"], "--seed is -1"),
        (["--samples", "5", "--network-models", "analytical,link"], "leave --network-models out"),
    ],
)
def test_numbers_without_a_meaning_are_refused(
    files: list[str], more: list[str], message: str, capsys: Any
) -> None:
    assert main([*files, "--out", "run", *more]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], 'the system has no "variation"'),
        ([{**VARIED, "kind": "host"}], "no rank of this workload has such work"),
        ([{**VARIED, "shared": "rack"}], "has no racks"),
        ([{**VARIED, "operations": ["nothing"]}], 'key "operations" names "nothing"'),
        ([{**VARIED, "operations": ["pass 0", "nothing"]}], 'names "nothing"'),
        ([{**VARIED, "kind": "collective"}], "no effect"),
    ],
)
def test_variation_without_an_effect_is_refused(
    files: list[str], entries: list[dict[str, Any]], message: str, capsys: Any
) -> None:
    _system(*entries)
    assert main([*files, "--out", "run", "--samples", "5"]) == 2
    assert message in capsys.readouterr().err


def test_runs_with_equal_draws_are_compared_sample_by_sample(files: list[str], capsys: Any) -> None:
    slower = {**ring(3), "latency": [5000.0]}
    for name, machine, seed in (("a", ring(3), "3"), ("b", slower, "3"), ("c", slower, "4")):
        Path("net.yml").write_text(yaml.safe_dump(machine), encoding="utf-8")
        assert main([*files, "--out", name, "--samples", "12", "--seed", seed]) == 0
    capsys.readouterr()
    assert main(["compare", "a", "b", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["samples"]
    steps = [_steps(name) for name in ("a", "b")]
    longer = [after - before for before, after in zip(*steps, strict=True)]
    assert found["longer"]["value_ns"] == pytest.approx(sum(longer) / 12)
    assert 0 < found["longer"]["low_ns"] < found["longer"]["value_ns"]
    assert found["slower_share"] == 1
    assert main(["compare", "a", "b"]) == 0
    assert "12 samples with equal draws" in capsys.readouterr().out
    assert main(["compare", "a", "c", "--json"]) == 0
    assert "samples" not in json.loads(capsys.readouterr().out)


def test_a_comparison_says_why_samples_are_not_compared(files: list[str], capsys: Any) -> None:
    for name, more in (("a", ["--samples", "3"]), ("b", ["--samples", "3", "--seed", "4"]), ("c", [])):
        assert main([*files, "--out", name, *more]) == 0
    for names, message in (
        ("ab", "not compared: their seeds are 0 and 4"),
        ("ac", "not compared: only one of the runs has any"),
    ):
        capsys.readouterr()
        assert main(["compare", *names]) == 0
        assert message in capsys.readouterr().out


def test_a_sample_that_a_failure_ends_is_no_time(files: list[str], capsys: Any) -> None:
    assert main([*files, "--out", "run"]) == 0
    makespan_ns = json.loads(Path("run", "summary.json").read_text())["makespan_ns"]
    failing = {**ring(3), "failures": [{"gpu": 2, "at": f"{makespan_ns + 1}ns"}]}
    Path("net.yml").write_text(yaml.safe_dump(failing), encoding="utf-8")
    flow = [*files, "--network-model", "flow", "--out", "run"]
    assert main(flow) == 0
    capsys.readouterr()
    assert main([*flow, "--samples", "12"]) == 1
    assert "completes: 1 of 3 ranks cannot finish: gpu 2 failed" in capsys.readouterr().err


def test_samples_that_are_all_equal_have_no_slowest(files: list[str], capsys: Any) -> None:
    _system({**VARIED, "family": "log-normal", "spread": 0})
    assert main([*files, "--out", "run", "--samples", "3"]) == 0
    assert "all samples took equally long" in capsys.readouterr().out


def _steps(name: str) -> list[int]:
    from et_sim.views import open_run
    from et_sim.views.summary.samples import step_times

    steps: list[int] = step_times(open_run(name)).tolist()
    return steps
