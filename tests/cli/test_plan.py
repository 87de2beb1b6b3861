"""`et-sim plan`: what a job needs, in words and as data; and whether it fits."""

from __future__ import annotations

import json

import pytest

from et_sim.cli import main

SMALL = ["--layers", "4", "--hidden", "256", "--sequence", "128", "--vocabulary", "1024"]


def test_figures_are_the_same_in_words_and_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", *SMALL, "--tp", "2", "--pp", "2", "--dp", "2", "--zero", "1"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ranks"], found["templates"], len(found["stages"])) == (8, 2, 2)
    for stage in found["stages"]:
        memory = stage["memory_bytes"]
        assert memory["total"] == sum(size for name, size in memory.items() if name != "total")
        assert stage["compute_ns"] == pytest.approx(found["ideal_ns"] * (1 - stage["bubble"]), rel=1e-4)
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert f"{found['weights']:,} weights" in text
    assert "tensor 2 x data 2 x pipeline 2: 8 ranks, 2 templates" in text


def test_a_plan_that_does_not_fit_says_what_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["plan", "--model", "llama3-70b", "--tp", "8"]
    assert main([*plan, "--capacity", "80GiB"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("too large    stage 0 needs ")
    assert "most of it is optimizer: try zero 1" in last
    assert (
        main([*plan, "--pp", "8", "--sequence-parallel", "--recompute", "full", "--capacity", "80GiB"]) == 0
    )
    assert capsys.readouterr().out.splitlines()[-1].startswith("fits ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "lama3-8b"], "there is no model 'lama3-8b' (did you mean 'llama3-8b'?)"),
        (["--model", "llama3-8b", "--hidden", "64"], "--hidden is given, and --model llama3-8b has its own"),
        (["--model", "llama3-8b", "--tp", "3"], "heads: 32, which 3 tensor-parallel ranks do not divide"),
        (["--layers", "1000000000"], "1,000,000,000 layers are more than 20,000,000 nodes"),
        (["--layers", "0"], "--layers is 0 (give a number from 1 up)"),
        (["--capacity", "0"], "--capacity is 0"),
        (
            ["--model", "mixtral-8x7b", "--dp", "16", "--ep", "16"],
            "experts: 8, which 16",
        ),
        (["--schedule", "1f2b"], "schedule is '1f2b' (did you mean '1f1b'?)"),
        (["--hidden", "100", "--heads", "3"], "a width of 100 is not divided by 3 heads"),
    ],
)
def test_plans_that_cannot_be_are_refused_in_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_layers_of_stages_that_are_no_numbers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--pp", "2", "--stage-layers", "x,y"])
    assert "--stage-layers: 'x,y' (give whole numbers, as in 7,8,8,7)" in capsys.readouterr().err
