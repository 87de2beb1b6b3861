"""Damage to the tables of a run: bytes of the file, or values that are possible and wrong."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from mutations import NUMBERS, damage_bytes

LIMITS = {pa.int32(): (-(2**31), 2**31 - 1), pa.int64(): (-(2**63), 2**63 - 1), pa.uint64(): (0, 2**64 - 1)}
TEXTS = ("", "0-999999999", "3-1", "x", "0,0", "-1", None)


def damage_table(content: bytes, chance: random.Random) -> bytes:
    """Change cells, remove or reorder rows, empty columns; or damage bytes."""
    if chance.random() < 0.2:
        return damage_bytes(content, chance)
    with pa.ipc.open_file(pa.py_buffer(content)) as file:
        table = file.read_all()
    for _ in range(chance.choice((1, 1, 3))):
        table = _changed(table, chance)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _changed(table: Any, chance: random.Random) -> Any:
    rows = list(range(len(table)))
    match chance.randrange(8):
        case 0:
            return table.slice(0, chance.randrange(len(table) + 1))
        case 1:
            chance.shuffle(rows)
            return table.take(rows)
        case 2 if rows:
            return pa.concat_tables([table, table.take([chance.choice(rows)])])
    at = chance.randrange(table.num_columns)
    field, column = table.schema.field(at), table.column(at).combine_chunks()
    values = column.to_pylist()
    for row in rows if chance.random() < 0.2 else [chance.choice(rows)] if rows else []:
        values[row] = _other(field.type, values, chance)
    return table.set_column(at, field, pa.array(values, field.type))


def _other(kind: Any, values: list[Any], chance: random.Random) -> Any:
    """Return another value of a type, or none."""
    if chance.random() < 0.15:
        return None
    if kind in LIMITS:
        low, high = LIMITS[kind]
        return min(max(int(chance.choice([n for n in NUMBERS if isinstance(n, int)])), low), high)
    if kind == pa.float64():
        return chance.choice((float("nan"), float("inf"), -1.0, 1e300))
    if kind == pa.bool_():
        return chance.random() < 0.5
    return chance.choice((*TEXTS, chance.choice(values)))
