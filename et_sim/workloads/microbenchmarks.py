"""Small workloads of one operation: a collective, messages between pairs, or computation.

Sizes are exact: `comm_size` is the number of bytes given. Every collective type can be made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.lazy_names import late_hints

if TYPE_CHECKING:
    from collections.abc import Callable

    from et_sim.trace.builder import TraceBuilder
    from et_sim.trace.columns import Trace
    from et_sim.trace.workload import Workload

    _Turn = Callable[[TraceBuilder, int, int, list[int]], list[int]]

# A literal list, so that the command line can show it without loading numpy.
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
_WITH_PEERS = ("send_receive", "ring_send_receive")
KINDS = (*COLLECTIVES, *_WITH_PEERS, "compute")


@late_hints
def make_microbenchmark(
    kind: str, *, ranks: int, size: int = 0, repeat: int = 1, compute_us: int = 0, dtype: str = ""
) -> Workload:
    """Return `repeat` operations of `size` bytes one after the other on every rank.

    In send_receive, rank 0 sends to 1, 2 to 3, and so on. In ring_send_receive, every rank sends to the next
    one and receives from the previous one. With `compute_us`, a computation of that many microseconds comes
    before each operation and may overlap with the previous one. compute has these computations only. `dtype`
    is the datatype of collectives, such as "int8". Ranks share one template, or two; peers are named by
    distance.
    """
    _check(kind, ranks, size, repeat, compute_us)
    import numpy as np

    from et_sim.trace.workload import Workload
    from et_sim.workloads.rank import PROFILE

    turns = _TURNS.get(kind, (_collective(kind, dtype),) if kind != "compute" else (_nothing,))
    templates = [_chain(repeat, compute_us, size, turn) for turn in turns]
    return Workload(
        tuple(templates),
        np.arange(ranks, dtype=np.int32) % len(templates),
        f"<microbenchmark {kind}>",
        relative_peers=(kind in _WITH_PEERS,) * len(templates),
        profile=PROFILE,
    )


def _check(kind: str, ranks: int, size: int, repeat: int, compute_us: int) -> None:
    if kind not in KINDS:
        remedy = did_you_mean(kind, KINDS) or f"known: {', '.join(KINDS)}"
        raise UsageError(f"there is no microbenchmark {kind!r}", remedy=remedy)
    for argument, value, least in (("ranks", ranks, 1), ("repeat", repeat, 1), ("size", size, 0)):
        if value < least:
            raise UsageError(f"{argument} is {value}", remedy=f"it must be at least {least}")
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
        raise UsageError("a ring needs at least 2 ranks, and there is 1", remedy="give at least 2 ranks")


def _nothing(_build: TraceBuilder, _size: int, _turn: int, _after: list[int]) -> list[int]:
    return []


def _collective(kind: str, dtype: str) -> _Turn:
    def operate(build: TraceBuilder, size: int, turn: int, after: list[int]) -> list[int]:
        return [build.collective(kind, size, name=f"{kind}.{turn}", dtype=dtype or None, after=after)]

    return operate


def _send(build: TraceBuilder, size: int, turn: int, after: list[int]) -> list[int]:
    return [build.send(1, size, turn, name=f"send.{turn}", after=after)]


def _receive(build: TraceBuilder, size: int, turn: int, after: list[int]) -> list[int]:
    return [build.receive(-1, size, turn, name=f"receive.{turn}", after=after)]


def _both(build: TraceBuilder, size: int, turn: int, after: list[int]) -> list[int]:
    return _send(build, size, turn, after) + _receive(build, size, turn, after)


#: Operations of each template in a turn, for kinds that are no collective.
_TURNS: dict[str, tuple[_Turn, ...]] = {"send_receive": (_send, _receive), "ring_send_receive": (_both,)}


def _chain(repeat: int, compute_us: int, size: int, operate: _Turn) -> Trace:
    """Return a chain of turns, each of which waits for the operations of the previous one."""
    from et_sim.trace.builder import TraceBuilder

    build = TraceBuilder(source="<microbenchmark>")
    done: list[int] = []
    computed: list[int] = []
    for turn in range(repeat):
        if compute_us:
            computed = [build.compute(f"compute.{turn}", micros=compute_us, after=computed)]
        done = operate(build, size, turn, [*done, *computed])
    return build.build()
