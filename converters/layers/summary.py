"""The notes on the conversion of a layer file: the use of its columns, and those that were not used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING

from et_sim.basics.units import format_bytes, format_ns, plural
from et_sim.layerfile.dimensions import CollectiveReach, reach_of
from et_sim.layerfile.layer_file import LayerFile, LayerPhase
from et_sim.layerfile.passes import LayerProgram
from et_sim.layerfile.statistics import Work, left_out_of, named, used

if TYPE_CHECKING:
    from converters.layers.chakra import ChakraGraph

Note = tuple[str, str]  # a label and a sentence
UNITS = "times taken as nanoseconds, sizes as bytes that one rank puts in"


def notes_of(program: LayerProgram, passes: int) -> Iterator[Note]:
    """Yield notes on the loop, the units, the communication, and the parts left out."""
    file = program.layer_file
    yield "loop", f"{file.keyword}, {_layers_and_passes(file, passes)}"
    yield "columns", UNITS
    yield from (("collectives", sentence) for sentence in _reached(program))
    updates = program.collectives.update_row
    updates = updates[updates >= 0]
    if len(updates):
        total = format_ns(int(program.trace.duration_ns[updates].sum()))
        yield "updates", f"{total} in {plural(len(updates), 'node')} after collectives"
    yield from _unused(program)


def _reached(program: LayerProgram) -> Iterator[str]:
    """Yield collectives and bytes by their group, in order of first issue."""
    issued, file = program.collectives, program.layer_file
    sizes_of: dict[CollectiveReach, list[int]] = {}
    for layer, phase, size in zip(issued.layer, issued.phase, issued.bytes.tolist(), strict=True):
        own_keyword = file.layers[layer].keyword
        sizes_of.setdefault(reach_of(file.keyword, int(layer), own_keyword, LayerPhase(phase)), []).append(
            size
        )
    for reach, sizes in sizes_of.items():
        yield f"{format_bytes(sum(sizes))} in {plural(len(sizes), 'collective')} {reach.words}"


def _unused(program: LayerProgram) -> Iterator[Note]:
    steps = program.steps
    computed = set(zip(steps.layer.tolist(), map(LayerPhase, steps.phase.tolist()), strict=True))
    return unused(program.layer_file, computed, *used(program))


def unused(
    file: LayerFile, computed: Set[Work], sent: Set[Work], reasons: Mapping[Work, str]
) -> Iterator[Note]:
    """Yield a sentence for each sort of work that the file holds and its loop leaves out.

    `computed` and `sent` are the layers and phases that have computations and collectives; `reasons` explain
    why collectives of the loop were left out.
    """
    for phase in LayerPhase:
        works = {at: layer.work(phase) for at, layer in enumerate(file.layers)}
        idle = [at for at, work in works.items() if work.compute_ns and (at, phase) not in computed]
        if idle:
            yield "not used", f"{phase.words} time of {named(file, idle)}: {file.keyword} has no such step"
        yield from (("not used", sentence) for sentence in left_out_of(phase, file, sent, reasons))


def chakra_notes(file: LayerFile, graph: ChakraGraph, passes: int) -> Iterator[Note]:
    """Yield the notes for the Chakra flavour."""
    yield "loop", f"{file.keyword} as Chakra's text converter has it, {_layers_and_passes(file, passes)}"
    yield "columns", "times stand as microseconds, a thousand times as long as the file's nanoseconds"
    yield from unused(file, graph.computed, graph.sent, {})
    updates = sum(layer.update_ns > 0 for layer in file.layers)
    if updates:
        yield "not used", f"update time of {plural(updates, 'layer')}: this converter has none"


def _layers_and_passes(file: LayerFile, passes: int) -> str:
    return f"{plural(len(file.layers), 'layer')}, {'1 pass' if passes == 1 else f'{passes:,} passes'}"
