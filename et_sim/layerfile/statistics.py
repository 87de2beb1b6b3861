"""Statistics by layer: computation, communication, and waits of the loop.

A collective lasts from its issue until it is done, update time included. It is *exposed* while the loop waits
for it: all the time if it is blocking, else from the first check at which it is not done. When the last pass
has ended, the loop checks the first layer's weight gradients once more, and that wait counts until the first
of them is done. ASTRA-sim 1.0 counts like this.

Sentences list the collectives that a file names and its loop never issues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from et_sim.layerfile.layer_file import LayerFile, LayerPhase
from et_sim.layerfile.passes import END, FIRST, TICK_NS, LayerProgram

Work = tuple[int, LayerPhase]  # layer and phase
_MOST_NAMED = 3


def left_out(program: LayerProgram) -> list[str]:
    """Return sentences about collectives that a file names and a run does not have.

    Most loops issue none for the input gradient of the first layer, so these are not listed.
    """
    return [
        sentence
        for phase in LayerPhase
        for sentence in left_out_of(
            phase, program.layer_file, *used(program), 0 if phase == LayerPhase.INPUT_GRADIENT else -1
        )
    ]


def used(program: LayerProgram) -> tuple[set[Work], dict[Work, str]]:
    """Return the layers and phases whose collectives are issued, and the reasons for others."""
    issued = program.collectives
    sent = set(zip(issued.layer.tolist(), map(LayerPhase, issued.phase.tolist()), strict=True))
    return sent, {(layer, phase): why for layer, phase, why in program.skipped}


def left_out_of(
    phase: LayerPhase, file: LayerFile, sent: Set[Work], reasons: Mapping[Work, str], most_expected: int = -1
) -> Iterator[str]:
    """Yield sentences about collectives of a phase that are not issued, except in layers up to
    `most_expected`.
    """
    by_reason: dict[str, list[int]] = {}
    for at, layer in enumerate(file.layers):
        reason = reasons.get((at, phase), "")
        is_named = layer.work(phase).collective is not None and (bool(reason) or at > most_expected)
        if is_named and (at, phase) not in sent:
            by_reason.setdefault(reason, []).append(at)
    for reason, layers in by_reason.items():
        why = _REASONS.get(reason, f"{file.keyword} does not issue it")
        yield f"{phase.words} collective of {named(file, layers)}: {why}"


_REASONS = {"0 bytes": "it has 0 bytes", "no rank": "no rank takes part"}


def named(file: LayerFile, layers: list[int]) -> str:
    """Return layers by name, or their number if they are many."""
    if len(layers) == len(file.layers):
        return f"all {len(layers):,} layers" if len(layers) > 1 else file.layers[0].name
    if len(layers) <= _MOST_NAMED:
        return ", ".join(file.layers[at].name for at in layers)
    return f"{len(layers):,} layers ({file.layers[layers[0]].name}, …)"


IntColumn = npt.NDArray[np.int64]


class LayerTable(Struct, frozen=True, eq=False):
    """Nanoseconds of one rank, as [layer, phase] (`LayerPhase`), and of the whole run."""

    names: tuple[str, ...]
    compute_ns: IntColumn
    exposed_ns: IntColumn
    total_ns: IntColumn
    finish_ns: int
    pass_end_ns: IntColumn  # when each pass had done all but its last tick


def layer_table(program: LayerProgram, start_ns: IntColumn, end_ns: IntColumn) -> LayerTable:
    """Return the table of a run in which row r of the trace began at start_ns[r] and ended at end_ns[r]."""
    steps, issued = program.steps, program.collectives
    shape = len(program.layer_file.layers), len(LayerPhase)
    compute, exposed, total = (np.zeros(shape, np.int64) for _ in range(3))
    rows = steps.compute_row
    np.add.at(compute, (steps.layer, steps.phase), end_ns[rows] - start_ns[rows])
    begun = np.where(issued.step >= 0, end_ns[steps.compute_row[issued.step]] if len(steps.layer) else 0, 0)
    done = end_ns[issued.done_row]
    np.add.at(total, (issued.layer, issued.phase), done - begun)
    blocking = issued.is_blocking
    where = issued.layer[blocking], issued.phase[blocking]
    np.add.at(exposed, where, (done - begun)[blocking])
    for layer, phase, waited in _waited(program, end_ns, done):
        exposed[layer, phase] += waited
    return LayerTable(
        tuple(layer.name for layer in program.layer_file.layers),
        compute,
        exposed,
        total,
        int(end_ns.max(initial=0)),
        end_ns[steps.tick_row[_last_of_passes(steps.pass_number)]] - TICK_NS,
    )


def _waited(program: LayerProgram, end_ns: IntColumn, done: IntColumn) -> list[tuple[int, int, int]]:
    """Return (layer, phase, ns) of every wait; collectives that are waited for together are one wait."""
    waits = program.waits
    together: dict[tuple[int, int], list[int]] = {}
    for number, (step, place) in enumerate(zip(waits.step.tolist(), waits.place.tolist(), strict=True)):
        together.setdefault((step, place), []).append(number)
    total_waits = []
    for (step, place), numbers in together.items():
        looked = _first_check_ns(program, end_ns, step, place)
        ends = done[waits.collective[numbers]]
        late = ends[ends > looked]
        if len(late):
            first = int(waits.collective[numbers[0]])
            until = int(late.min() if place == END else late.max())
            total_waits.append(
                (int(program.collectives.layer[first]), int(program.collectives.phase[first]), until - looked)
            )
    return total_waits


def _first_check_ns(program: LayerProgram, end_ns: IntColumn, step: int, place: int) -> int:
    """Return when the loop first checks whether it must wait."""
    steps = program.steps
    if place == END:
        return int(end_ns[steps.tick_row[step]]) if step >= 0 else 0
    if place == FIRST:
        return int(end_ns[steps.tick_row[step - 1]]) if step else 0
    return int(end_ns[steps.compute_row[step]])


def _last_of_passes(pass_number: npt.NDArray[np.int32]) -> IntColumn:
    """Return the last step of each pass."""
    if not len(pass_number):
        return np.zeros(0, np.int64)
    return np.append(np.flatnonzero(np.diff(pass_number)), len(pass_number) - 1)
