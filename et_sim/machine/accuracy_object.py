"""Reading the object `accuracy` of the system file.

Not here: its keys (`accuracy_tables`), and what is known where a file says nothing (`accuracy`).
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from et_sim.errors import MachineError
from et_sim.machine.accuracy import DEFAULTS, DEVICE, FAMILY, Accuracy
from et_sim.machine.accuracy_tables import ACCURACY_KEYS, NAME, TERM_KEYS
from et_sim.machine.checks import nearest, read_keys, refusal
from et_sim.machine.keys import Remarks
from et_sim.machine.sources import Source
from et_sim.uncertainty import Term


def read_accuracy(given: dict[str, Any], place: str, remarks: Remarks) -> Accuracy | None:
    """The object `accuracy`; None where there is none."""
    if NAME not in given:
        return None
    place = f'{place}: "{NAME}"'
    terms, device = dict(DEFAULTS), ""
    for name, value in given[NAME].items():
        if name == DEVICE:
            device = read_keys(Source(place, {name: value}, ""), ACCURACY_KEYS, remarks)[name]
            continue
        if name not in DEFAULTS and name not in FAMILY:
            known = (DEVICE, *DEFAULTS, *FAMILY)
            remedy = nearest(name, known) or f"known keys: {', '.join(known)}"
            raise MachineError(f'key "{name}" is not known', place=place, remedy=remedy)
        if not isinstance(value, dict):
            raise refusal(replace(ACCURACY_KEYS[-1], name=name), value, place)
        read = read_keys(Source(f'{place}: "{name}"', value, ""), TERM_KEYS, remarks)
        usual = DEFAULTS[name if name in DEFAULTS else FAMILY[name]]
        terms[name] = Term(**{**usual.as_dict(), **read})
    return Accuracy(device, MappingProxyType(terms))
