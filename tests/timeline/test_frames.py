"""Frames of pandas equal the tables, to the last digit."""

from __future__ import annotations

import pyarrow as pa
import pytest
from machines import FIFO_RING, ring
from training_jobs import transformer

import et_sim

TABLES = ("timeline", "actors", "groups", "messages", "phases", "path", "links", "resources")


def test_every_table_becomes_a_frame_whose_whole_numbers_are_whole() -> None:
    pandas = pytest.importorskip("pandas")
    network = ring(8, "50GB/s")
    workload = transformer(tensor=2, pipeline=2, data=2)
    detail = "messages,phases,path,links"
    result = et_sim.simulate(workload, system=FIFO_RING, network=network, detail=detail)
    for name in TABLES:
        table, frame = result.table(name), result.to_pandas(name)
        assert list(frame.columns) == table.column_names
        for column, kind in zip(table.column_names, table.schema.types, strict=True):
            values = table.column(column).to_pylist()
            if pa.types.is_integer(kind):
                assert pandas.api.types.is_integer_dtype(frame[column].dtype), (name, column)
            if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
                assert [None if value is pandas.NA else value for value in frame[column].tolist()] == values
