"""Training loops of ASTRA-sim 1.0: the order in which an NPU computes, communicates and waits.

A loop is a list of moves through the layers, up in the forward pass and down in the backward pass. It yields
steps. A step waits for collectives of earlier steps, computes, issues a collective when the computation ends,
waits again, and takes one tick of 1 ns before the next step begins.

All NPUs run the same steps. Loops do not depend on the machine: `program` leaves out collectives without
members. MICRO has no steps (`program`).
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from et_sim.layerfile.layer_file import DLRMS, Keyword, LayerFile, LayerPhase
from et_sim.trace.columns import CollectiveKind


class PhaseOfLayer(NamedTuple):
    """A phase of a layer that a step computes, whose collective it issues, or for which it waits."""

    layer: int
    phase: LayerPhase


class LoopStep(Struct, frozen=True):
    """A step of the loop. Waiting for a phase of a layer is waiting for all its collectives so far."""

    number: int  # of the pass
    computes: PhaseOfLayer
    issues: PhaseOfLayer | None = None
    is_blocking: bool = False  # the step continues when the collective has ended
    is_urgent: bool = False  # the collective overtakes all others
    waits_first: PhaseOfLayer | None = None
    waits_last: PhaseOfLayer | None = None
    turns: bool = False  # the loop turns back for this step, which takes one more tick before it


class _Move(Struct, frozen=True):
    """An action of a loop at each layer, in one phase."""

    phase: LayerPhase
    issues: bool = False
    is_blocking: bool = False
    in_layer_0: bool = True
    issues_in_layer_0: bool = True
    waits_last: LayerPhase | None = None


_FORWARD, _INPUT, _WEIGHT = LayerPhase.FORWARD, LayerPhase.INPUT_GRADIENT, LayerPhase.WEIGHT_GRADIENT
_SILENT = _Move(_FORWARD)
_BLOCKING = _Move(_FORWARD, issues=True, is_blocking=True)
_INPUT_FREE = _Move(_INPUT, issues=True, issues_in_layer_0=False)
_INPUT_BLOCKING = _Move(_INPUT, issues=True, is_blocking=True)
_INPUT_SILENT = _Move(_INPUT, in_layer_0=False)
_WEIGHT_FREE = _Move(_WEIGHT, issues=True)
_WEIGHT_WAITS = _Move(_WEIGHT, issues=True, waits_last=_INPUT)
_HYBRID = (_BLOCKING, _INPUT_FREE, _WEIGHT_WAITS)
_TRANSFORMER = (_BLOCKING, _INPUT_BLOCKING, _WEIGHT_FREE)
# The move of the forward pass, then those of the backward pass at each layer.
_LOOPS = MappingProxyType(
    {
        Keyword.DATA: (_SILENT, _WEIGHT_FREE, _INPUT_SILENT),
        Keyword.DATA_REORDER: (_SILENT, _INPUT_SILENT, _WEIGHT_FREE),
        Keyword.MODEL: (_BLOCKING, _INPUT_FREE, replace(_WEIGHT_WAITS, issues=False)),
        Keyword.HYBRID_DATA_MODEL: _HYBRID,
        Keyword.HYBRID_MODEL_DATA: _HYBRID,
        Keyword.HYBRID_CUSTOMIZED: _HYBRID,
        Keyword.HYBRID_TRANSFORMER: _TRANSFORMER,
        Keyword.HYBRID_TRANSFORMER_FWD_IN_BCKWD: _TRANSFORMER,
        Keyword.HYBRID_DLRM: (_SILENT, _WEIGHT_WAITS, _INPUT_SILENT),
        Keyword.HYBRID_DLRM_ENHANCED: (_SILENT, _WEIGHT_FREE, _INPUT_SILENT),
        Keyword.DISTRIBUTED_INFERENCE: (_BLOCKING,),
    }
)


def steps_of(layer_file: LayerFile, passes: int) -> Iterator[LoopStep]:
    """Yield all steps in order; none for MICRO."""
    if layer_file.keyword == Keyword.MICRO:
        return
    forward, *backward = _LOOPS[layer_file.keyword]
    for number in range(passes):
        for layer in range(len(layer_file.layers)):
            yield _forward(layer_file, forward, number, layer)
        if backward:
            yield from _backward(layer_file, backward, number)


def _backward(layer_file: LayerFile, moves: list[_Move], number: int) -> Iterator[LoopStep]:
    for layer in reversed(range(len(layer_file.layers))):
        if layer in layer_file.initiates:
            yield from _recomputed(layer_file, number, layer)
        for move in moves:
            if layer or move.in_layer_0:
                yield _with_embedding(layer_file, _moved(move, number, layer))


def _recomputed(layer_file: LayerFile, number: int, layer: int) -> Iterator[LoopStep]:
    """Yield the steps that recompute activations, from the nearest checkpoint up to the layer below."""
    start = max(checkpoint for checkpoint in layer_file.checkpoints if checkpoint < layer)
    for below in range(start, layer):
        yield replace(_forward(layer_file, _BLOCKING, number, below), turns=below == start)


def _forward(layer_file: LayerFile, move: _Move, number: int, layer: int) -> LoopStep:
    """Return the forward step of a layer, which waits for the update of the layer's weights."""
    step = replace(_moved(move, number, layer), waits_first=PhaseOfLayer(layer, _WEIGHT))
    if layer_file.keyword not in DLRMS:
        return step
    if layer_file.layers[layer].forward.collective == CollectiveKind.ALL_TO_ALL:
        return replace(step, issues=PhaseOfLayer(layer, _FORWARD), is_urgent=True)
    if layer == layer_file.last_bottom_layer:  # the top layers need the embedding's rows
        return replace(step, waits_last=PhaseOfLayer(0, _FORWARD))
    return step


def _with_embedding(layer_file: LayerFile, step: LoopStep) -> LoopStep:
    """Return a DLRM step; the first top layer's issues the exchange of the embedding's gradients."""
    bottom = layer_file.last_bottom_layer
    if bottom is not None and step.computes == PhaseOfLayer(bottom + 1, _INPUT):
        return replace(step, issues=PhaseOfLayer(0, _INPUT), is_urgent=True)
    return step


def _moved(move: _Move, number: int, layer: int) -> LoopStep:
    work = PhaseOfLayer(layer, move.phase)
    return LoopStep(
        number,
        work,
        work if move.issues and (layer or move.issues_in_layer_0) else None,
        move.is_blocking,
        waits_last=None if move.waits_last is None else PhaseOfLayer(layer, move.waits_last),
    )
