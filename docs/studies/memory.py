"""A trillion parameters, most of them of experts that lie in remote memory: three ways to get at them.

    python docs/studies/memory.py

simulates all that docs/studies/memory.md shows, and writes its tables and pictures (some minutes).

Not here: the memory model (docs/memory.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from plots import Axis, Bar, Group, Line, lines, stacked_bars
from study_page import table, write_study

import et_sim
from et_sim.trace.group_rule import GroupRule

PAGE = Path(__file__).with_suffix(".md")
FAIR, IN_TURN = "fair", "in-turn"
NODE, ACROSS = "node", "across"  # the GPUs of a node, and those with one place in all nodes
TIER, POOL, SWITCHES = "tier per GPU", "pool", "pool with collectives"
PARTS = ("compute", "exposed memory", "exposed communication", "other")
VALUE, STATES = 2, 12  # bytes of a weight or gradient; of a parameter's copy and moments in the optimizer


class Model(Struct, frozen=True):
    """Pairs of a dense layer and one of experts; sizes of their matrices, and the tokens of a GPU."""

    pairs: int = 32
    hidden: int = 8192
    inner: int = 32768
    experts: int = 64
    experts_per_token: int = 2
    tokens: int = 4096

    @property
    def expert(self) -> int:
        """Return the parameters of one expert."""
        return 2 * self.hidden * self.inner

    @property
    def dense(self) -> int:
        """Return the parameters of a pair of layers without experts: two attentions, and one inner layer."""
        return 2 * 4 * self.hidden**2 + self.expert

    @property
    def parameters(self) -> int:
        """Return the parameters of the whole model."""
        return self.pairs * (self.experts * self.expert + self.dense)


class Machine(Struct, frozen=True):
    """Nodes of GPUs; bandwidths in GB/s."""

    nodes: int = 16
    gpus: int = 16  # of a node
    tflops: float = 1000.0
    local_memory: float = 3350.0
    in_node: float = 450.0
    between_nodes: float = 50.0
    memory: float = 100.0  # of one GPU's share of remote memory, or of one group of the pool
    fabric: float = 256.0  # of one GPU's link to the pool
    sharing: str = FAIR  # of its units


class Point(Struct, frozen=True):
    """One simulation: the iteration's time and its parts, means over GPUs, in seconds."""

    seconds: float
    parts: tuple[float, ...]


def workload(model: Model, machine: Machine, way: str) -> et_sim.Workload:
    """Return a job of one iteration; all GPUs run one program."""
    program = Program(model, machine, way)
    built = program.build()
    ranks = machine.nodes * machine.gpus
    rules = {NODE: GroupRule(machine.gpus, 1), ACROSS: GroupRule(machine.nodes, machine.gpus)}
    return et_sim.Workload((built,), np.zeros(ranks, np.int32), group_rules=rules)


class Program:
    """The program of a GPU: a node's GPUs share the experts, and the nodes' memories share each expert."""

    def __init__(self, model: Model, machine: Machine, way: str) -> None:
        self._model, self._machine, self._way = model, machine, way
        self._build = et_sim.TraceBuilder()
        self._own = model.experts // machine.gpus * model.expert  # parameters of the experts of a GPU
        self._shard = self._own // machine.nodes  # of these, what it keeps

    def build(self) -> Any:
        """Forward and backward; experts of a pair are fetched while the pair before is computed."""
        free: list[int] = []  # when each buffer of experts was free again
        last: list[int] = []
        for pair in range(self._model.pairs):
            weights = self._fetch(f"forward {pair}", free[-2:-1])
            last = self._dense(f"forward {pair}", last, 1)
            last = self._experts(f"forward {pair}", last, weights, 1)
            free += last[1:]
        for pair in reversed(range(self._model.pairs)):
            weights = self._fetch(f"backward {pair}", free[-2:-1])
            last = self._experts(f"backward {pair}", last, weights, 2)
            free += last[1:]
            self._update(f"backward {pair}", last[1:])
            last = self._dense(f"backward {pair}", last, 2)
            size = VALUE * self._model.dense // self._machine.gpus
            self._build.collective("all_reduce", size, ACROSS, after=last, name=f"gradients {pair}")
        return self._build.build()

    def _fetch(self, name: str, after: list[int]) -> list[int]:
        """Load the weights of a GPU's experts."""
        if self._way == SWITCHES:
            return [self._build.load(VALUE * self._own, gather=ACROSS, after=after, name=f"load {name}")]
        loaded = self._build.load(VALUE * self._shard, after=after, name=f"load {name}")
        size = VALUE * self._shard
        return [self._build.collective("all_gather", size, ACROSS, after=[loaded], name=f"gather {name}")]

    def _dense(self, name: str, after: list[int], passes: int) -> list[int]:
        """Add attention and inner layers, whose matrices the GPUs of a node share."""
        model, tokens = self._model, self._model.tokens * self._machine.gpus
        for part, weights in enumerate((4 * model.hidden**2, model.expert, 4 * model.hidden**2)):
            own = weights // self._machine.gpus
            computed = self._build.compute(
                f"dense {name} {part}",
                num_ops=2 * passes * tokens * own,
                tensor_bytes=passes * VALUE * (own + 2 * tokens * model.hidden),
                after=after,
            )
            size = VALUE * tokens * model.hidden
            after = [self._build.collective("all_reduce", size, NODE, after=[computed])]
        return after

    def _experts(self, name: str, after: list[int], weights: list[int], passes: int) -> list[int]:
        """Send tokens to their experts, which all nodes have, and back: [they are back, computed]."""
        model = self._model
        routed = model.tokens * model.experts_per_token
        size = VALUE * routed * model.hidden
        sent = self._build.collective("all_to_all", size, NODE, after=after, name=f"dispatch {name}")
        computed = self._build.compute(
            f"experts {name}",
            num_ops=2 * passes * routed * model.expert,
            tensor_bytes=passes * VALUE * (self._own + 2 * routed * model.hidden),
            after=[sent, *weights],
        )
        back = self._build.collective("all_to_all", size, NODE, after=[computed], name=f"combine {name}")
        return [back, computed]

    def _update(self, name: str, after: list[int]) -> None:
        """Sum gradients over the nodes; each GPU updates its shard, whose states lie in memory."""
        if self._way == SWITCHES:
            summed = self._build.store(VALUE * self._own, reduce=ACROSS, after=after, name=f"store {name}")
        else:
            size = VALUE * self._own
            reduced = self._build.collective("reduce_scatter", size, ACROSS, after=after, name=f"sum {name}")
            summed = self._build.store(VALUE * self._shard, after=[reduced], name=f"store {name}")
        states = (STATES + VALUE) * self._shard
        loaded = self._build.load(states, after=[summed], name=f"load states {name}")
        updated = self._build.compute(
            f"update {name}", num_ops=10 * self._shard, tensor_bytes=2 * states, after=[loaded]
        )
        self._build.store(states, after=[updated], name=f"store states {name}")


def memory_file(machine: Machine, way: str) -> dict[str, Any]:
    """Return the memory for a way to reach the experts."""
    gpus = machine.nodes * machine.gpus
    groups = {"name": "groups", "count": gpus, "bandwidth": machine.memory, "latency": "1us"}
    stages = [
        {"name": "links", "count": gpus, "bandwidth": machine.fabric, "latency": "500ns"},
        {
            "name": "node switches",
            "count": machine.nodes,
            "bandwidth": machine.gpus * machine.fabric,
            "latency": "500ns",
        },
        {"name": "system switches", "count": 1, "bandwidth": gpus * machine.fabric, "latency": "500ns"},
    ]
    stages = [groups] if way == TIER else [*stages, groups]
    return {
        "memory-type": "HIERARCHICAL_POOL",
        "chunk": "256KiB",
        "sharing": machine.sharing,
        "stages": stages,
    }


def simulated(model: Model, machine: Machine, way: str) -> Point:
    """Simulate one iteration."""
    system = {
        "profile": "corrected",
        "endpoint-delay": 10,
        "roofline-enabled": 1,
        "peak-perf": machine.tflops,
        "local-mem-bw": machine.local_memory,
        "preferred-dataset-splits": 1,
    } | {
        f"{name}-implementation": ["ring", "ring"]
        for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    }
    network = {
        "topology": ["Switch", "Switch"],
        "npus_count": [machine.gpus, machine.nodes],
        "bandwidth": [f"{machine.in_node}GB/s", f"{machine.between_nodes}GB/s"],
        "latency": [700.0, 2000.0],
    }
    result = et_sim.simulate(
        workload(model, machine, way), system=system, network=network, memory=memory_file(machine, way)
    )
    whole = float(result.makespan_ns)
    found = [
        float(np.mean(one)) for one in (result.compute_ns, result.exposed_memory_ns, result.exposed_comm_ns)
    ]
    return Point(whole / 1e9, tuple(ns / 1e9 for ns in (*found, max(whole - sum(found), 0.0))))


MEMORIES = (25.0, 50.0, 100.0, 200.0, 400.0)
FABRICS = (64.0, 128.0, 256.0, 512.0, 1024.0)
SPEEDS = (500.0, 1000.0, 2000.0)


class Study:
    """All simulations, each done once."""

    def __init__(self, model: Model, machine: Machine) -> None:
        self.model, self.machine = model, machine
        self._known: dict[tuple[Machine, str], Point] = {}

    def point(self, way: str, **figures: Any) -> Point:
        """Simulate the iteration on a machine with other figures."""
        machine = replace(self.machine, **figures)
        if way == TIER:  # has no fabric, and shares nothing
            machine = replace(machine, fabric=self.machine.fabric, sharing=FAIR)
        if (machine, way) not in self._known:
            self._known[machine, way] = simulated(self.model, machine, way)
        return self._known[machine, way]

    def chosen(self) -> list[tuple[str, Point]]:
        """Return the four compared settings."""
        return [
            (TIER, self.point(TIER)),
            (POOL, self.point(POOL)),
            (SWITCHES, self.point(SWITCHES)),
            ("tuned", self.tuned()),
        ]

    def tuned(self, **figures: Any) -> Point:
        """Return the pool with collectives, with the fastest memory and fabric of the sweep."""
        return self.point(SWITCHES, memory=MEMORIES[-1], fabric=FABRICS[-1], **figures)


def assumptions(model: Model, machine: Machine) -> str:
    """Write the numbers of the simulated system."""
    gpus = machine.nodes * machine.gpus
    rows = [
        ("parameters", f"{model.parameters / 1e12:.2f} · 10^12"),
        ("layers", f"{2 * model.pairs}, every second one of {model.experts} experts"),
        ("hidden size, inner size", f"{model.hidden:,}, {model.inner:,}"),
        ("tokens of a GPU, experts of a token", f"{model.tokens:,}, {model.experts_per_token}"),
        ("GPUs", f"{gpus}: {machine.nodes} nodes of {machine.gpus}"),
        ("a GPU", f"{machine.tflops:,.0f} TFLOP/s, {machine.local_memory:,.0f} GB/s"),
        ("network, a GPU in its node", f"{machine.in_node:.0f} GB/s, 0.7 µs"),
        ("network, a GPU between nodes", f"{machine.between_nodes:.0f} GB/s, 2 µs"),
        ("remote memory, for each GPU", f"{machine.memory:.0f} GB/s, 1 µs"),
        ("fabric of the pool, for each GPU", f"{machine.fabric:.0f} GB/s at each of three stages, 0.5 µs"),
    ]
    return table(("what", "assumed"), rows)


def compared(study: Study) -> str:
    """Write the four settings with the parts of their time."""
    base = study.point(TIER).seconds
    rows = [
        (name, *(f"{value:.2f}" for value in (one.seconds, *one.parts[:3])), f"{base / one.seconds:.2f}")
        for name, one in study.chosen()
    ]
    return table(("experts in", "s", "compute", "exposed memory", "exposed communication", "faster"), rows)


def findings(study: Study) -> str:
    """Write the figures that the paper has, too."""
    rows = []
    for speed in SPEEDS:
        before, after = study.point(TIER, tflops=speed).seconds, study.tuned(tflops=speed).seconds
        rows.append((f"{speed:,.0f} TFLOP/s", f"{before:.2f}", f"{after:.2f}", f"{before / after:.2f}"))
    head = ("GPUs of", f"{TIER}, s", "tuned, s", "faster")
    return f"{apart(study)}\n\n{table(head, rows)}"


def apart(study: Study) -> str:
    """Write the difference between the plain pool and the tier, and the cost of turns."""
    tier = study.point(TIER).seconds
    pool, turns = (study.point(POOL, sharing=sharing).seconds / tier - 1 for sharing in (FAIR, IN_TURN))
    switches = study.point(SWITCHES, sharing=IN_TURN).seconds
    return (
        f"The plain pool takes {100 * pool:.4f} % longer than a {TIER} of the same bandwidth. If units "
        f"served one\ntransfer after the other, it would take {100 * turns:.2f} % longer, and the {SWITCHES} "
        f"{switches:.2f} s."
    )


def sweeps(study: Study) -> str:
    """Write the seconds that the pictures show."""
    by_memory = [
        (
            f"{memory:.0f}",
            *(f"{study.point(way, memory=memory).seconds:.2f}" for way in (TIER, POOL, SWITCHES)),
        )
        for memory in MEMORIES
    ]
    by_fabric = [
        (f"{fabric:,.0f}", *(f"{study.point(way, fabric=fabric).seconds:.2f}" for way in (POOL, SWITCHES)))
        for fabric in FABRICS
    ]
    memories = table(("GB/s of each GPU's memory", TIER, POOL, SWITCHES), by_memory)
    fabrics = table(("GB/s of each GPU's fabric", POOL, SWITCHES), by_fabric)
    return f"{memories}\n\n{fabrics}"


def pictures(study: Study) -> dict[str, str]:
    """Draw the bars of the four settings, and the two sweeps."""
    bars = [Group("", [Bar(name, one.parts, f"{one.seconds:.1f}")]) for name, one in study.chosen()]
    by_memory = [
        Line(way, [(memory, study.point(way, memory=memory).seconds) for memory in MEMORIES])
        for way in (TIER, POOL, SWITCHES)
    ]
    by_memory.append(
        Line(
            f"{SWITCHES}, fabric {FABRICS[-1]:,.0f} GB/s",
            [(m, study.point(SWITCHES, memory=m, fabric=FABRICS[-1]).seconds) for m in MEMORIES],
        )
    )
    by_fabric = [
        Line(way, [(fabric, study.point(way, fabric=fabric).seconds) for fabric in FABRICS])
        for way in (POOL, SWITCHES)
    ]
    up = Axis("seconds of an iteration")
    memory, fabric = (
        Axis(f"GB/s of {what}", is_log=True) for what in ("each GPU's memory", "each GPU's fabric")
    )
    return {
        "memory-parts.svg": stacked_bars("Where an iteration's time goes", "seconds", PARTS, bars),
        "memory-bandwidth.svg": lines("Bandwidth of remote memory", memory, up, by_memory),
        "memory-fabric.svg": lines("Bandwidth of the pool's fabric", fabric, up, by_fabric),
    }


def main() -> None:
    """Simulate all, and write the page."""
    study = Study(Model(), Machine())
    texts = {
        "assumptions": assumptions(study.model, study.machine),
        "compared": compared(study),
        "sweeps": sweeps(study),
        "findings": findings(study),
    }
    write_study(PAGE, texts, pictures(study))


if __name__ == "__main__":
    main()
