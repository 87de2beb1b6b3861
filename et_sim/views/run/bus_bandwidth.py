"""Algorithm and bus bandwidth of collectives, as nccl-tests defines them.

Algorithm bandwidth is size by time. Bus bandwidth multiplies it so that it may be held against what a port
carries, whatever the number of ranks n: an all-reduce moves at least 2 (n - 1) / n of its size through the
port of each rank, an all-gather, reduce-scatter or all-to-all (n - 1) / n; a broadcast, a reduction or a send
all of it. The size of an all-gather is what a rank has at the end, n times what it puts in, which is what
traces give; of others it is what a rank puts in. Where members are not known, it is what traces give.

Not here: how long they took (`summary.operations`, `summary.groups`, `summary.bandwidth`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

ONCE = ("broadcast", "reduce", "send")
SHARED = ("all_gather", "reduce_scatter", "reduce_scatter_block", "all_to_all")
LEGEND = "bandwidth: size by transfer time; bus bw: the same as a port carries it, as nccl-tests counts"


class Bandwidth(Struct, frozen=True):
    """In bytes per second, over the time of transfers: queueing and waiting are left out."""

    algorithm: float | None  # of all that have a payload
    bus: float | None  # None: of computation and other nodes, and where members are not known

    def as_dict(self) -> dict[str, float | None]:
        """For `--json`."""
        return {"bytes_per_second": self.algorithm, "bus_bytes_per_second": self.bus}


NONE = Bandwidth(None, None)


def bandwidth(kind: str, members: int | None, bytes: int, moving_ns: int) -> Bandwidth:
    """That of operations alike, from the sum of the bytes that traces give and that of their times.

    Of receives there is none: bytes may have moved, and all have come, before they were posted.
    """
    if not bytes or moving_ns <= 0 or kind == "receive":
        return NONE
    rate = bytes * 1e9 / moving_ns
    if kind in ONCE:
        return Bandwidth(rate, rate)
    if members is None:
        return Bandwidth(rate, None)
    if kind == "all_gather":
        rate *= members
    share = (members - 1) / members
    factor = 2 * share if kind == "all_reduce" else share if kind in SHARED else None
    return Bandwidth(rate, None if factor is None else rate * factor)


def members_of(sizes: Mapping[str, int], group: str | None) -> int | None:
    """How many ranks are in a group of that name; None: not known, or not the same everywhere."""
    return sizes.get(group) if group is not None else None
