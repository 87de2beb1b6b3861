"""Ends of commands: the exit status, the last words, and the state of the process."""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import Any

import pytest

from et_sim import cli
from et_sim.basics.errors import EtSimError
from et_sim.cli.progress import UnreadError

ENDS = [
    (EtSimError("no such key"), 2, "et-sim: error: no such key\n"),
    (KeyboardInterrupt(), 130, "et-sim: interrupted\n"),
    (MemoryError(), 2, "et-sim: error: this needs more memory than there is\n"),
    (
        MemoryError("Unable to allocate 9 GiB for an array with shape (9,)"),
        2,
        "et-sim: error: this needs more memory than there is (Unable to allocate 9 GiB)\n",
    ),
    (OSError(28, "No space left on device"), 2, "et-sim: error: [Errno 28] No space left on device\n"),
]


def _ended(monkeypatch: pytest.MonkeyPatch, how: BaseException) -> int:
    def carry_out(_: Any) -> int:
        raise how

    monkeypatch.setattr(cli, "carry_out", carry_out)
    return cli.main(["doctor"])


@pytest.mark.parametrize(("how", "status", "text"), ENDS)
def test_a_failure_has_its_status_and_one_line(
    how: BaseException,
    status: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _ended(monkeypatch, how) == status
    assert capsys.readouterr() == ("", text)


def test_a_mistake_of_the_simulator_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        _ended(monkeypatch, ZeroDivisionError())


@pytest.mark.parametrize("status", [0, 1])
def test_the_status_is_the_command_s(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "carry_out", lambda _: status)
    monkeypatch.setattr(sys, "argv", ["et-sim", "doctor"])
    assert cli.main() == status


def test_a_command_whose_reader_is_gone_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    for how, status in ((BrokenPipeError(), 0), (UnreadError(1), 1)):
        error = io.StringIO()
        monkeypatch.setattr(sys, "stderr", error)
        assert _ended(monkeypatch, how) == status
        assert error.closed


def test_a_command_collects_garbage_rarely_and_leaves_the_process_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    during: list[Any] = []
    before = gc.get_threshold()
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setattr(
        cli,
        "carry_out",
        lambda _: during.extend([gc.get_threshold(), os.environ["OPENBLAS_NUM_THREADS"]]) or 0,
    )
    try:
        gc.set_threshold(20_001, 11, 12)
        cli.main(["doctor"])
        after = gc.get_threshold()
    finally:
        gc.set_threshold(*before)
    assert during == [(500_000, 11, 12), "1"]
    assert after == (20_001, 11, 12)
    assert gc.get_freeze_count() == 0


def test_characters_that_a_terminal_lacks_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(cli, "carry_out", lambda _: sys.stdout.write("µ\n") - 2)
    assert cli.main(["doctor"]) == 0
    output.seek(0)
    assert output.read() == "?\n"
