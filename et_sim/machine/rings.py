"""The key "rings" of the system file, where the network is known: whether its rings fit, and are used.

Not here: their form (`checks`), and what chunks make of them (`et_sim.plan.collective_lowering`).
"""

from __future__ import annotations

from et_sim.errors import MachineError
from et_sim.machine.keys import Remarks
from et_sim.machine.model import Implementations, LogicalGrid, System
from et_sim.units import plural

NAME = "rings"
TAKE_RINGS = ("ring", "doubleBinaryTree", "inNetwork")  # all or some collectives, or where nothing else can


def check_rings(system: System, grid: LogicalGrid, place: str, remarks: Remarks) -> None:
    """Refuse rings of other lengths than the dimensions', or that no collective takes."""
    if not system.rings:
        return
    if len(system.rings) != len(grid.dimensions):
        raise MachineError(
            f'key "{NAME}" has {plural(len(system.rings), "entry", "entries")}, and the network has '
            + plural(len(grid.dimensions), "dimension"),
            place=place,
            remedy="give one list of rings per dimension; an empty one leaves it at one ring",
        )
    for number, (rings, dimension) in enumerate(zip(system.rings, grid.dimensions, strict=True)):
        for ring in rings:
            if len(ring) != dimension.npus:
                raise MachineError(
                    f'key "{NAME}" index {number} has a ring of {len(ring)} NPUs, and the dimension has '
                    f"{dimension.npus}",
                    place=place,
                    remedy=f"name each from 0 to {dimension.npus - 1} once",
                )
        if rings and not _are_taken(system.implementations, number):
            raise MachineError(
                f'key "{NAME}" has rings for dimension {number}, where no collective takes a ring',
                place=place,
                remedy=f'give "ring" for it, or an empty list in "{NAME}"',
            )
    _remark_on_chunks(system, place, remarks)


def _are_taken(implementations: Implementations, number: int) -> bool:
    names = (getattr(implementations, field) for field in Implementations.__dataclass_fields__)
    return any(one is not None and len(one) > number and one[number] in TAKE_RINGS for one in names)


def _remark_on_chunks(system: System, place: str, remarks: Remarks) -> None:
    most = max(len(rings) for rings in system.rings)
    for key, chunks in (
        ("preferred-dataset-splits", system.splits),
        ("active-chunks-per-dimension", system.active_chunks),
    ):
        if chunks < most:
            text = f"so few chunks are on {chunks} of {most} rings at a time"
            remarks.warn(place, key, text)
