"""Arrow tables as pandas has them, without loss. Not here: which table is meant (`result`)."""

from __future__ import annotations

from typing import Any

from et_sim.run.result.screens import library


def as_frame(table: Any) -> Any:
    """As pandas has it, but for whole numbers and truth values with gaps, which become floats there."""
    import pyarrow as pa

    pandas = library("pandas")
    missing = {
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
        pa.uint64(): pandas.UInt64Dtype(),
        pa.bool_(): pandas.BooleanDtype(),
    }
    frame = table.to_pandas()
    for name in table.column_names:
        column = table.column(name)
        if column.null_count and column.type in missing:
            frame[name] = column.to_pandas(types_mapper=missing.get)
    return frame
