"""Small workloads made to measure one thing: a collective, messages between pairs, or computation.

Sizes are exact: `comm_size` is the number of bytes given. Every collective type can be made, also
those that the simulator refuses. Not here: models of training (`converters`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from et_sim.trace.columns import Trace
    from et_sim.trace.workload import Workload

# Spelled out, so that the command line can list them without loading numpy.
COLLECTIVES = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter_block",
    "barrier",
)
KINDS = (*COLLECTIVES, "send_receive", "ring_send_receive", "compute")


def make_microbenchmark(
    kind: str, *, ranks: int, size: int = 0, repeat: int = 1, compute_us: int = 0
) -> Workload:
    """`repeat` operations of `size` bytes one after the other on every rank.

    send_receive: rank 0 sends to 1, 2 to 3, and so on. ring_send_receive: every rank sends to the
    next one and receives from the previous one. With `compute_us`, a computation of that many
    microseconds comes before each operation and may overlap with the operation before it. compute:
    nothing but these computations.
    """
    _check(kind, ranks, size, repeat, compute_us)
    if kind == "send_receive":
        traces = [_pairs(rank, size, repeat, compute_us) for rank in range(ranks)]
    elif kind == "ring_send_receive":
        traces = [_ring(rank, ranks, size, repeat, compute_us) for rank in range(ranks)]
    else:
        traces = [_alike(kind, size, repeat, compute_us)] * ranks

    from et_sim.trace.workload import Workload

    return Workload.of(traces, source=f"<microbenchmark {kind}>")


def _check(kind: str, ranks: int, size: int, repeat: int, compute_us: int) -> None:
    if kind not in KINDS:
        remedy = did_you_mean(kind, KINDS) or f"known: {', '.join(KINDS)}"
        raise UsageError(f"there is no microbenchmark {kind!r}", remedy=remedy)
    for what, value, least in (("ranks", ranks, 1), ("repeat", repeat, 1), ("size", size, 0)):
        if value < least:
            raise UsageError(f"{what} is {value}", remedy=f"it must be at least {least}")
    if compute_us < 0:
        raise UsageError(f"compute_us is {compute_us}", remedy="it must be at least 0")
    if kind == "compute" and compute_us == 0:
        raise UsageError("compute needs a duration", remedy="give compute_us (--compute-us), at least 1")
    if kind == "compute" and size:
        raise UsageError("compute moves no bytes", remedy="leave the size out")
    if kind == "send_receive" and ranks % 2:
        raise UsageError(
            f"send_receive pairs ranks, and {ranks} is odd", remedy="give an even number of ranks"
        )
    if kind == "ring_send_receive" and ranks < 2:
        raise UsageError("a ring of one rank has nobody to send to", remedy="give at least 2 ranks")


def _alike(kind: str, size: int, repeat: int, compute_us: int) -> Trace:
    """The trace that all ranks share: a chain of collectives, of computations, or of both."""
    from et_sim.trace.builder import TraceBuilder

    build = TraceBuilder(source="<microbenchmark>")
    done: list[int] = []
    computed: list[int] = []
    for turn in range(repeat):
        if compute_us:
            computed = [build.compute(f"compute.{turn}", micros=compute_us, after=computed)]
        if kind != "compute":
            done = [build.collective(kind, size, name=f"{kind}.{turn}", after=[*done, *computed])]
    return build.build()


def _pairs(rank: int, size: int, repeat: int, compute_us: int) -> Trace:
    """Even ranks send to the next one, odd ranks receive from the previous one."""
    from et_sim.trace.builder import TraceBuilder

    build = TraceBuilder(source=f"<microbenchmark>, rank {rank}")
    done: list[int] = []
    computed: list[int] = []
    for turn in range(repeat):
        if compute_us:
            computed = [build.compute(f"compute.{turn}", micros=compute_us, after=computed)]
        after = [*done, *computed]
        if rank % 2:
            done = [build.receive(rank - 1, size, turn, name=f"receive.{turn}", after=after)]
        else:
            done = [build.send(rank + 1, size, turn, name=f"send.{turn}", after=after)]
    return build.build()


def _ring(rank: int, ranks: int, size: int, repeat: int, compute_us: int) -> Trace:
    """Send to the next rank and receive from the previous one at once; then the next turn."""
    from et_sim.trace.builder import TraceBuilder

    build = TraceBuilder(source=f"<microbenchmark>, rank {rank}")
    done: list[int] = []
    computed: list[int] = []
    for turn in range(repeat):
        if compute_us:
            computed = [build.compute(f"compute.{turn}", micros=compute_us, after=computed)]
        after = [*done, *computed]
        done = [
            build.send((rank + 1) % ranks, size, turn, name=f"send.{turn}", after=after),
            build.receive((rank - 1) % ranks, size, turn, name=f"receive.{turn}", after=after),
        ]
    return build.build()
