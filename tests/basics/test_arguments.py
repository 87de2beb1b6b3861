"""Wrong command lines are refused with the nearest correct word."""

from __future__ import annotations

import pytest

from converters.cli import main as convert
from et_sim.cli import main as simulate


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("chekc x", "et-sim: error: there is no command 'chekc' (did you mean 'check'?; see et-sim --help)"),
        ("inspect r sumary", "there is no view 'sumary' (did you mean 'summary'?"),
        ("inspect r --top 3 sumary", "there is no view 'sumary' (did you mean 'summary'?"),
        ("inspect r ops --top 3 links", "'links' is one argument too many"),
        ("calibrate xyz", "there is no subject 'xyz' (there are kernels,"),
        ("inspect r zzz", "there is no view 'zzz' (there are summary, ranks,"),
        ("run x --sistem y --network z", "there is no option --sistem (did you mean '--system'?"),
        (
            "compare a b --tpo=3",
            "et-sim: error: there is no option --tpo (did you mean '--top'?; see et-sim compare --help)",
        ),
        ("compare a b c", "'c' is one argument too many (put a text with spaces in quotes"),
        ("run x --alone 9", "'9' is one argument too many (--alone has no value; see et-sim run --help)"),
        ("collective ring --type allreduce", "there is no --type 'allreduce' (did you mean 'all_reduce'?"),
        ("make all_reduce", "the following arguments are required: -o/--output (see et-sim make --help)"),
        (f"inspect r {'x' * 100_000}", "x" * 100),
    ],
)
def test_a_misspelt_word_is_answered_with_the_nearest(
    line: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(line.split()) == 2
    printed = capsys.readouterr().err
    assert answer in printed
    assert printed.count("\n") == 1
    assert len(printed) < 1000


def test_the_converter_answers_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(["unjsn", "x"]) == 2
    assert "there is no command 'unjsn' (did you mean 'unjson'?" in capsys.readouterr().err
