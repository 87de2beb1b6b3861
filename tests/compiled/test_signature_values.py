"""Orders are read back as they were written: the machine code depends on every part of a signature."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from engines_ahead import simulate

from et_sim.compiled.compile_queue import Order
from et_sim.compiled.entry_points import CompiledEntry
from et_sim.compiled.interpreted import interpret
from et_sim.compiled.signature import address_of, is_same_call, reference_to, signature_of
from et_sim.compiled.store import code_path
from et_sim.compiled.tables_by_reference import Tables


class Pair(NamedTuple):
    first: Any
    second: Any


PLAIN = np.dtype([("count", np.int32), ("time", np.int64)], align=True)
NESTED = np.dtype([("pair", PLAIN), ("many", np.float64, (2, 3))])
ARGUMENTS = [
    np.zeros(3, np.int64),
    np.zeros((2, 3), np.float32, order="F"),
    np.zeros((4, 4), ">i2")[::2, ::2],
    np.zeros(2, PLAIN),
    np.zeros(2, NESTED),
    np.zeros(2, NESTED).view(np.recarray),
    np.frombuffer(b"read only", np.uint8),
    (),
    (1, 2.5, True),
    Pair(np.zeros(1), (Pair(1, 2),)),
]


def _read_back(signature: tuple[Any, ...], tmp: str = "/x/simulate-1.code") -> Order:
    return Order.from_bytes(Order(Path(tmp), "a.module", "function", signature, ("/a", "/b")).as_bytes())


def _exactly(signature: Any) -> Any:
    """Return a signature with the properties that equality of dtypes leaves out."""
    if isinstance(signature, np.dtype):
        fields = [(name, *map(_exactly, field)) for name, field in (signature.fields or {}).items()]
        return (signature, signature.type, signature.isalignedstruct, signature.itemsize, fields)
    if isinstance(signature, tuple):
        return (type(signature), *map(_exactly, signature))
    return signature


@pytest.mark.parametrize("argument", ARGUMENTS, ids=str)
def test_each_kind_of_argument_is_read_back_as_it_was_written(argument: Any) -> None:
    signature = signature_of((argument, 7))
    order = _read_back(signature)
    assert order.signature == signature
    assert _exactly(order.signature) == _exactly(signature)
    assert (order.module, order.function, order.search_paths) == ("a.module", "function", ("/a", "/b"))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that collects functions and signatures of all calls, which are interpreted."""
    calls: list[Any] = []

    def run(entry: Any, _seconds: Any, *arguments: Any) -> Any:
        calls.append((entry.function, signature_of(arguments)))
        return interpret(entry.function, arguments)

    monkeypatch.setattr(CompiledEntry, "_run", run)
    return calls


@pytest.mark.parametrize("model", ["analytical", "packet"])
def test_the_machine_code_of_a_run_has_the_same_name_after_reading_its_order(
    model: str, seen: list[Any]
) -> None:
    simulate(model=model, detail="path" if model == "analytical" else "nodes")
    assert {function.__name__ for function, _ in seen} >= {"simulate"}
    for function, signature in seen:
        read = _read_back(signature).signature
        assert _exactly(read) == _exactly(signature)
        assert code_path(function, read) == code_path(function, signature)


@pytest.mark.parametrize(
    "signature",
    ["5", '["list"]', '[["array", "O8x", 1]]', '[["tuple", ["os", "system"], []]]', '[["array", 5]]'],
)
def test_a_value_that_is_no_signature_is_refused(signature: str) -> None:
    text = f'{{"path": "p", "module": "m", "function": "f", "signature": {signature}, "search_paths": []}}'
    with pytest.raises((TypeError, ValueError)):
        Order.from_bytes(text.encode())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5),
        np.zeros(0),
        np.arange(12).reshape(3, 4)[1:, 2:],
        np.arange(5)[::-1],
        np.zeros(3, [("a", "i8"), ("b", "i4")]).view(np.recarray),
        np.frombuffer(b"read only", np.uint8),
    ],
)
def test_the_address_of_an_array_is_that_of_its_first_item(array: Any) -> None:
    assert address_of(array) == array.ctypes.data


@dataclass(frozen=True, eq=False)
class Counts(Tables):
    counts: Any


def test_a_call_is_the_same_if_it_has_the_same_tables_and_nothing_but_whole_numbers_besides() -> None:
    tables, equal = Counts(np.zeros(1)), Counts(np.zeros(1))
    reference = reference_to(tables)
    calls = [(tables,), (tables, 1), (equal,), (equal, 1), (tables, 1.0), (tables, 1, tables)]
    assert [is_same_call(reference, call) for call in calls] == [True, True, False, False, False, False]
    assert not is_same_call(reference_to(1), (1,))
