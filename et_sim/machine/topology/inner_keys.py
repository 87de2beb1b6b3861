"""One key of a network file that holds keys of its own: their checked values, and where they stand.

Not here: which keys these are (`protocol_tables`, `credit_tables`), and what they mean together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from et_sim.machine.checks import check, check_names
from et_sim.machine.keys import Key, Remarks
from et_sim.machine.sources import Source
from et_sim.machine.topology.fields import line_of


def read_inner(source: Source, key: Key, inner: tuple[Key, ...], remarks: Remarks) -> dict[str, Any] | None:
    """The values below a key by their names; None: the source does not have it."""
    if key.name not in source.content:
        return None
    given: dict[str, Any] = check(key, source.content[key.name], place_of(source, key), remarks)
    keys = {one.name: one for one in inner}
    values = {}
    for name, value in given.items():
        place = place_of(source, key, name)
        check_names(Source(place, {name: value}, ""), inner, remarks)
        if name in keys:
            values[name] = check(keys[name], value, place, remarks)
    return values


def place_of(source: Source, key: Key, name: str = "") -> str:
    """Where a key, or one below it, stands."""
    if source.place.startswith("<"):
        return f'{source.place}: "{key.name}"'
    text = Path(source.place).read_text(encoding="utf-8-sig")
    return f"{source.place}: line {line_of(text, (key.name, name))}"
