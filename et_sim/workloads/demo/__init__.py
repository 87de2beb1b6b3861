"""One data-parallel training step of a small transformer on eight GPUs, one of which is slow.

Every rank computes forward and backward, layer by layer; each layer's gradient is all-reduced as soon
as it exists, while the layers below still compute. The optimizer waits for all gradients.
Sizes and times are computed from the model below; nothing is measured.
"""

from __future__ import annotations

from et_sim.trace import Trace, TraceBuilder, Workload

RANKS = 8
LAYERS = 12
HIDDEN = 768
VOCABULARY = 50_257
TOKENS = 16 * 1024  # per rank and step
BYTES_PER_PARAMETER = 2
FLOP_PER_MICROSECOND = 300e6  # a kernel achieves 300 TFLOPS

LAYER_PARAMETERS = 12 * HIDDEN**2
EMBEDDING_PARAMETERS = VOCABULARY * HIDDEN
LOAD_MICROS = 300
OPTIMIZER_MICROS = 900

SLOW_RANK = 5
SLOWDOWN = 1.1


def training_step() -> Workload:
    """Return the step of all ranks; seven of them share one trace."""
    usual, slow = rank_trace(1.0), rank_trace(SLOWDOWN)
    return Workload.of([slow if rank == SLOW_RANK else usual for rank in range(RANKS)])


def rank_trace(slowdown: float) -> Trace:
    """Return one rank's step, with its kernels slowed down by a factor."""
    build = TraceBuilder(version="et-sim demo")
    layer, head = (_micros(size, slowdown) for size in (LAYER_PARAMETERS, EMBEDDING_PARAMETERS))
    last = build.compute("load batch", micros=LOAD_MICROS, cpu=True)
    for number in range(LAYERS):
        last = build.compute(f"layer {number} forward", micros=layer, after=[last])
    last = build.compute("head forward", micros=head, after=[last])
    last = build.compute("head backward", micros=2 * head, after=[last])
    gradients = []
    for number in reversed(range(LAYERS)):
        last = build.compute(f"layer {number} backward", micros=2 * layer, after=[last])
        gradients.append(_gradient(build, f"layer {number} gradient", LAYER_PARAMETERS, last))
    # Head and embedding share their weights, so their gradient is complete only at the very end.
    gradients.append(_gradient(build, "embedding gradient", EMBEDDING_PARAMETERS, last))
    build.compute("optimizer", micros=round(OPTIMIZER_MICROS * slowdown), after=[last, *gradients])
    return build.build()


def _gradient(build: TraceBuilder, name: str, parameters: int, after: int) -> int:
    return build.collective("all_reduce", parameters * BYTES_PER_PARAMETER, name=name, after=[after])


def _micros(parameters: int, slowdown: float) -> int:
    """Return the forward time of a matrix multiplication: two operations per parameter and token."""
    return round(2 * parameters * TOKENS / FLOP_PER_MICROSECOND * slowdown)
