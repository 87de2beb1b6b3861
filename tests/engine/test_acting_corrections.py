"""Corrections that may act are found without a simulation: every correction that acts is among them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from correction_examples import EXAMPLES, NEVER, Example

import et_sim
from et_sim.machine.corrections import Correction
from et_sim.plan.acting import CONDITIONS

HOUSE = Path(et_sim.__file__).parent
OF_TABLES_TOO = {Correction.ALL_QUEUES}  # whose cursors differ even where there is but one queue


def test_corrections_that_act_during_a_run_have_a_condition() -> None:
    sources = [*(HOUSE / "engine").rglob("*.py"), *(HOUSE / "network").rglob("*.py")]
    named = {name for path in sources for name in re.findall(r"\bCorrection\.([A-Z_]+)", path.read_text())}
    assert {Correction[name] for name in named} | OF_TABLES_TOO == set(CONDITIONS)


@pytest.mark.deep
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.correction.value)
def test_the_correction_of_every_example_is_found_to_act(example: Example) -> None:
    if example.correction is Correction.WHOLE_PATH:  # messages that take turns at ports go it, too
        example = replace(example, system={"corrections": {"port-bandwidth": False}})
    other_profile = example.result(corrected=False, other_profile=True).summary()["other_profile"]
    named = {correction["correction"]: correction for correction in other_profile["corrections"]}
    assert other_profile["measured"]
    if max(example.corrected) != max(example.reference):
        assert named[example.correction]["makespan_ns"] == max(example.corrected)
    if NEVER in example.reference:
        assert other_profile["status"] == "complete"
