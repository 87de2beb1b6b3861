"""`et-sim plan`: the needs of a job as text and as data, and whether it fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import et_sim
from et_sim.cli import main
from et_sim.cli.show import IDEAL_NETWORK, IDEAL_SYSTEM
from et_sim.machine.presets import preset

SMALL = ["--layers", "4", "--hidden", "256", "--sequence", "128", "--vocabulary", "1024"]


def test_figures_are_the_same_in_words_and_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", *SMALL, "--tp", "2", "--pp", "2", "--dp", "2", "--zero", "1"]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ranks"], document["templates"], len(document["stages"])) == (8, 2, 2)
    for stage in document["stages"]:
        memory = stage["memory_bytes"]
        assert memory["total"] == sum(size for name, size in memory.items() if name != "total")
        assert stage["compute_ns"] == pytest.approx(document["ideal_ns"] * (1 - stage["bubble"]), rel=1e-4)
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert f"{document['weights']:,} weights" in text
    assert "tensor 2 x data 2 x pipeline 2: 8 ranks, 2 templates" in text


@pytest.mark.deep
def test_a_plan_that_does_not_fit_suggests_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["plan", "--model", "llama3-70b", "--tp", "8"]
    assert main([*plan, "--capacity", "80GiB"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("too large    stage 0 needs ")
    assert "the largest part is optimizer: try zero 1" in last
    assert main([*plan, "--zero", "1", "--dp", "2", "--recompute", "full", "--capacity", "20GiB"]) == 1
    assert "the largest part is optimizer: try more ranks" in capsys.readouterr().out
    assert (
        main([*plan, "--pp", "8", "--sequence-parallel", "--recompute", "full", "--capacity", "80GiB"]) == 0
    )
    assert capsys.readouterr().out.splitlines()[-1].startswith("fits ")


@pytest.mark.parametrize("machine", ["h100-dgx", "a100-dgx-80gb"])
@pytest.mark.parametrize(("plan", "most"), [([], 1), (["--pp", "2", "--micro-batches", "4"], 1.01)])
def test_a_machine_times_the_plan_as_it_times_the_run(
    machine: str, plan: list[str], most: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ["--model", "gpt2", *plan]
    assert main(["plan", *job, "--machine", machine, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(["make", "llm", *job, "-o", str(tmp_path / "job")]) == 0
    free = {**IDEAL_NETWORK, "npus_count": [document["ranks"]]}
    system = preset(machine).system | {name: IDEAL_SYSTEM[name] for name in IDEAL_SYSTEM if "impl" in name}
    result = et_sim.simulate(tmp_path / "job.workload.json", system=system, network=free)
    assert document["ideal_ns"] <= result.makespan_ns <= document["ideal_ns"] * most
    at_most, done = document["throughput_at_most"], result.summary()["throughput"]
    assert done["mfu"] <= at_most["mfu"] <= done["mfu"] * most
    assert main(["plan", *job, "--machine", machine]) == 0
    out = capsys.readouterr().out
    assert f"as {machine} times kernels" in out
    assert f"at most MFU {100 * at_most['mfu']:.1f} %" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "lama3-8b"], "there is no model 'lama3-8b' (did you mean 'llama3-8b'?)"),
        (["--model", "llama3-8b", "--hidden", "64"], "--hidden conflicts with --model llama3-8b"),
        (
            ["--model", "llama3-8b", "--tp", "3"],
            "heads: 32 is not a multiple of 3, the number of tensor-parallel ranks",
        ),
        (["--layers", "1000000000"], "1,000,000,000 layers are more than 20,000,000 nodes"),
        (["--layers", "0"], "--layers is 0 (give 1 or more)"),
        (["--capacity", "0"], "--capacity is 0"),
        (
            ["--model", "mixtral-8x7b", "--dp", "16", "--ep", "16"],
            "experts: 8 is not a multiple of 16",
        ),
        (["--tp", "0"], "--tp is 0 (give 1 or more)"),
        (["--zero", "4"], "error: --zero is 4: more than 3 (allowed: 0, 1, 2 or 3)"),
        (["--sequence-parallel"], "--sequence-parallel requires --tp, 2 or more (give --tp, 2 or more, or"),
        (["--zero=3", "--recompute=full", "--recompute-layers=uniform:2"], "or give --zero 0, 1 or 2)"),
        (
            ["--tp=2", "--sequence-parallel", "--tensor-overlap=2", "--no-overlap-tensor"],
            "leave --no-overlap-tensor out",
        ),
        (["--dp=2", "--prefetch=2"], "--prefetch has no effect: every rank has whole weights of its layers"),
        (["--dp=2", "--context-balance=none"], "--context-balance has no effect: every rank has whole"),
        (["--model=gpt2", "--unfused-routing"], "--unfused-routing has no effect: the model has no"),
        (["--tflops=9", "--machine=h100-dgx"], "--tflops has no effect with --machine, which times kernels"),
        (
            ["--model=mixtral-8x7b", "--dp=2", "--ep=2", "--node-ranks=4"],
            "--node-ranks has no effect: nodes matter only to tokens that are sent to experts",
        ),
        (["--hidden", "100", "--heads", "3"], "--hidden is 100, not a multiple of the 3 heads"),
    ],
)
def test_plans_that_cannot_be_are_refused_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sentence in captured.err
    assert captured.err.count("\n") == 1


def test_a_word_that_a_key_of_the_plan_does_not_allow_is_refused_by_its_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "--schedule", "1f2b"]) == 2
    assert "there is no --schedule '1f2b' (did you mean '1f1b'?" in capsys.readouterr().err


def test_layers_of_stages_that_are_no_numbers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--pp", "2", "--stage-layers", "x,y"]) == 2
    assert "--stage-layers: 'x,y' (give whole numbers, as in 7,8,8,7)" in capsys.readouterr().err


@pytest.mark.deep
def test_a_machine_by_name_gives_the_capacity_and_the_number_of_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = ["plan", *SMALL, "--tp", "2", "--dp", "4", "--json"]
    assert main([*plan, "--machine", "h100-dgx:8"]) == 0
    assert json.loads(capsys.readouterr().out)["capacity_bytes"] == (81_559 - 3_976) << 20
    large = ["plan", "--model", "llama3-70b", "--tp", "8", "--machine", "h100-dgx"]
    assert main(large) == 1
    printed = capsys.readouterr().out
    assert "of 75.76 GiB" in printed
    assert "; the largest part is optimizer" in printed
    assert main([*plan, "--machine", "h100-dgx:16"]) == 2
    assert "has 16 NPUs, and the plan (tensor 2 x data 4) makes 8 ranks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "unit", "amount", "weights", "kinds"),
    [
        (["cnn", "--model", "resnet50", "--batch", "4"], "images", 16, 25_557_032, {"all-reduce"}),
        (["dlrm", "--batch", "8"], "samples", 32, 53_311_553, {"all-reduce", "all-to-all"}),
    ],
)
def test_replicas_are_planned_as_they_are_made(
    kind: list[str], unit: str, amount: int, weights: int, kinds: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *kind, "--dp", "4", "--zero", "0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (stage,) = document["stages"]
    assert (document["ranks"], document["actors"], document[unit], document["weights"]) == (
        4,
        1,
        amount,
        weights,
    )
    memory = stage["memory_bytes"]
    assert [memory[name] // weights for name in ("weights", "gradients", "optimizer")] == [2, 4, 12]
    assert {entry["kind"] for entry in stage["traffic"]} == kinds
    reduced = [entry["bytes"] for entry in stage["traffic"] if entry["kind"] == "all-reduce"]
    assert reduced == [2 * weights]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["cn"], "there is nothing called 'cn' to plan (did you mean 'cnn'?)"),
        (["cnn"], "cnn needs a model"),
        (["cnn", "--model", "resnet50", "--tp", "2"], "--tp is not for cnn"),
        (["--tables", "3"], "--tables is not for llm"),
        (["--machine", "h100"], "machine 'h100' is not known"),
    ],
)
def test_impossible_plans_are_refused(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_workspace_is_a_share_that_is_shown_or_listed_as_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", *SMALL]) == 0
    assert "workspace and fragmentation, unless" in " ".join(capsys.readouterr().out.split())
    assert main(["plan", *SMALL, "--workspace", "10%", "--json"]) == 0
    memory = json.loads(capsys.readouterr().out)["stages"][0]["memory_bytes"]
    assert memory["workspace"] == pytest.approx(memory["total"] / 11, abs=1)
    assert main(["plan", *SMALL, "--workspace", "10%"]) == 0
    assert "10% of workspace and fragmentation as assumed" in " ".join(capsys.readouterr().out.split())
