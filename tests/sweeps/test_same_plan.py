"""The same plan on several machines: names of machines, prices with their sources, and equal simulations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.machine.presets import entry, preset
from et_sim.sweeps.same_plan import machines_of, price_source

MODEL = {
    "model_type": "gpt2",
    "n_embd": 256,
    "n_head": 8,
    "n_layer": 2,
    "vocab_size": 1024,
    "n_positions": 64,
}


def test_machines_have_the_npus_of_the_first_one() -> None:
    assert machines_of("h100-dgx:16,node=4,b300-dgx,mi325x-node,price=2") == [
        "h100-dgx:16,node=4",
        "b300-dgx:16",
        "mi325x-node:16,price=2",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "h100-dgx:8,b300-dgx:16",
            "b300-dgx:16 has 16 NPUs, and h100-dgx:8 8: a plan has one number of ranks",
        ),
        ("h100-dgx:8,h100-dgx", "--machine names h100-dgx:8 twice"),
        ("h100-dgx:8,,b300-dgx", "names no machine between two commas"),
        ("h100-dgx:8,b301-dgx", "machine 'b301-dgx' is not known"),
    ],
)
def test_machines_that_cannot_be_compared_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        machines_of(text)


@pytest.mark.parametrize(
    ("machine", "price"),
    [("gb200-nvl72", 42 / 4), ("b200-dgx", 68.8 / 8), ("b300-dgx", 7.4), ("mi325x-node", 1.95)],
)
def test_prices_have_a_source_with_a_date(machine: str, price: float) -> None:
    assert preset(machine).system["costs"]["price-per-hour"] == pytest.approx(price)
    assert "2026-0" in entry(machine).sources["price-per-hour"]


def test_a_given_price_replaces_that_of_a_machine_and_its_source() -> None:
    assert price_source("b300-dgx:8,price=5") == "5 USD, as given"
    assert price_source("gb300-nvl72:72") is None
    with pytest.raises(UsageError, match="'cheap' is not a price"):
        preset("b300-dgx:8,price=cheap")


@pytest.mark.deep
def test_the_best_plan_is_simulated_on_each_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    monkeypatch.chdir(tmp_path)
    Path("small.json").write_text(json.dumps(MODEL))
    machines = ["h100-dgx:2", "b300-dgx:2,price=5", "gb300-nvl72:2"]
    words = ["search", "--model", "small.json", "--global-batch", "2", "--budget", "1", "--out", "out"]
    assert main([*words, "--machine", ",".join(machines), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["machine"] for row in found["machines"]] == machines
    assert found["machines"][0]["makespan_ns"] == found["best"][0]["makespan_ns"]
    best = found["best"][0]
    plan = [f"--{axis}={best[axis]}" for axis in ("tp", "pp", "dp", "batch", "zero", "recompute")]
    plan += ["--sequence-parallel"] * best["sequence-parallel"]
    make = ["make", "llm", "--model", "small.json", "--global-batch", "2", "--machine", machines[1]]
    assert main([*make, *plan, "-o", "job"]) == 0
    capsys.readouterr()
    run = et_sim.simulate("job.workload.json", machine=machines[1])
    other = found["machines"][1]
    assert other["makespan_ns"] == run.makespan_ns
    hours = run.makespan_ns / 3600e9
    assert other["price_per_million_tokens"] == pytest.approx(2 * 5 * hours / (2 * 64) * 1e6)
    assert main([*words, "--machine", ",".join(machines)]) == 0
    printed = capsys.readouterr().out
    assert "the same plan on 3 machines" in printed
    assert "gb300-nvl72:2: not known; give it, as in gb300-nvl72:2,price=7.4" in printed
