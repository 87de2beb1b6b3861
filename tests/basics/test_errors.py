"""Messages quote at most one line of the input."""

from __future__ import annotations

import pytest

from et_sim.basics.errors import (
    LONGEST_SENTENCE,
    EtSimError,
    FieldError,
    InputError,
    OutOfMemoryError,
    StallError,
    UsageError,
    brief,
    did_you_mean,
    unreadable,
)


def test_a_long_word_is_cut_and_the_sentence_around_it_stays() -> None:
    text = str(EtSimError(f"key {'x' * 500_000} is not known", place="a.json", remedy="leave it out"))
    assert text.startswith("a.json: key xxx")
    assert text.endswith("xxx is not known (leave it out)")
    assert len(text) < 300


def test_a_long_sentence_is_cut_in_its_middle() -> None:
    result = brief("one two " * 100_000 + "end")
    assert len(result) <= LONGEST_SENTENCE
    assert result.endswith("end")


def test_fields_have_the_names_of_their_options_on_a_command_line() -> None:
    error = FieldError("`zero` is 4, and shards are 2", remedy="give `zero` or `micro_batches`")
    assert str(error) == "zero is 4, and shards are 2 (give zero or micro_batches)"
    named = error.with_names({"zero": "--zero"})
    assert str(named) == "--zero is 4, and shards are 2 (give --zero or micro_batches)"


def test_usual_sentences_stay_as_they_are() -> None:
    text = "rank 3 (x.3.et): node 7 sends to rank 9, and there are ranks 0 to 7"
    assert brief(text) == text


def test_nothing_is_near_to_a_word_without_end() -> None:
    assert did_you_mean("system" * 10_000, ["system"]) == ""


def test_the_beginning_of_a_name_means_that_name() -> None:
    assert did_you_mean("a100-dgx", ["h100-dgx", "a100-dgx-80gb"]) == "did you mean 'a100-dgx-80gb'?"
    assert did_you_mean("ri", ["ring", "direct"]) == "did you mean 'ring'?"
    assert did_you_mean("x", ["xylophone", "tree"]) == ""


def test_names_with_the_same_first_word_are_nearer_than_names_with_the_same_letters() -> None:
    names = ["a100-dgx-80gb", "a100-quad", "b200-dgx", "h100-dgx", "h20-node"]
    assert did_you_mean("a100-dgxx", names) == "did you mean 'a100-dgx-80gb'?"
    assert did_you_mean("a100-sxm", names) == "did you mean 'a100-quad'?"
    assert did_you_mean("b200-node", names) == "did you mean 'b200-dgx'?"
    assert did_you_mean("h10-dgx", names) == "did you mean 'h100-dgx'?"


def test_the_reason_of_an_unreadable_file_has_neither_number_nor_path() -> None:
    assert (
        unreadable(FileNotFoundError(2, "No such file or directory", "x.log")) == "No such file or directory"
    )
    assert unreadable(UnicodeDecodeError("utf-8", b"abc\xff", 3, 4, "x")) == "it is no UTF-8 text (byte 3)"
    assert unreadable(ValueError("line 3 is empty")) == "line 3 is empty"


@pytest.mark.parametrize(
    "kind", [EtSimError, UsageError, FieldError, InputError, StallError, OutOfMemoryError]
)
def test_every_error_has_its_cause_its_place_and_its_remedy(kind: type[EtSimError]) -> None:
    error = kind("no `rank` ends", place="a.et", remedy="add one")
    mark = "" if kind is FieldError else "`"
    assert (error.cause, error.place, error.remedy) == (f"no {mark}rank{mark} ends", "a.et", "add one")
    assert str(error) == f"a.et: no {mark}rank{mark} ends (add one)"
    assert [str(kind("ends")), str(kind("ends", place="a"))] == ["ends", "a: ends"]
    assert error.exit_status == (1 if kind in (StallError, OutOfMemoryError) else 2)


@pytest.mark.parametrize("kind", [StallError, OutOfMemoryError])
def test_an_incomplete_simulation_has_a_report(kind: type[StallError] | type[OutOfMemoryError]) -> None:
    assert [kind("ends").report, kind("ends", report="rank 0 waits").report] == ["", "rank 0 waits"]
