"""Training steps of a table, as they are predicted on a machine.

A step keeps its plan on a machine that differs from its own, but for the fields that a machine decides. Then
remarks state that, and the plan must fit the memory there; on its own machine, the measured step has fitted.
"""

from __future__ import annotations

from functools import cache

from msgspec import structs
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError
from et_sim.machine.presets import Preset, preset
from et_sim.validation.networks import node_of
from et_sim.validation.row import Row, TrainingStep
from et_sim.workloads.training.value_types import check_peaks, fields_of_machine


def on_machine(row: Row, name: str, own: str | None) -> Row:
    """Return the row of a step for a machine by name; `own` is the machine of its hardware, if known."""
    job = row.job
    if not isinstance(job, TrainingStep):
        return row
    try:
        machine = _preset(name)
        node = node_of(name, job.plan.ranks) if job.plan.expert > 1 else job.plan.node_ranks
        decided = fields_of_machine(node, machine.peaks, {"value_bytes": job.plan.value_bytes})
        plan = replace(job.plan, **decided)
        check_peaks(plan.values, plan.cast_to, machine.peaks, name)
    except EtSimError as error:
        return structs.replace(row, job=None, why=str(error))
    is_kept = own is not None and _differs(machine, own)
    remarks = [f"bf16, which {name} lacks: values are {plan.value_type}"] if plan.value_type else []
    if is_kept:
        remarks.append(f"a plan for {name}: that of {row.hardware} is kept")
    if is_kept and job.power:
        remarks.append(f"the limit of {job.power}, which is that of {row.hardware}")
    adapted = structs.replace(job, plan=plan, is_kept=is_kept, power="" if is_kept else job.power)
    return structs.replace(row, job=adapted, remarks=(*row.remarks, *remarks))


def _differs(machine: Preset, own: str) -> bool:
    """Check whether machines differ in their devices, or in the number of them on a node.

    A calibrated file of a machine has its device.
    """
    try:
        return _traits(machine) != _traits(_preset(own))
    except EtSimError:  # a name that is not known
        return True


def _traits(machine: Preset) -> tuple[str, int]:
    return machine.system["accuracy"]["device"], machine.node


_preset = cache(preset)
