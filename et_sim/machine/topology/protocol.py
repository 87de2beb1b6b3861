"""The key `protocol` of the network file: what a transport adds to messages, by preset and single constants.

Not here: what that means for messages (`et_sim.network.flow`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from et_sim.errors import MachineError
from et_sim.machine.checks import check, check_names
from et_sim.machine.keys import Remarks
from et_sim.machine.model import Completion, Protocol
from et_sim.machine.protocol_tables import PRESETS, PROTOCOL_KEY, PROTOCOL_KEYS
from et_sim.machine.sources import Source
from et_sim.machine.topology.fields import line_of


def read_protocol(source: Source, remarks: Remarks) -> Protocol | None:
    """The one that the source describes, if any."""
    if PROTOCOL_KEY.name not in source.content:
        return None
    given: dict[str, Any] = check(PROTOCOL_KEY, source.content[PROTOCOL_KEY.name], _place(source), remarks)
    keys = {key.name: key for key in PROTOCOL_KEYS}
    values = {}
    for name, value in given.items():
        place = _place(source, name)
        check_names(Source(place, {name: value}, ""), PROTOCOL_KEYS, remarks)
        if name in keys:
            values[name.replace("-", "_")] = check(keys[name], value, place, remarks)
    preset = values.pop("preset", None)
    if preset is None and "payload" not in values:
        raise MachineError(
            'key "protocol" does not say how large packets are',
            place=_place(source),
            remedy=f"give a payload in bytes, or a preset: {', '.join(PRESETS)}",
        )
    if "completion" in values:
        values["completion"] = Completion(values["completion"])
    return replace(Protocol() if preset is None else PRESETS[preset], **values)


def _place(source: Source, key: str = "") -> str:
    """Where it stands."""
    if source.place.startswith("<"):
        return f'{source.place}: "{PROTOCOL_KEY.name}"'
    text = Path(source.place).read_text(encoding="utf-8-sig")
    return f"{source.place}: line {line_of(text, (PROTOCOL_KEY.name, key))}"
