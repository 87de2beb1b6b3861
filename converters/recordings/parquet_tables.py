"""A folder of Parquet files, each a table named like its file, read as the tables of an SQLite file are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from converters.recordings.sqlite_tables import Tables

SUFFIX = ".parquet"
RAW = ("binaryData",)  # columns of bytes, which exports declare as text
_AT_A_TIME = 1 << 16


class ParquetTables(Tables):
    """The tables of a folder, with their columns."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "table")
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._errors = OSError, pa.ArrowException, UnicodeDecodeError, OverflowError, ValueError
        for file in sorted(path.glob(f"*{SUFFIX}")):
            with self.refused(file, *self._errors):
                self.columns[file.name.removesuffix(SUFFIX)] = tuple(pq.read_schema(file).names)

    def __enter__(self) -> ParquetTables:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing: files are open only while they are read."""

    def rows(
        self, table: str, names: Mapping[str, Sequence[str]], order: str = ""
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the values of columns; each has its possible names, and is None where the table lacks it."""
        known = self.columns.get(table, ())
        chosen = [next((name for name in choices if name in known), None) for choices in names.values()]
        wanted = list(dict.fromkeys(name for name in chosen if name is not None))
        if not wanted:
            return
        import pyarrow.parquet as pq

        file = self.path / f"{table}{SUFFIX}"
        with self.refused(file, *self._errors):
            content = pq.read_table(file, columns=[*wanted, *({order} & set(known) - set(wanted))])
            if order in known:
                content = content.sort_by(order)
            for batch in content.to_batches(_AT_A_TIME):
                lists = {name: _values(batch.column(name), is_raw=name in RAW) for name in wanted}
                nothing = [None] * len(batch)
                yield from zip(*(lists.get(name or "", nothing) for name in chosen), strict=True)


def _values(column: Any, *, is_raw: bool) -> list[Any]:
    import pyarrow as pa

    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    values: list[Any] = (column.cast(pa.large_binary()) if is_raw and is_text else column).to_pylist()
    return values
