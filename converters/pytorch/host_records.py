"""Communications that the execution trace describes, row by row.

Not here: how arguments are understood (`communication`), and which node carries them (`collectives`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from converters.pytorch.columns import ABSENT, HostTrace, NodeSort, Tensors
from converters.pytorch.communication import Communication, Values, from_operator, from_record


@dataclass(frozen=True, slots=True)
class HostRecords:
    """Reads the communication out of rows of an execution trace."""

    host: HostTrace

    def of(self, row: int) -> Communication | None:
        """What a row of sort COMMUNICATION or C10D transfers; None if it transfers nothing, or is another."""
        sort = int(self.host.sort[row])
        if sort == NodeSort.COMMUNICATION:
            return from_record(self._values(row), self._attributes(row))
        if sort == NodeSort.C10D:
            return from_operator(self.host.names[self.host.name[row]], self._values(row))
        return None

    def is_on_host(self, row: int) -> bool:
        """Whether the tensors of a row are in the host's memory."""
        tensors = self.host.inputs
        low, high = tensors.start[row], tensors.start[row + 1]
        devices = {self.host.texts[text] for text in tensors.device[low:high].tolist() if text != ABSENT}
        return devices == {b"cpu"}

    def _values(self, row: int) -> Values:
        host = self.host
        values = self._json(int(host.input_values[row]))
        types = self._json(int(host.input_types[row]))
        return Values(values, types, bytes_by_argument(host.inputs, row), _total(host.outputs, row))

    def _attributes(self, row: int) -> dict[str, Any]:
        text = int(self.host.attributes[row])
        found = json.loads(self.host.texts[text]) if text != ABSENT else {}
        return found if isinstance(found, dict) else {}

    def _json(self, text: int) -> list[Any]:
        found = json.loads(self.host.texts[text]) if text != ABSENT else []
        return found if isinstance(found, list) else []


def bytes_by_argument(tensors: Tensors, row: int) -> dict[int, int]:
    """Bytes of the tensors of each argument of a row."""
    found: dict[int, int] = {}
    for at in range(int(tensors.start[row]), int(tensors.start[row + 1])):
        argument = int(tensors.argument[at])
        found[argument] = found.get(argument, 0) + int(tensors.elements[at]) * int(tensors.element_bytes[at])
    return found


def _total(tensors: Tensors, row: int) -> int:
    return sum(bytes_by_argument(tensors, row).values())
