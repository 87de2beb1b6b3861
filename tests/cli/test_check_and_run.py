"""`check` and `run` agree: both refuse the same inputs, and a workload without problems is run.

Small workloads with common mistakes run on small machines; an interpreted run ends with 0, 1 (a stall) or 2
(refused).
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from machines import LISTS
from msgspec.structs import replace

from et_sim.cli import main
from et_sim.trace import Trace, TraceBuilder, Workload, write_workload
from et_sim.trace.columns import CollectiveKind

RANKS = 4
KINDS = [kind.name.lower() for kind in CollectiveKind]
GROUPS: dict[str, list[int]] = {"1": [2, 3], "pairs": [0, 1], "all four": [3, 1, 0, 2]}


def a_workload(chance: random.Random) -> Workload:
    """Return a workload of equal members, in some of which a step is left out, added or changed."""
    steps = [a_step(chance) for _ in range(chance.randint(1, 4))]
    spoilt = chance.random() < 0.6
    traces = []
    for rank in range(RANKS):
        build = TraceBuilder(source=f"rank {rank}")
        made: list[int] = []
        for what, group, size, peers in steps:
            if spoilt and chance.random() < 0.12:
                continue
            if spoilt and chance.random() < 0.08:
                size *= 2
            after = made[-1:] if chance.random() < 0.5 else []
            made += nodes(build, chance, rank, what, group, size, peers, after, spoilt)
        if not made:
            build.compute(micros=1)
        traces.append(build.build())
    if spoilt and chance.random() < 0.2:
        at = chance.randrange(RANKS)
        traces[at] = damaged(traces[at], chance)
    return Workload.of(traces)


def damaged(trace: Trace, chance: random.Random) -> Trace:
    """Return the trace with a communication on the CPU, or with a collective of an unknown type."""
    row = chance.randrange(len(trace))
    if chance.random() < 0.5:
        on_cpu = trace.is_cpu.copy()
        on_cpu[row] = True
        return replace(trace, is_cpu=on_cpu)
    types = trace.comm_type.copy()
    types[row] = 77
    return replace(trace, comm_type=types)


def a_step(chance: random.Random) -> tuple[str, str, int, tuple[int, int]]:
    what = chance.choice([*KINDS, "all_reduce", "message", "message", "compute"])
    group = chance.choice(["", "", "", *GROUPS, "nobody's"] if chance.random() < 0.2 else ["", "", *GROUPS])
    peers = chance.sample(range(RANKS + (chance.random() < 0.05)), 2)
    return what, group, chance.choice([0, 1, 64, 1000]), (peers[0], peers[1])


def nodes(
    build: TraceBuilder,
    chance: random.Random,
    rank: int,
    what: str,
    group: str,
    size: int,
    peers: tuple[int, int],
    after: list[int],
    spoilt: bool,
) -> list[int]:
    """Add the work of a rank in a step, and return its last nodes."""
    if what == "compute":
        return [build.compute(micros=chance.randint(0, 5), after=after)]
    if what == "message":
        tag = int(spoilt and chance.random() < 0.1)
        if rank == peers[0]:
            return [build.send(peers[1], size, tag, after=after)]
        return [build.receive(peers[0], size, tag, after=after)] if rank == peers[1] else []
    if rank not in GROUPS.get(group, range(RANKS)) and not (spoilt and chance.random() < 0.1):
        return []
    return [build.collective(what, size, group, after=after)]


def a_machine(chance: random.Random, folder: Path) -> list[str]:
    """Write the files of a random machine and return the options that name them."""
    grid = chance.choice([[4], [4], [2, 2]])
    algorithms = [chance.choice(["ring", "direct", "halvingDoubling"])] * chance.choice([len(grid)] * 3 + [1])
    system: dict[str, Any] = {f"{name}-implementation": algorithms for name in LISTS}
    system["preferred-dataset-splits"] = chance.choice([1, 2])
    if chance.random() < 0.5:
        system["profile"] = "corrected"
    for key in ("replay-only", "rendezvous-protocol"):
        if chance.random() < 0.1:
            system[key] = 1
    network = {"topology": ["Ring"] * len(grid), "npus_count": grid}
    network |= {"bandwidth": [50] * len(grid), "latency": [500] * len(grid)}
    options = []
    for name, content in (("system", system), ("network", network), ("groups", GROUPS)):
        (folder / f"{name}.json").write_text(json.dumps(content))
        options += [f"--{name}", str(folder / f"{name}.json")]
    return options if chance.random() < 0.9 else options[:-2]


def agree(seed: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Compare the two; returns the status of the run."""
    chance = random.Random(seed)
    prefix = str(folder / f"w{seed}")
    write_workload(a_workload(chance), prefix)
    machine = a_machine(chance, folder)
    result = main(["check", prefix, *machine])
    output = capsys.readouterr()
    status = main(["run", prefix, *machine, "--out", str(folder / "out")])
    err = capsys.readouterr().err
    context = f"seed {seed}\n{output.out}{output.err}\n{err}"
    assert result == 0 or status != 0, context  # a workload refused by `check` does not complete
    assert result == 2 or status != 2, context  # a workload refused by `run` is refused by `check`
    return status


@pytest.mark.deep
@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("first", [0, 60])
def test_check_and_run_agree(
    first: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    results = [agree(seed, tmp_path, capsys) for seed in range(first, first + 60)]
    assert {results.count(status) > 2 for status in (0, 1, 2)} == {True}
