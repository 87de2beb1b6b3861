"""What a conversion says about a layer file: what its columns became, and which were not used.

Not here: the conversion (`program`, `chakra`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING

from converters.layers.dimensions import Reach, reach_of
from converters.layers.layer_file import LayerFile, Phase
from converters.layers.program import LayerProgram
from converters.report import plural
from et_sim.units import format_bytes, format_ns

if TYPE_CHECKING:
    from converters.layers.chakra import ChakraGraph

Note = tuple[str, str]  # a label and a sentence
Work = tuple[int, Phase]  # of which layer
_MOST_NAMED = 3
UNITS = "times taken as nanoseconds, sizes as bytes that one rank puts in"


def notes_of(program: LayerProgram, passes: int) -> Iterator[Note]:
    """The loop, the units, who communicates with whom, and what was left out."""
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
    """Collectives and bytes by whom they reach, in order of their first issue."""
    issued, file = program.collectives, program.layer_file
    found: dict[Reach, list[int]] = {}
    for layer, phase, size in zip(issued.layer, issued.phase, issued.bytes.tolist(), strict=True):
        own = file.layers[layer].keyword
        found.setdefault(reach_of(file.keyword, int(layer), own, Phase(phase)), []).append(size)
    for reach, sizes in found.items():
        yield f"{format_bytes(sum(sizes))} in {plural(len(sizes), 'collective')} {reach.words}"


def _unused(program: LayerProgram) -> Iterator[Note]:
    steps = program.steps
    computed = set(zip(steps.layer.tolist(), map(Phase, steps.phase.tolist()), strict=True))
    return unused(program.layer_file, computed, *_used(program))


def _used(program: LayerProgram) -> tuple[set[Work], dict[Work, str]]:
    """The layers and phases whose collectives are issued, and why others are not."""
    issued = program.collectives
    sent = set(zip(issued.layer.tolist(), map(Phase, issued.phase.tolist()), strict=True))
    return sent, {(layer, phase): why for layer, phase, why in program.skipped}


def left_out(program: LayerProgram) -> list[str]:
    """Collectives that a file names and a run does not have.

    That most loops issue none for the input gradient of the first layer is how they are, and not said.
    """
    return [
        sentence
        for phase in Phase
        for sentence in _left_out_of(
            phase, program.layer_file, *_used(program), 0 if phase == Phase.INPUT_GRADIENT else -1
        )
    ]


def unused(
    file: LayerFile, computed: Set[Work], sent: Set[Work], reasons: Mapping[Work, str]
) -> Iterator[Note]:
    """What the file says and its loop does not do, a sentence for each sort.

    `computed` and `sent`: the layers and phases of which there are computations and collectives; `reasons`:
    why collectives were left out that the loop has.
    """
    for phase in Phase:
        works = {at: layer.work(phase) for at, layer in enumerate(file.layers)}
        idle = [at for at, work in works.items() if work.compute_ns and (at, phase) not in computed]
        if idle:
            yield "not used", f"{phase.words} time of {_named(file, idle)}: {file.keyword} has no such step"
        yield from (("not used", sentence) for sentence in _left_out_of(phase, file, sent, reasons))


def _left_out_of(
    phase: Phase, file: LayerFile, sent: Set[Work], reasons: Mapping[Work, str], most_expected: int = -1
) -> Iterator[str]:
    """Collectives of a phase that are not issued; that layers up to `most_expected` lack some is not said."""
    by_reason: dict[str, list[int]] = {}
    for at, layer in enumerate(file.layers):
        reason = reasons.get((at, phase), "")
        is_named = layer.work(phase).collective is not None and (bool(reason) or at > most_expected)
        if is_named and (at, phase) not in sent:
            by_reason.setdefault(reason, []).append(at)
    for reason, layers in by_reason.items():
        why = _REASONS.get(reason, f"{file.keyword} does not issue it")
        yield f"{phase.words} collective of {_named(file, layers)}: {why}"


_REASONS = {"0 bytes": "it has 0 bytes", "nobody": "nobody takes part"}


def _named(file: LayerFile, layers: list[int]) -> str:
    if len(layers) == len(file.layers):
        return f"all {len(layers):,} layers" if len(layers) > 1 else file.layers[0].name
    if len(layers) <= _MOST_NAMED:
        return ", ".join(file.layers[at].name for at in layers)
    return f"{len(layers):,} layers ({file.layers[layers[0]].name}, …)"


def chakra_notes(file: LayerFile, graph: ChakraGraph, passes: int) -> Iterator[Note]:
    """The same for the Chakra flavour."""
    yield "loop", f"{file.keyword} as Chakra's text converter has it, {_layers_and_passes(file, passes)}"
    yield "columns", "times stand as microseconds, a thousand times as long as the file's nanoseconds"
    yield from unused(file, graph.computed, graph.sent, {})
    updates = sum(layer.update_ns > 0 for layer in file.layers)
    if updates:
        yield "not used", f"update time of {plural(updates, 'layer')}: this converter has none"


def _layers_and_passes(file: LayerFile, passes: int) -> str:
    return f"{plural(len(file.layers), 'layer')}, {'1 pass' if passes == 1 else f'{passes:,} passes'}"
