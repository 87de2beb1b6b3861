"""The key `compute` of the system file: which model times which kernels.

A new model is a class whose fields are its keys, one entry in `MODELS`, and one class in
`et_sim.compute.registry`. Not here: whether operations and attributes exist that rules name
(`et_sim.compute`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from et_sim.documents.keys import Key, Kind, Remarks, Section, Slot, build, keys_of, nearest, read_keys, show
from et_sim.documents.kinds import OBJECT, TEXT
from et_sim.machine.compute_rules import ComputeRule, Recorded, Where
from et_sim.machine.operator_times import OperatorTimes
from et_sim.machine.roofline import RooflineDevice
from et_sim.machine.systolic import ClockedArray

NAME = "compute"
MODEL, WHERE, LABEL = "model", "where", "label"
MOST_RULES = 100
MODELS: Mapping[str, Any] = MappingProxyType(
    {"systolic": ClockedArray, "roofline": RooflineDevice, "table": OperatorTimes, "replay": Recorded}
)
RULE_KEYS = (
    Key(
        MODEL,
        TEXT,
        "What times the kernels: `roofline`, `systolic`, `table` or `replay`.",
        required=True,
    ),
    Key(
        WHERE,
        OBJECT,
        "Which kernels: all that is given must hold. Without the key: all that no rule before has.",
        of=Where,
    ),
    Key(LABEL, TEXT, "What the timeline calls the rule in `timed_by`. Without the key: the model."),
)


def _rules(slot: Slot, value: Any) -> tuple[ComputeRule, ...]:
    """A single model is one rule."""
    section = slot.section
    entries = [value] if isinstance(value, dict) else value
    if not isinstance(entries, list) or not entries or not all(isinstance(rule, dict) for rule in entries):
        raise slot.refusal(value)
    if len(entries) > MOST_RULES:
        raise section.fault(f'key "{NAME}" has {len(entries)} rules', f"allowed: at most {MOST_RULES}")
    return tuple(
        _rule(section.entry(NAME, rule, None if len(entries) == 1 else index), slot.remarks)
        for index, rule in enumerate(entries)
    )


def _rule(section: Section, remarks: Remarks) -> ComputeRule:
    """A rule's own keys, and those of its model beside them."""
    model = section.content.get(MODEL)
    if isinstance(model, str) and model not in MODELS:
        remedy = f"{nearest(model, tuple(MODELS))} allowed: {', '.join(MODELS)}".strip()
        raise section.fault(f'key "{MODEL}" is {show(model)}', remedy)
    settings = MODELS[model] if isinstance(model, str) else Recorded
    given = read_keys(section, (*RULE_KEYS, *keys_of(settings)), remarks)
    built = build(settings, given, section, remarks)
    return ComputeRule(built, given.get(LABEL, given[MODEL]), given.get(WHERE), section.place)


COMPUTE = Kind(
    "object, or list of objects",
    lambda _: "an object that names a model, or a list of such objects",
    _rules,
)
