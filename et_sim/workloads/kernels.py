"""Kernels: how many operations and bytes a piece of work takes on one rank, in closed form.

Operations are multiplications and additions; bytes are what must cross the memory at least once.
"""

from __future__ import annotations

from typing import NamedTuple


class Kernel(NamedTuple):
    """A computation on one rank."""

    name: str
    operations: int
    bytes: int
    shape: str = ""  # as the attribute `layer_shape` has it; empty: no single product of matrices

    def times(self, factor: int) -> Kernel:
        """So many of them in one."""
        return Kernel(self.name, self.operations * factor, self.bytes * factor)


def product(name: str, rows: int, columns: int, inner: int, value_bytes: int, copies: int = 1) -> Kernel:
    """A product of matrices, or several equal ones in one kernel."""
    operations = 2 * rows * columns * inner
    size = (rows * inner + inner * columns + rows * columns) * value_bytes
    shape = f"gemm {rows} {columns} {inner}" if copies == 1 and rows and columns and inner else ""
    return Kernel(name, operations * copies, size * copies, shape)


def element_wise(name: str, values: int, operations: int, passes: int, value_bytes: int) -> Kernel:
    """So many operations on every value; each is read or written so many times in all."""
    return Kernel(name, values * operations, values * passes * value_bytes)


def attention_core(
    name: str, pairs: int, heads: int, query_size: int, value_size: int, moved_values: int, value_bytes: int
) -> Kernel:
    """Scores of all pairs of a query and a key, and sums of values by them, without writing the scores."""
    operations = 2 * pairs * heads * (query_size + value_size)
    return Kernel(name, operations, moved_values * value_bytes)
