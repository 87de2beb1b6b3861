"""Collectives that a layer file names and its training loop never issues, as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from et_sim.layerfile.layer_file import LayerFile, Phase
from et_sim.layerfile.tables import LayerProgram

Work = tuple[int, Phase]  # of which layer
_MOST_NAMED = 3


def left_out(program: LayerProgram) -> list[str]:
    """Collectives that a file names and a run does not have.

    That most loops issue none for the input gradient of the first layer is how they are, and not said.
    """
    return [
        sentence
        for phase in Phase
        for sentence in left_out_of(
            phase, program.layer_file, *used(program), 0 if phase == Phase.INPUT_GRADIENT else -1
        )
    ]


def used(program: LayerProgram) -> tuple[set[Work], dict[Work, str]]:
    """The layers and phases whose collectives are issued, and why others are not."""
    issued = program.collectives
    sent = set(zip(issued.layer.tolist(), map(Phase, issued.phase.tolist()), strict=True))
    return sent, {(layer, phase): why for layer, phase, why in program.skipped}


def left_out_of(
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
        yield f"{phase.words} collective of {named(file, layers)}: {why}"


_REASONS = {"0 bytes": "it has 0 bytes", "nobody": "nobody takes part"}


def named(file: LayerFile, layers: list[int]) -> str:
    """Layers by name, or how many if they are many."""
    if len(layers) == len(file.layers):
        return f"all {len(layers):,} layers" if len(layers) > 1 else file.layers[0].name
    if len(layers) <= _MOST_NAMED:
        return ", ".join(file.layers[at].name for at in layers)
    return f"{len(layers):,} layers ({file.layers[layers[0]].name}, …)"
