"""The tensors among the arguments of operators, to columns.

What an argument is, its type says ("Tensor(float)", "GenericList[Tensor(float),Tensor(float)]"); a tensor
is written as [id, storage, offset, elements, bytes of an element, device].

Not here: shapes and types themselves, which stay text.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from converters.pytorch.columns import Tensors
from converters.pytorch.reading.growing import Columns, Kinds, Memo, Table, starts_of

_STORAGE, _ELEMENTS, _ELEMENT_BYTES, _DEVICE = 1, 3, 4, 5
_TENSOR_LENGTH = 6
_COLUMNS: Kinds = {
    "argument": np.uint16,
    "storage_id": None,
    "elements": None,
    "element_bytes": np.uint8,
    "device": np.int32,
}
_Found = tuple[int, list[Any]]  # number of the argument, and the tensor


class TensorColumns:
    """Collects the tensors of rows."""

    def __init__(self, texts: Table[str | bytes]) -> None:
        self._texts = texts
        self._wanted: Memo[bytes, tuple[int, ...]] = Memo(_arguments_with_tensors)
        self._decode = msgspec.json.Decoder(list[Any]).decode
        self._columns = Columns(_COLUMNS)

    def add(self, values: list[msgspec.Raw], types: list[bytes]) -> list[int]:
        """The next rows: their arguments, and the types of these; gives how many tensors each has."""
        found: list[_Found] = []
        counts = []
        for row_values, row_types in zip(values, types, strict=True):
            before = len(found)
            wanted = self._wanted[row_types]
            if wanted and row_values:
                arguments = self._decode(row_values)
                for number in wanted:
                    if number < len(arguments):
                        _collect(number, arguments[number], found)
            counts.append(len(found) - before)
        texts = self._texts
        self._columns.add(
            {
                "argument": [number for number, _ in found],
                "storage_id": [tensor[_STORAGE] for _, tensor in found],
                "elements": [tensor[_ELEMENTS] for _, tensor in found],
                "element_bytes": [tensor[_ELEMENT_BYTES] for _, tensor in found],
                "device": [texts[tensor[_DEVICE]] for _, tensor in found],
            }
        )
        return counts

    def finish(self, counts: Any) -> Tensors:
        """The tensors, given how many each row has."""
        return Tensors(starts_of(counts), **self._columns.finish())


def _arguments_with_tensors(types: bytes) -> tuple[int, ...]:
    names = msgspec.json.decode(types, type=list[Any]) if types else []
    return tuple(number for number, name in enumerate(names) if isinstance(name, str) and "Tensor(" in name)


def _collect(number: int, argument: Any, found: list[_Found]) -> None:
    """Append the tensors of an argument, in order, out of lists of lists, too."""
    left = [argument]
    while left:
        value = left.pop()
        if not isinstance(value, list):
            continue
        if len(value) == _TENSOR_LENGTH and isinstance(value[_DEVICE], str):
            if value[_ELEMENT_BYTES] or value[_DEVICE]:  # else it is the place of a tensor that was not given
                found.append((number, value))
        else:
            left.extend(reversed(value))
