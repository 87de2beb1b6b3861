"""Streams and overlap in the system file: what is read, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from machines import RING_2

import et_sim
from et_sim.basics.errors import MachineError
from et_sim.machine import Machine, read_machine
from et_sim.machine.model import StreamWork
from et_sim.trace import TraceBuilder, Workload


def machine(*entries: Any, **more: Any) -> Machine:
    return read_machine(system=({"streams": list(entries)} if entries else {}) | more, network=RING_2)


def test_every_key_is_read() -> None:
    entry = {"name": "n", "takes": ["kernels", "collectives"], "at-a-time": 3}
    (one,) = machine(entry | {"nodes": "*x", "group": "3", "stream": 7}).system.streams
    assert (one.name, one.at_a_time, one.nodes, one.group, one.recorded) == ("n", 3, "*x", "3", 7)
    assert one.takes == {StreamWork.KERNELS, StreamWork.COLLECTIVES}
    (slowed,) = machine(overlap={"kernels": 1.2, "copies": 1}).system.overlap
    assert (slowed.work, slowed.factor) == (StreamWork.KERNELS, Fraction(6, 5))


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({}, 'key "name" is missing'),
        ({"name": "a"}, 'key "takes" is missing'),
        ({"name": "a", "takes": []}, 'key "takes" is [] (allowed: a list with some of kernels, copies'),
        ({"name": "a", "takes": "kernels"}, 'key "takes" is "kernels" (allowed: a list'),
        ({"name": "a", "takes": ["kernel"]}, "index 0 is \"kernel\" (did you mean 'kernels'?"),
        ({"name": "a", "takes": ["kernels"], "at-a-time": 0}, "nothing on the stream would ever start"),
        ({"name": "a", "takes": ["kernels"], "at_a_time": 2}, "did you mean 'at-a-time'?"),
        ({"name": "a", "takes": ["kernels"], "group": "1"}, 'the entry takes no collectives (add "coll'),
        ({"name": "first", "takes": ["copies"]}, 'an entry before is called "first", too'),
    ],
)
def test_a_wrong_entry_is_refused_with_its_index(entry: Any, text: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine({"name": "first", "takes": ["kernels"]}, entry)
    assert str(caught.value).startswith('<system>: "streams" index 1: ')
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("overlap", "text"),
    [
        ({"kernel": 2}, "did you mean 'kernels'?"),
        ({"kernels": 0.9}, 'key "kernels" is 0.9 (allowed: a number >= 1)'),
        ({"kernels": 11}, 'key "kernels" is 11: more than 10'),
        ({"kernels": 1.2345}, 'key "kernels" is 1.2345, with more than three decimals (round it'),
        ([1], 'key "overlap" is [1] (allowed: an object'),
    ],
)
def test_a_wrong_factor_is_refused(overlap: Any, text: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine(overlap=overlap)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"nodes": "gem"}, "none of the kernels is of that (did you mean 'gemm'?)"),
        ({"nodes": "z*"}, 'none of the kernels is of that (there are "gemm")'),
        ({"stream": 3}, 'key "stream" is 3, and none of the kernels was recorded there (recorded: 7)'),
        ({"takes": ["collectives"], "group": "tp"}, 'key "group" is "tp", and none of the collectives'),
    ],
)
def test_what_no_node_is_of_is_refused(entry: Any, text: str) -> None:
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


def test_a_stream_with_nothing_to_do_is_a_warning() -> None:
    build = TraceBuilder()
    build.compute("gemm", nanos=5)
    workload = Workload((build.build(),), np.zeros(2, np.int32), source="built")
    streams = [{"name": "a", "takes": ["copies"]}]
    result = et_sim.simulate(workload, system={"streams": streams}, network=RING_2)
    assert [one["text"] for one in result.manifest["warnings"]] == ["no effect: there are no copies"]


def test_a_stream_whose_nodes_are_all_taken_before_is_a_warning() -> None:
    build = TraceBuilder()
    build.compute("gemm", nanos=5)
    workload = Workload((build.build(),), np.zeros(2, np.int32), source="built")
    streams = [{"name": "a", "takes": ["kernels"]}, {"name": "b", "takes": ["kernels"], "nodes": "gemm"}]
    result = et_sim.simulate(workload, system={"streams": streams}, network=RING_2)
    (warning,) = result.manifest["warnings"]
    assert warning["place"] == '<system>: "streams" index 1'
    assert warning["text"] == "no effect: entries before it take all nodes that fit it"
