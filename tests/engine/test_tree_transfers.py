"""Transfers of a tree, by hand: their bytes and reductions, and those that return over a bus."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from et_sim.engine.collectives import trees
from et_sim.engine.collectives.trees import FROM_LEFT, FROM_RIGHT, TO_LEFT, TO_RIGHT
from et_sim.engine.state.run import NONE

MEMBER, LEFT, RIGHT, PARENT = range(4)


def place(left: int = NONE, right: int = NONE, parent: int = NONE, size: int = 0) -> Any:
    return SimpleNamespace(
        left=left,
        right=right,
        parent=parent,
        up_bytes=size,
        up_reduction_ns=size + 1,
        down_bytes=size + 2,
        down_reduction_ns=size + 3,
    )


def crossed(
    monkeypatch: pytest.MonkeyPatch, member: Any, step_key: int, received: int, *, goes_down: bool
) -> tuple[int, int, bool]:
    """Return (bytes, reduction, whether it goes back) of the transfer that a message leads to."""
    seen: list[tuple[int, int, bool]] = []

    def cross_endpoint(
        _run: Any, _row: int, key: int, size: int, reduction: int, inward: bool, back: Any
    ) -> None:
        assert (key, inward) == (step_key, False)
        seen.append((size, reduction, bool(back)))

    monkeypatch.setattr(trees, "cross_endpoint", cross_endpoint)
    run: Any = SimpleNamespace(
        chunks=[SimpleNamespace(credit=1 << step_key, position=MEMBER, received=received, program=0)],
        visits=[SimpleNamespace(tree_or_rank=MEMBER)],
        plan=SimpleNamespace(
            trees=[member, place(size=100), place(size=200), place(size=300)],
            programs=[SimpleNamespace(goes_down=int(goes_down))],
        ),
    )
    trees.receive_in_tree(run, 0, step_key)
    assert run.chunks[0].credit == 0  # the receive is no longer posted
    return seen[0]


@pytest.mark.parametrize("goes_down", [True, False])
@pytest.mark.parametrize("parent", [PARENT, NONE])
def test_the_last_message_of_a_child_goes_back_if_the_member_passes_anything_on(
    monkeypatch: pytest.MonkeyPatch, parent: int, goes_down: bool
) -> None:
    both, one = place(LEFT, RIGHT, parent), place(LEFT, NONE, parent)
    goes_on = parent != NONE or goes_down
    for member, key, received, size, back in (
        (both, FROM_LEFT, 1, 100, False),
        (both, FROM_RIGHT, 1, 200, False),
        (both, FROM_LEFT, 2, 100, goes_on),
        (both, FROM_RIGHT, 2, 200, goes_on),
        (one, FROM_LEFT, 1, 100, goes_on),
    ):
        found = crossed(monkeypatch, member, key, received, goes_down=goes_down)
        assert found == (size, size + 1, back)


@pytest.mark.parametrize("key", [TO_LEFT, TO_RIGHT])
def test_a_message_of_the_parent_goes_back_if_there_are_children(
    monkeypatch: pytest.MonkeyPatch, key: int
) -> None:
    for left in (LEFT, NONE):
        member = place(left, NONE, PARENT, size=7)
        assert crossed(monkeypatch, member, key, 1, goes_down=True) == (9, 10, left != NONE)
