"""Kernels: operations and bytes of work on one rank, in closed form.

Operations are multiplications and additions; bytes must cross the memory at least once. Shapes are texts for
machines that time kernels by them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.kernel_names import STRIDED
from et_sim.trace import shapes

MASK_BYTES = 1  # for each value that dropout keeps or drops
LAYER_NORM, RMS_NORM, SOFTMAX, CAST = 7, 4, 5, 3  # operations for each value, as docs/compute.md counts them


class Kernel(Struct, frozen=True):
    """A computation on one rank."""

    name: str
    operations: int
    bytes: int
    shape: str  # in the format of the attribute `layer_shape`
    is_cold: bool = False  # its operands are in no cache
    launches: int = 1  # number of kernels that it represents
    dtype: str = ""  # of its numbers; empty: that of values

    def cold(self) -> Kernel:
        """Return the same kernel with operands from the largest memory, as weights or a cache are."""
        return replace(self, is_cold=True)


def product(
    name: str, rows: int, columns: int, inner: int, value_bytes: int, copies: int = 1, sums: str = ""
) -> Kernel:
    """Return a product of matrices, or several equal ones in one kernel."""
    operations = 2 * rows * columns * inner
    size = (rows * inner + inner * columns + rows * columns) * value_bytes
    shape = shapes.gemm(rows, columns, inner, count=copies, kernel=sums)
    return Kernel(name, operations * copies, size * copies, shape)


def grouped_product(
    name: str, rows: Sequence[int], columns: int, inner: int, value_bytes: int, sums: str = ""
) -> Kernel:
    """Return products in one kernel, each with its own number of rows; those without rows are skipped."""
    total, used = sum(rows), [count for count in rows if count]
    size = (total * inner + len(used) * inner * columns + total * columns) * value_bytes
    shape = shapes.grouped_gemm(columns, inner, used or [1], kernel=sums)
    return Kernel(name, 2 * total * columns * inner, size, shape)


def quantised(kernel: Kernel, outputs: int, value_bytes: int, dtype: str) -> Kernel:
    """Return a product whose operands were cast; it writes outputs in the datatype of values."""
    written = outputs * value_bytes
    read = stored_bytes((kernel.bytes - written) // value_bytes, dtype)
    return replace(kernel, bytes=read + written, dtype=dtype)


def cast(
    name: str, values: int, value_bytes: int, dtype: str, copies: int, reads: int = 1, launches: int = 1
) -> Kernel:
    """Return the kernel that reads values and writes them as another type, in one layout or two."""
    shape = shapes.elementwise(values, 1, CAST)
    moved = reads * values * value_bytes + copies * stored_bytes(values, dtype)
    return Kernel(name, values * CAST, moved, shape, launches=launches)


def transposed(name: str, values: int, dtype: str) -> Kernel:
    """Return the kernel that writes values along columns which were cast along rows."""
    shape = shapes.elementwise(values, 1, 1)
    return Kernel(name, values, 2 * stored_bytes(values, dtype), shape)


def stored_bytes(values: int, dtype: str) -> int:
    """Return the bytes of cast values, with a scale of a byte for each block.

    A block has 32 values of fp8, or 16 of fp4. Scales of 4 bytes for 128 values take the same space.
    """
    each, block = {"fp8": (8, 32), "fp4": (4, 16)}[dtype]
    return -(-values * each // 8) - (-values // block)


def passing(name: str, values: int, moved: int, operations: int = 1, launches: int = 1) -> Kernel:
    """Return a kernel, or several, in which memory moves some bytes for each value."""
    shape = shapes.elementwise(values, 1, operations)
    return Kernel(name, values * operations, values * moved, shape, launches=launches)


def strided(name: str, values: int, accesses: float, value_bytes: int, launches: int = 1) -> Kernel:
    """Return kernels whose tensors are parts of wider ones; each value is read or written some times."""
    pairs = math.ceil(values * accesses / 2)  # of a number read and one written
    shape = shapes.elementwise(pairs, 1, 1, kernel=STRIDED)
    return Kernel(name, pairs, 2 * pairs * value_bytes, shape, launches=launches)


def element_wise(name: str, values: int, operations: int, passes: int, value_bytes: int) -> Kernel:
    """Return a kernel with operations on every value, each of which is read or written `passes` times."""
    shape = shapes.elementwise(values, max(passes - 1, 1), operations)
    return Kernel(name, values * operations, values * passes * value_bytes, shape)


def norm(name: str, rows: int, width: int, value_bytes: int, *, has_shift: bool) -> tuple[Kernel, Kernel]:
    """Return the forward kernel, and the backward kernels of gradients of inputs and of scale and shift."""
    shape = shapes.layernorm(rows, width) if has_shift else shapes.rmsnorm(rows, width)
    values, operations = rows * width, LAYER_NORM if has_shift else RMS_NORM
    forward = Kernel(name, values * operations, 2 * values * value_bytes, shape)
    return forward, Kernel(name, 2 * values * operations, 5 * values * value_bytes, shape, launches=2)


def softmax(name: str, rows: int, width: int, moved: int) -> Kernel:
    """Return the softmax of each row, in which memory moves some bytes for each value."""
    values = rows * width
    return Kernel(name, values * SOFTMAX, values * moved, shapes.softmax(rows, width))


def optimizer(values: int, moved: int, launches: int) -> Kernel:
    """Return the update of weights: ten operations each, and the bytes that are read and written for one."""
    return passing("optimizer", values, moved, 10, launches)
