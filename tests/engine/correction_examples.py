"""One small workload for each correction, with its times in the reference and with the correction.

The tests run every example, and docs/profiles.md shows them; an example has the times of all ranks, of which
the page shows the latest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from machines import network, simulate, system

from et_sim.machine.corrections import Correction
from et_sim.run.result import Result
from et_sim.trace import Trace, TraceBuilder, Workload, write_workload

MIB = 1 << 20
NEVER = -1
Fill = Callable[[int, TraceBuilder], None]  # adds the nodes of a rank


@dataclass(frozen=True)
class Example:
    """`fill` on every rank of a machine; times of all ranks without and with the correction."""

    correction: Correction
    text: str  # machine and workload, for people
    fill: Fill
    network: Mapping[str, Any]
    reference: tuple[int, ...]
    corrected: tuple[int, ...]
    system: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)  # arguments of the run
    also: tuple[Correction, ...] = ()  # corrections that are on in both runs
    algorithm: str = "ring"
    programs: tuple[Fill, ...] = ()  # of a custom all-reduce

    def times(self, *, corrected: bool) -> tuple[int, ...]:
        """Finish times of all ranks."""
        return tuple(self.result(corrected=corrected).finish_ns.tolist())

    def result(self, *, corrected: bool, **options: Any) -> Result:
        """Return the run of the example."""
        builders = []
        npus = self.network["npus_count"]
        ranks = 1
        for count in npus:
            ranks *= count
        for rank in range(ranks):
            builders.append(TraceBuilder())
            self.fill(rank, builders[-1])
        names = (*self.also, *([self.correction] if corrected else []))
        keys = {"corrections": dict.fromkeys(names, True), **self.system}
        with tempfile.TemporaryDirectory() as folder:
            if self.programs:
                write_workload(Workload.of(_built(self.programs)), f"{folder}/program")
                keys["all-reduce-implementation-custom"] = [f"{folder}/program"]
            machine = system(self.algorithm, len(npus), **keys)
            return simulate(builders, dict(self.network), machine, **self.more, **options)


def _built(programs: tuple[Fill, ...]) -> list[Trace]:
    builders = [TraceBuilder() for _ in programs]
    for place, (fill, builder) in enumerate(zip(programs, builders, strict=True)):
        fill(place, builder)
    return [builder.build() for builder in builders]


EIGHT = network(["FullyConnected"], [8])
RING_4 = network(["Ring"], [4])
SWITCH_4 = network(["Switch"], [4])
SQUARE = {**network(["FullyConnected"] * 2, [2, 2]), "bandwidth": [100, 10], "latency": [10, 1000]}


def _in_opposite_orders(rank: int, build: TraceBuilder) -> None:
    sizes = (MIB, 2 * MIB) if rank % 2 else (2 * MIB, MIB)
    for size in sizes:
        build.collective("all_reduce", size)


def _behind_an_instant_node(_rank: int, build: TraceBuilder) -> None:
    build.compute(micros=5, cpu=True)
    build.compute(micros=3, after=[build.invalid()])


def _across_both_dimensions(rank: int, build: TraceBuilder) -> None:
    if rank == 0:
        build.send(3, MIB)
    if rank == 3:
        build.receive(0, MIB)


def send_and_all_reduce(rank: int, build: TraceBuilder) -> None:
    build.send((rank + 1) % 4, MIB)
    build.receive((rank - 1) % 4, MIB)
    build.collective("all_reduce", MIB)


def _send_then_compute(rank: int, build: TraceBuilder) -> None:
    if rank == 0:
        build.compute(micros=3, after=[build.send(1, MIB)])
    if rank == 1:
        build.receive(0, MIB)


CUBE = {
    **network(["FullyConnected"] * 3, [2, 2, 2], latency=5000),
    "bandwidth": [400, 50, 400],
}
NODES = {**network(["Switch"] * 2, [4, 4]), "bandwidth": [400, 50]}
UNEVEN = {**network(["FullyConnected"] * 2, [4, 4]), "bandwidth": [50, 200]}


def _collective(kind: str, size: int, **more: Any) -> Fill:
    def fill(_rank: int, build: TraceBuilder) -> None:
        build.collective(kind, size, **more)

    return fill


def _late_all_reduce(rank: int, build: TraceBuilder) -> None:
    late = (20, 20, 0, 100, 0, 20, 0, 0)[rank]
    build.collective("all_reduce", 10000, after=[build.compute(micros=late)] if late else [])


def _one_late_all_gather(rank: int, build: TraceBuilder) -> None:
    late = rank == 3
    gather = build.collective("all_gather", MIB // 4, after=[build.compute(micros=100)] if late else [])
    if late:
        build.compute(micros=20, after=[gather])


def _all_reduce_in_a_group(rank: int, build: TraceBuilder) -> None:
    if rank < 3:
        build.collective("all_reduce", 1000, group="1")


def _chain_of_three(place: int, build: TraceBuilder) -> None:
    received = [build.receive(place - 1, 1000)] if place else []
    if place < 2:
        build.send(place + 1, 1000, after=received)


def group_before_all(rank: int, build: TraceBuilder) -> None:
    own = [build.collective("all_reduce", MIB, group="1")] if rank >= 2 else []
    build.collective("all_reduce", MIB, after=own)


def _all_reduce_on_two_nodes(rank: int, build: TraceBuilder) -> None:
    if rank < 8:
        build.collective("all_reduce", 16 * MIB, group="1")


EXAMPLES = (
    Example(
        Correction.GROUP_COUNTERS,
        "ring of 4: ranks 2 and 3 do an all-reduce of 1 MiB in a group of their own, and then all four do",
        group_before_all,
        RING_4,
        reference=(NEVER,) * 4,
        corrected=(131555, 131555, 120791, 126173),
        more={"groups": {"1": [2, 3]}},
    ),
    Example(
        Correction.TWO_WAY_QUEUES,
        "fully connected 2x2x2, 5 µs, 400, 50 and 400 GB/s: an all-reduce of 10000 bytes in two chunks, to "
        "which ranks come late by 20, 20, 0, 100, 0, 20, 0 and 0 µs",
        _late_all_reduce,
        CUBE,
        reference=(NEVER,) * 8,
        corrected=(130581, 135547, 135604, 140497, 125580, 130546, 130603, 135496),
        system={"preferred-dataset-splits": 2},
    ),
    Example(
        Correction.ALL_QUEUES,
        "ring of 4: an all-reduce of 1 MiB in four chunks, two queues, two chunks active",
        _collective("all_reduce", MIB),
        RING_4,
        reference=(88720,) * 4,
        corrected=(44360,) * 4,
        system={
            "preferred-dataset-splits": 4,
            "num-queues-per-dim": 2,
            "active-chunks-per-dimension": 2,
        },
    ),
    Example(
        Correction.EXACT_CHUNKS,
        "ring of 4: an all-reduce of 1 MiB and one byte in four chunks",
        _collective("all_reduce", MIB + 1),
        RING_4,
        reference=(110900,) * 4,
        corrected=(88720,) * 4,
        system={"preferred-dataset-splits": 4},
    ),
    Example(
        Correction.DIMENSION_SCHEDULERS,
        "fully connected 4x4, 50 GB/s inside and 200 GB/s across: an all-reduce of 64 MiB in 16 chunks, "
        "`offlineGreedy` (Themis)",
        _collective("all_reduce", 64 * MIB),
        UNEVEN,
        reference=(2018576,) * 16,
        corrected=(649932,) * 16,
        system={
            "preferred-dataset-splits": 16,
            "local-mem-bw": 1600,
            "inter-dimension-scheduling": "offlineGreedy",
        },
    ),
    Example(
        Correction.MATCH_BY_PROGRAM,
        "ring of 4, side by side: all-reduces of 1 and 2 MiB, which odd ranks issue the other way round",
        _in_opposite_orders,
        RING_4,
        reference=(NEVER,) * 4,
        corrected=(156035, 166300, 156035, 166300),
        also=(Correction.CONCURRENT_COMMUNICATION, Correction.TWO_WAY_QUEUES),
    ),
    Example(
        Correction.GROUPS_BY_DIMENSION,
        "four nodes of four, behind switches, 400 GB/s inside and 50 GB/s across: an all-reduce of 16 MiB by "
        "the eight ranks of two nodes, on the flow model",
        _all_reduce_on_two_nodes,
        NODES,
        reference=(548895, 515724, 482554, 449383) * 2 + (0,) * 8,
        corrected=(172343,) * 8 + (0,) * 8,
        system={"local-mem-bw": 1600},
        more={"groups": {"1": list(range(8))}, "model": "flow"},
    ),
    Example(
        Correction.CUSTOM_BY_POSITION,
        "group [2, 0, 1], custom: a chain of sends of 1000 bytes through the members (rank 2 begins)",
        _all_reduce_in_a_group,
        network(["FullyConnected"], [4]),
        reference=(0, NEVER, NEVER, 0),
        corrected=(1036, 1036, 518, 0),
        more={"groups": {"1": [2, 0, 1]}},
        programs=(_chain_of_three,) * 3,
    ),
    Example(
        Correction.EXACT_HALVING_DOUBLING,
        "fully connected 8, halvingDoubling: an all-reduce of 1 MiB",
        _collective("all_reduce", MIB),
        EIGHT,
        reference=(60835,) * 8,
        corrected=(92290,) * 8,
        algorithm="halvingDoubling",
    ),
    Example(
        Correction.TREE_OPERATIONS,
        "fully connected 4, doubleBinaryTree: an all-reduce of 1 MiB",
        _collective("all_reduce", MIB),
        network(["FullyConnected"], [4]),
        reference=(268913, 248872, 268913, 165918),
        corrected=(206000, 185959, 206000, 165918),
        algorithm="doubleBinaryTree",
    ),
    Example(
        Correction.DIRECT_REDUCTIONS,
        "fully connected 8, direct with a window of 1: a reduce-scatter of 1 MiB",
        _collective("reduce_scatter", MIB),
        EIGHT,
        reference=(52119,) * 8,
        corrected=(75708,) * 8,
        algorithm="direct1",
    ),
    Example(
        Correction.SIMULATED_BROADCAST,
        "fully connected 8: a broadcast of 1 MiB that took 5 µs when it was recorded",
        _collective("broadcast", MIB, micros=5),
        EIGHT,
        reference=(5000,) * 8,
        corrected=(10, 60133, 40092, 20051, 40092, 40092, 20051, 40092),
    ),
    Example(
        Correction.ISSUE_AT_ONCE,
        "a CPU node of 5 µs, an instant node, and a kernel of 3 µs behind the instant one",
        _behind_an_instant_node,
        RING_4,
        reference=(8000,) * 4,
        corrected=(5000,) * 4,
    ),
    Example(
        Correction.WHOLE_PATH,
        "fully connected 2x2, 100 GB/s and 10 ns inside, 10 GB/s and 1 µs across: 1 MiB from rank 0 to 3",
        _across_both_dimensions,
        SQUARE,
        reference=(9775, 0, 0, 9775),
        corrected=(108431, 0, 0, 108431),
    ),
    Example(
        Correction.PORT_BANDWIDTH,
        "switch of 4: an all-to-all of 4 MiB, directly",
        _collective("all_to_all", 4 * MIB),
        SWITCH_4,
        reference=(20551,) * 4,
        corrected=(59613,) * 4,
        algorithm="direct",
    ),
    Example(
        Correction.CONCURRENT_COMMUNICATION,
        "ring of 4: every rank sends 1 MiB to the next and takes part in an all-reduce of 1 MiB",
        send_and_all_reduce,
        RING_4,
        reference=(99571,) * 4,
        corrected=(79540,) * 4,
    ),
    Example(
        Correction.EAGER_SENDS,
        "ring of 4: rank 0 sends 1 MiB to rank 1 and then computes for 3 µs",
        _send_then_compute,
        RING_4,
        reference=(23031, 20031, 0, 0),
        corrected=(22531, 20031, 0, 0),
    ),
    Example(
        Correction.ENDS_WHEN_SENT,
        "ring of 4: an all-gather of 256 KiB of each rank, to which rank 3 comes late by 100 µs; then rank 3 "
        "computes for 20 µs",
        _one_late_all_gather,
        RING_4,
        reference=(105422, 110804, 116186, 120040),
        corrected=(110294, 115676, 116186, 124912),
    ),
)
