"""Lists of the system file about ranks and work: reading of stragglers, time factors and streams."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from machines import RING_2, ring

import et_sim
from et_sim.basics.errors import MachineError
from et_sim.machine import Machine, read_machine
from et_sim.machine.model import Straggler, StreamWork, WorkKind
from et_sim.trace import TraceBuilder, Workload

RING = ring(16)


def machine(key: str = "streams", *entries: Any, **more: Any) -> Machine:
    return read_machine(system=({key: list(entries)} if entries else {}) | more, network=RING)


def test_every_key_of_stragglers_is_read() -> None:
    first, second, third = machine(
        "stragglers",
        {"ranks": "3,8-11", "compute": 1.5, "delay": "1.5us"},
        {"ranks": "all", "jitter": 0.25, "seed": 7},
        {"ranks": "0-14/2", "node": 4, "delay": 20},
    ).system.stragglers
    assert first == Straggler((range(3, 4), range(8, 12)), compute=1.5, delay_ns=1500)
    assert second == Straggler(None, jitter=0.25, seed=7)
    assert third == Straggler((range(0, 15, 2),), delay_ns=20, node=4)


def test_every_key_of_time_factors_is_read() -> None:
    first, second = machine(
        "time-factors",
        {"ranks": "3,8-11", "name": "*gemm*", "kernels": 0.5},
        {"copies": 2, "operators": 3, "launches": 0, "gaps": 1, "communication": 1.5},
    ).system.time_factors
    assert (first.ranks, first.name) == ((range(3, 4), range(8, 12)), "*gemm*")
    assert first.factors == {WorkKind.KERNELS: 0.5}
    assert (second.ranks, second.name) == (None, None)
    assert list(second.factors.values()) == [2, 3, 0, 1, 1.5]


def test_every_key_of_streams_and_overlap_is_read() -> None:
    entry = {"name": "n", "takes": ["kernels", "collectives"], "at-a-time": 3}
    (queue,) = machine("streams", entry | {"nodes": "*x", "group": "3", "stream": 7}).system.streams
    assert (queue.name, queue.at_a_time, queue.nodes, queue.group, queue.recorded) == ("n", 3, "*x", "3", 7)
    assert queue.takes == {StreamWork.KERNELS, StreamWork.COLLECTIVES}
    (slowed,) = machine(overlap={"kernels": 1.2, "copies": 1}).system.overlap
    assert (slowed.work, slowed.factor) == (StreamWork.KERNELS, Fraction(6, 5))


def test_without_the_keys_there_are_none() -> None:
    result = machine()
    assert (result.system.stragglers, result.system.time_factors, result.system.streams) == ((), (), ())
    assert result.straggling_ranks == 0


def test_ranks_named_twice_count_once() -> None:
    entries = [{"ranks": "0-3", "delay": 1}, {"ranks": "2-5", "compute": 2}]
    assert machine("stragglers", *entries).straggling_ranks == 6
    assert machine("stragglers", *entries, {"ranks": "all", "jitter": 0.1}).straggling_ranks == 16


FIRST = {
    "stragglers": {"ranks": "0", "delay": 1},
    "time-factors": {"kernels": 1},
    "streams": {"name": "first", "takes": ["kernels"]},
}
WRONG = [
    ("stragglers", entry, text)
    for entry, text in (
        ({"ranks": "3"}, "the entry has no effect"),
        ({"ranks": "3", "computee": 2}, "did you mean 'compute'?"),
        ({"ranks": "3", "delay": 0.5}, "not a whole number of nanoseconds"),
        ({"ranks": "3", "delay": 2**60}, "is 1152921504606846976: more than 9007199254740992"),
        ({"ranks": "3", "jitter": 1}, "a number >= 0 and < 1"),
        ({"ranks": "3", "delay": 1, "seed": 1}, 'key "seed" has no effect without "jitter"'),
        ({"ranks": "3", "compute": 1, "node": 1}, 'key "node" has no effect without "delay"'),
        ({"ranks": "16", "delay": 1}, "names rank 16, and the network has 16 NPUs"),
        ({"ranks": "0-3,8-20", "delay": 1}, "names rank 20"),
        ({"ranks": "3-1", "delay": 1}, "has the empty range 3-1"),
        ({"ranks": "many", "delay": 1}, "cannot be understood"),
    )
]
WRONG += [
    ("time-factors", entry, text)
    for entry, text in (
        ({}, "the entry has no factor (give at least one of kernels, copies, operators, launches"),
        ({"ranks": "3"}, "the entry has no factor"),
        ({"kernels": 2, "ranks": "0-3,8-20"}, "names rank 20, and the network has 16 NPUs"),
    )
]
WRONG += [
    ("streams", entry, text)
    for entry, text in (
        ({"name": "a", "takes": ["kernel"]}, "index 0 is \"kernel\" (did you mean 'kernels'?"),
        ({"name": "a", "takes": ["kernels"], "at-a-time": 0}, "without it, no node of the stream starts"),
        ({"name": "a", "takes": ["kernels"], "at_a_time": 2}, "did you mean 'at-a-time'?"),
        ({"name": "a", "takes": ["kernels"], "group": "1"}, 'the entry takes no collectives (add "coll'),
        ({"name": "first", "takes": ["copies"]}, 'is called "first", as is index 0 of "streams"'),
    )
]


@pytest.mark.parametrize(("key", "entry", "text"), WRONG)
def test_a_wrong_entry_is_refused_with_its_index(key: str, entry: Any, text: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine(key, FIRST[key], entry)
    assert str(caught.value).startswith(f'<system>: "{key}" index 1: ')
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("overlap", "text"),
    [
        ({"kernel": 2}, "did you mean 'kernels'?"),
        ({"kernels": 1.2345}, 'key "kernels" is 1.2345, with more than three decimals (round it'),
    ],
)
def test_a_wrong_factor_is_refused(overlap: Any, text: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine(overlap=overlap)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"nodes": "gem"}, "none of the kernels has it (did you mean 'gemm'?)"),
        ({"nodes": "z*"}, 'none of the kernels has it (there are "gemm")'),
        ({"stream": 3}, 'key "stream" is 3, but none of the kernels was recorded there (recorded: 7)'),
        ({"takes": ["collectives"], "group": "tp"}, 'key "group" is "tp", but none of the collectives'),
    ],
)
def test_work_that_no_node_has_is_refused(entry: Any, text: str) -> None:
    build = TraceBuilder()
    build.compute("gemm", nanos=5, attributes={"stream": 7})
    build.collective("all_reduce", 8)
    workload = Workload((build.build(),), np.zeros(2, np.int32), source="built")
    streams = [{"name": "a", "takes": ["kernels"]} | entry]
    with pytest.raises(MachineError) as caught:
        et_sim.simulate(
            workload, system={"streams": streams, "all-reduce-implementation": ["ring"]}, network=RING_2
        )
    assert text in str(caught.value)


def test_a_stream_without_work_is_a_warning() -> None:
    build = TraceBuilder()
    build.compute("gemm", nanos=5)
    workload = Workload((build.build(),), np.zeros(2, np.int32), source="built")
    streams = [{"name": "a", "takes": ["copies"]}]
    result = et_sim.simulate(workload, system={"streams": streams}, network=RING_2)
    assert [warning["text"] for warning in result.manifest["warnings"]] == ["no effect: there are no copies"]


def test_a_stream_whose_nodes_are_all_taken_before_is_a_warning() -> None:
    build = TraceBuilder()
    build.compute("gemm", nanos=5)
    workload = Workload((build.build(),), np.zeros(2, np.int32), source="built")
    streams = [{"name": "a", "takes": ["kernels"]}, {"name": "b", "takes": ["kernels"], "nodes": "gemm"}]
    result = et_sim.simulate(workload, system={"streams": streams}, network=RING_2)
    (warning,) = result.manifest["warnings"]
    assert warning["place"] == '<system>: "streams" index 1'
    assert warning["text"] == "no effect: earlier entries take all its nodes"
