"""Time factors in the system file: what is read, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from machines import ring

from et_sim.basics.errors import MachineError
from et_sim.machine import Machine, read_machine
from et_sim.machine.model import WorkKind

RING = ring(16)


def machine(*entries: Any) -> Machine:
    return read_machine(system={"time-factors": list(entries)}, network=RING)


def test_every_key_is_read() -> None:
    one, two = machine(
        {"ranks": "3,8-11", "name": "*gemm*", "kernels": 0.5},
        {"copies": 2, "operators": 3, "launches": 0, "gaps": 1, "communication": 1.5},
    ).system.time_factors
    assert (one.ranks, one.name) == ((range(3, 4), range(8, 12)), "*gemm*")
    assert one.factors == {WorkKind.KERNELS: 0.5}
    assert (two.ranks, two.name) == (None, None)
    assert list(two.factors.values()) == [2, 3, 0, 1, 1.5]


def test_without_the_key_nothing_is_scaled() -> None:
    assert read_machine(system={}, network=RING).system.time_factors == ()


def test_a_list_without_an_entry_is_refused() -> None:
    with pytest.raises(MachineError, match=r'key "time-factors" is \[\]: it has no entry; leave the key out'):
        machine()


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({}, "the entry gives no factor (give at least one of kernels, copies, operators, launches"),
        ({"ranks": "3"}, "the entry gives no factor"),
        ({"kernel": 2}, "key \"kernel\" is not known (did you mean 'kernels'?)"),
        ({"speed": 2}, 'key "speed" is not known (known keys: ranks, name, kernels'),
        ({"kernels": -0.5}, 'key "kernels" is -0.5 (allowed: a number >= 0)'),
        ({"kernels": "half"}, 'key "kernels" is "half"'),
        ({"kernels": True}, 'key "kernels" is true'),
        ({"kernels": float("inf")}, 'key "kernels" is Infinity'),
        ({"kernels": 2, "name": ""}, 'key "name" is ""'),
        ({"kernels": 2, "name": ["a"]}, 'key "name" is ["a"]'),
        ({"kernels": 2, "ranks": 3}, 'key "ranks" is 3'),
        ({"kernels": 2, "ranks": "3-1"}, "has the empty range 3-1"),
        ({"kernels": 2, "ranks": "0-3,8-20"}, "names rank 20, and the network has 16 NPUs"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_index(entry: Any, text: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine({"kernels": 1}, entry)
    assert str(caught.value).startswith('<system>: "time-factors" index 1: ')
    assert text in str(caught.value)


@pytest.mark.parametrize("value", [{"kernels": 0.5}, 0.5, [0.5], None])
def test_anything_but_a_list_of_objects_is_refused(value: Any) -> None:
    with pytest.raises(MachineError, match=r'key "time-factors" is .* a list of objects'):
        read_machine(system={"time-factors": value}, network=RING)
