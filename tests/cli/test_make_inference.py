"""`et-sim make prefill` and `make decode`: files written, and refusals in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from et_sim.cli import main


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_steps_of_decode_are_passes_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    model = ["make", "decode", "--model", "gpt2", "--layers", "2"]
    assert main([*model, "--context", "10,20", "--batch", "3", "--steps", "4", "-o", "d", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tokens"] == [6] * 4
    assert document["ranks"] == 1
    assert Path(document["manifest"]).is_file()


def test_a_prefill_is_a_pass_over_all_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["make", "prefill", "--model", "gpt2", "--tp", "2", "--dp", "2", "--prompt", "10,20", "-o", "p"])
        == 0
    )
    assert capsys.readouterr().out.startswith("gpt2, tensor 2 x data 2, 2 prompts of 30 tokens: ")


def test_a_prefill_with_images_has_their_tokens_in_its_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["make", "prefill", "--model", "gemma3-4b", "--prompt", "10,20", "--batch", "2", "-o", "p"]
    assert main([*words, "--image-tokens", "256"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("gemma3-4b, one rank, 4 prompts of 1,084 tokens, with 1,024 tokens of images: ")
    assert main([*words, "--image-tokens", "100"]) == 2
    assert "an image of the vision tower of gemma3-4b has 256 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("llm --model llama3-8b --prompt 3", "--prompt is not for llm (only prefill has it)"),
        ("all_reduce --ranks 2 --bytes 3 --steps 3", "--steps is not for all_reduce (only decode has it)"),
        ("prefill --model llama3-8b", "prefill needs --prompt (add it, as in --prompt 2048)"),
        ("prefill --model llama3-8b --prompt 3 --context 3", "--context is not for prefill"),
        ("decode --model llama3-8b", "decode needs --context"),
        (
            "decode --model gemma3-4b --context 8 --image-tokens 256",
            "--image-tokens is not for decode (only prefill",
        ),
        ("prefill --model llama3-8b --prompt 8 --image-tokens 256", 'llama3-8b has no "vision_config"'),
        ("prefill --prompt 3", "inference needs a model"),
        ("prefill --model lama3-8b --prompt 3", "did you mean 'llama3-8b'?"),
        ("prefill --model llama3-8b --prompt 0", "--prompt has the length 0 (give tokens from 1 up)"),
        ("decode --model llama3-8b --context 8192", "a sequence of 8,193 tokens is longer than the 8,192"),
        ("decode --model llama3-8b --context 8 --steps 0", "--steps is 0"),
        ("decode --model llama3-8b --context 8 --zero 1", "--zero is not for inference"),
        ("decode --model bert-base --context 8", "bert-base is an encoder"),
        (
            "decode --model llama3-8b --tp 3 --context 8",
            "heads: 32 is not a multiple of 3, the number of tensor-parallel ranks",
        ),
        ("decode --model llama3-8b --tp 2 --ranks 4 --context 8", "--ranks is 4"),
    ],
)
def test_contradictory_options_are_refused(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["make", *words.split(), "-o", "x"]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not list(Path().iterdir())


def test_a_decode_has_at_most_the_stated_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("et_sim.cli.jobs.MOST_STEPS", 3)
    words = ["make", "decode", "--model", "gpt2", "--layers", "1", "--context", "9", "-o", "d"]
    assert main([*words, "--steps", "3"]) == 0
    assert main([*words, "--steps", "4"]) == 2
    assert "--steps is 4 (give a number from 1 to 3)" in capsys.readouterr().err
