"""A folder of Parquet files, each a table named like its file, read as the tables of an SQLite file are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from et_sim.basics.errors import InputError

SUFFIX = ".parquet"
RAW = ("binaryData",)  # columns of bytes, which exports declare as text
_AT_A_TIME = 1 << 16


class ParquetTables:
    """The tables of a folder, with their columns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: dict[str, tuple[str, ...]] = {}
        import pyarrow.parquet as pq

        for file in sorted(path.glob(f"*{SUFFIX}")):
            with _Refused(file):
                self.columns[file.name.removesuffix(SUFFIX)] = tuple(pq.read_schema(file).names)

    def __enter__(self) -> ParquetTables:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
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
        with _Refused(file):
            content = pq.read_table(file, columns=[*wanted, *({order} & set(known) - set(wanted))])
            if order in known:
                content = content.sort_by(order)
            for batch in content.to_batches(_AT_A_TIME):
                lists = {name: _values(batch.column(name), is_raw=name in RAW) for name in wanted}
                nothing = [None] * len(batch)
                yield from zip(*(lists.get(name or "", nothing) for name in chosen), strict=True)

    def require(self, table: str, names: Sequence[str], remedy: str) -> None:
        """Refuse a table that lacks a column."""
        for name in names:
            if name not in self.columns.get(table, ()):
                raise InputError(f"table {table} has no column {name}", place=str(self.path), remedy=remedy)


def _values(column: Any, *, is_raw: bool) -> list[Any]:
    import pyarrow as pa

    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    values: list[Any] = (column.cast(pa.large_binary()) if is_raw and is_text else column).to_pylist()
    return values


class _Refused:
    """A context in which errors of Parquet become refusals."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        import pyarrow as pa

        if isinstance(error, OSError | pa.ArrowException | UnicodeDecodeError | OverflowError | ValueError):
            text = str(error).partition("\n")[0][:200]
            raise InputError(
                f"the table is damaged: {text}", place=str(self._path), remedy="export or fetch it again"
            ) from None
