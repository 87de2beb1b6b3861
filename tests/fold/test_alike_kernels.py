"""Traces whose kernels take equal times are folded only if these are timed alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from et_sim.fold import shapes


def test_kernels_of_two_traces_are_alike_if_both_have_none_or_both_use_the_machine_equally(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def use(number: int) -> Any:
        return SimpleNamespace(number=number, is_same=lambda found: found.number == number)

    uses = [None, use(1), use(1), use(2)]
    monkeypatch.setattr(shapes, "_use", lambda _, template: uses[template])
    lowering: Any = None
    alike = [[shapes._use_the_same(lowering, one, two) for two in range(4)] for one in range(4)]
    no, yes = False, True
    assert alike == [[yes, no, no, no], [no, yes, yes, no], [no, yes, yes, no], [no, no, no, yes]]
