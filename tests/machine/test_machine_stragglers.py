"""Stragglers in the system file: what is read, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from machines import ring

from et_sim.basics.errors import MachineError
from et_sim.machine import Machine, read_machine
from et_sim.machine.model import Straggler

RING = ring(16)


def machine(*entries: Any) -> Machine:
    return read_machine(system={"stragglers": list(entries)}, network=RING)


def refusal(entry: Any) -> str:
    with pytest.raises(MachineError) as caught:
        machine({"ranks": "0", "delay": 1}, entry)
    return str(caught.value)


def test_every_key_is_read() -> None:
    one, two, three = machine(
        {"ranks": "3,8-11", "compute": 1.5, "delay": "1.5us"},
        {"ranks": "all", "jitter": 0.25, "seed": 7},
        {"ranks": "0-14/2", "node": 4, "delay": 20},
    ).system.stragglers
    assert one == Straggler((range(3, 4), range(8, 12)), compute=1.5, delay_ns=1500)
    assert two == Straggler(None, jitter=0.25, seed=7)
    assert three == Straggler((range(0, 15, 2),), delay_ns=20, node=4)


def test_without_stragglers_there_are_none() -> None:
    found = read_machine(system={}, network=RING)
    assert found.system.stragglers == ()
    assert found.straggling_ranks == 0


def test_a_list_without_an_entry_is_refused() -> None:
    with pytest.raises(MachineError, match=r'key "stragglers" is \[\]: it has no entry; leave the key out'):
        machine()


def test_ranks_named_twice_count_once() -> None:
    entries = [{"ranks": "0-3", "delay": 1}, {"ranks": "2-5", "compute": 2}]
    assert machine(*entries).straggling_ranks == 6
    assert machine(*entries, {"ranks": "all", "jitter": 0.1}).straggling_ranks == 16


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"ranks": "3"}, "the entry says nothing about its ranks"),
        ({"compute": 2}, 'key "ranks" is missing'),
        ({"ranks": "3", "computee": 2}, "did you mean 'compute'?"),
        ({"ranks": "3", "compute": 0}, 'key "compute" is 0 (allowed: a number > 0)'),
        ({"ranks": "3", "compute": -1}, 'key "compute" is -1'),
        ({"ranks": "3", "compute": "fast"}, 'key "compute" is "fast"'),
        ({"ranks": "3", "compute": True}, 'key "compute" is true'),
        ({"ranks": "3", "compute": float("inf")}, 'key "compute" is Infinity'),
        ({"ranks": "3", "delay": -1}, 'key "delay" is -1'),
        ({"ranks": "3", "delay": "soon"}, 'key "delay" is "soon"'),
        ({"ranks": "3", "delay": 0.5}, "no whole number of nanoseconds"),
        ({"ranks": "3", "delay": 2**60}, "is 1152921504606846976: more than 9007199254740992"),
        ({"ranks": "3", "jitter": 1}, "a number >= 0 and < 1"),
        ({"ranks": "3", "jitter": -0.1}, "a number >= 0 and < 1"),
        ({"ranks": "3", "jitter": 0.1, "seed": 1.5}, 'key "seed" is 1.5'),
        ({"ranks": "3", "delay": 1, "seed": 1}, 'key "seed" has no effect without "jitter"'),
        ({"ranks": "3", "compute": 1, "node": 1}, 'key "node" has no effect without "delay"'),
        ({"ranks": "3", "delay": 1, "node": -1}, 'key "node" is -1'),
        ({"ranks": "16", "delay": 1}, "names rank 16, and the network has 16 NPUs"),
        ({"ranks": "0-3,8-20", "delay": 1}, "names rank 20"),
        ({"ranks": "3-1", "delay": 1}, "has the empty range 3-1"),
        ({"ranks": "many", "delay": 1}, "cannot be understood"),
        ({"ranks": 3, "delay": 1}, 'key "ranks" is 3'),
    ],
)
def test_a_wrong_entry_is_refused_with_its_index(entry: Any, text: str) -> None:
    said = refusal(entry)
    assert said.startswith('<system>: "stragglers" index 1: ')
    assert text in said


@pytest.mark.parametrize("value", [{"ranks": "3", "delay": 1}, "3", [3], None])
def test_anything_but_a_list_of_objects_is_refused(value: Any) -> None:
    with pytest.raises(MachineError, match=r'key "stragglers" is .* a list of objects'):
        read_machine(system={"stragglers": value}, network=RING)
