"""Every table of random runs is as kept, and every key of a machine is given in one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from random_keys import KEYED
from random_runs import RANDOM
from random_shown import FILES, IN_TURN, IS_CHANGED, check
from random_special import SPECIAL
from random_values import KEYS

from et_sim import execution
from et_sim.basics.errors import EtSimError
from et_sim.documents.keys import Slot

OF_TABLES = [
    (name, kind)
    for name, kinds in (("tables", RANDOM), ("keys", KEYED), ("special", SPECIAL))
    for kind in kinds
]
# It has no allowed value: it belongs to networks of dimensions.
NEVER_GIVEN = {"entry of in-network of a graph: dimension"}


def test_tables_of_random_runs_are_as_kept() -> None:
    for name, kind in OF_TABLES if IS_CHANGED else OF_TABLES[::4]:
        check(name, kind, 1)


@IN_TURN
@pytest.mark.parametrize(("name", "kind"), OF_TABLES)
def test_tables_of_many_random_runs_are_as_kept(name: str, kind: str, day: int) -> None:
    check(name, kind, day=day)


class ReadError(Exception):
    """The end of a run before its simulation."""


@pytest.mark.deep
def test_every_key_of_a_machine_is_given_in_a_kept_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    read, of_run = set[tuple[str, str]](), set[tuple[str, str]]()
    of_slot, prepare = Slot.kind_value, execution.prepare

    def noted(self: Slot, value: Any) -> Any:
        of_run.add((self.key.name, self.key.meaning))
        return of_slot(self, value)

    def begin(*given: Any, **more: Any) -> Any:
        of_run.clear()  # keys that were refused
        return prepare(*given, **more)

    def end(*_: Any, **__: Any) -> Any:
        read.update(of_run)
        raise ReadError

    monkeypatch.setattr(Slot, "kind_value", noted)
    monkeypatch.setattr(execution, "prepare", begin)
    monkeypatch.setattr(execution, "carry_out", end)
    missing = {
        (key.name, key.meaning): f"{of}: {key.name}"
        for of, keys in KEYS.items()
        for key in keys
        if not key.ignored and f"{of}: {key.name}" not in NEVER_GIVEN
    }
    for seed in range(max(max(file.counts.values()) for file in FILES.values())):
        for name, kind in OF_TABLES:
            if seed < FILES[name].counts[kind] and not missing.keys() <= read:
                with pytest.raises((ReadError, EtSimError)):
                    (RANDOM | KEYED | SPECIAL)[kind](seed).run()
    assert sorted(key for of, key in missing.items() if of not in read) == []
