"""Every view of random runs is as kept, of the whole run and of a part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_runs import RANDOM
from random_shown import IN_TURN, IS_CHANGED, OF_TEXTS, check, steady

from et_sim.views.drawing import bars

KINDS = [*RANDOM] if IS_CHANGED else ["late"]


def test_views_of_random_runs_are_as_kept() -> None:
    for kind in KINDS:
        check("views", kind, 1)


@IN_TURN
@pytest.mark.parametrize("kind", RANDOM)
def test_views_of_more_random_runs_are_as_kept(kind: str, day: int) -> None:
    check("views", kind, day=day)


def test_texts_of_runs_of_every_key_are_as_kept() -> None:
    for kind in OF_TEXTS if IS_CHANGED else ("settings", "exchanges"):
        check("texts", kind, 1)


@IN_TURN
@pytest.mark.parametrize("kind", OF_TEXTS)
def test_texts_of_more_runs_of_every_key_are_as_kept(kind: str, day: int) -> None:
    check("texts", kind, day=day)


def test_digests_have_nothing_that_differs_between_computers(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(version: str, value: float, level: int, colour: int) -> Any:
        compress = bars.zlib.compress
        with monkeypatch.context() as patch:
            patch.setattr(bars.zlib, "compress", lambda content, _: compress(content, level))
            content = bars._png(np.full((3, 4, 3), colour, np.uint8))
        picture = f"data:image/png;base64,{bars.base64.b64encode(content).decode()}"
        page = f"<dt>et-sim</dt><dd>{version}</dd> written by et-sim {version}, {value!r} {picture}"
        return steady({"et_sim": version, "files": [{"sha256": repr(value)}], "time": (value,), "page": page})

    assert of("0.1.0", 0.1 + 0.2, 9, 1) == of("0.2.0", 0.3, 1, 1)
    assert of("0.1.0", 0.3, 9, 1) != of("0.1.0", 0.30001, 9, 1)
    assert of("0.1.0", 0.3, 9, 1) != of("0.1.0", 0.3, 9, 2)
