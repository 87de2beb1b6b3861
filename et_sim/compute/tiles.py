"""Tiles of kernels: the operations of whole waves, relative to a kernel's own.

Waste is the ratio of the operations of whole waves of tiles to the kernel's own: each processor takes a tile,
and a wave takes the same time for any number of tiles. A tile of a product goes through its inner side in
steps, with some more to begin and to end; with few tiles, that side may be split among several. A tile of
attention is a part of the queries of one head, and goes through the keys that they see; kernels for fewer
queries than a tile has work differently, and are not cut. The exponentials of scores are further operations
of attention, which its shape does not count; units of their own compute them beside the products, or not.

Attention of few queries, of single tokens or with a compressed cache, is cut into tiles of rows: queries of
all heads that share keys. Each wave of tiles takes some time more, and so does each doubling of the keys,
which are split among processors that then join their parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.compute.operations import Operation, Product
from et_sim.machine.efficiencies import FloatColumn
from et_sim.machine.roofline import RooflineDevice
from et_sim.trace.columns import IntColumn

PRODUCTS = ("gemm", "grouped_gemm", "conv")
ATTENTION = ("attention", "attention_backward")
LEAST_STEPS = 4  # least steps of each part of a split
UNSPLIT_KEYS = 64  # of attention of few queries


def waste(device: RooflineDevice, operations: Sequence[Operation]) -> tuple[FloatColumn, FloatColumn]:
    """Return the waste of each operation as one piece, and with the best split if that is better."""
    whole, split = np.ones(len(operations)), np.ones(len(operations))
    products = [at for at, operation in enumerate(operations) if operation.kind in PRODUCTS]
    if device.tiles and products:
        columns = _Products.of([operations[at].products for at in products])
        parts = [1 << power for power in range(device.split_k.bit_length())]
        ratios = columns.operations(device, parts) / columns.own
        whole[products], split[products] = ratios[0], ratios.min(axis=0)
    for at, operation in enumerate(operations):
        if operation.kind in ATTENTION:
            needed = _of_rows if device.row_tile and operation.form else _of_attention
            whole[at] = split[at] = needed(device, operation) / operation.operations
    return whole, split


def additional_ns(device: RooflineDevice, operation: Operation) -> float:
    """Return the time of waves of tiles of rows, and of parts of split keys."""
    if not (operation.form and device.row_tile):
        return 0.0
    waves = -(-_row_tiles(device, operation) // device.processors)
    doublings = math.log2(max(operation.products[0].columns / UNSPLIT_KEYS, 1))
    return waves * device.tile_ns + doublings * device.doubling_ns


def _row_tiles(device: RooflineDevice, operation: Operation) -> int:
    scores = operation.products[0]
    return -(-operation.rows // device.row_tile) * -(-scores.rows * scores.count // operation.rows)


def _of_rows(device: RooflineDevice, operation: Operation) -> float:
    """Return the operations of whole tiles of rows."""
    scores = operation.products[0]
    rows = _row_tiles(device, operation) * device.row_tile
    return max(operation.operations * rows / (scores.rows * scores.count), operation.operations)


class _Products(Struct, frozen=True):
    """All products of some operations, one after the other; `first` has the index of each first one."""

    rows: IntColumn
    columns: IntColumn
    count: IntColumn
    first: IntColumn
    inner: IntColumn  # of each operation
    own: FloatColumn

    @staticmethod
    def of(operations: Sequence[tuple[Product, ...]]) -> _Products:
        sizes = np.array(
            [(p.rows, p.columns, p.count) for operation in operations for p in operation], np.int64
        )
        rows, columns, count = sizes.T
        return _Products(
            rows,
            columns,
            count,
            np.cumsum([0, *map(len, operations[:-1])]),
            np.array([products[0].inner for products in operations], np.int64),
            np.array([float(sum(p.operations for p in products)) for products in operations]),
        )

    def operations(self, device: RooflineDevice, parts: Sequence[int]) -> FloatColumn:
        """Return the operations with the best tile, a row for each number of parts of the inner side."""
        split, inner = np.array(parts)[:, None, None], self.inner
        sizes = np.array([(tile.rows, tile.columns, tile.step) for tile in device.tiles], np.int64)
        rows, columns, step = sizes.T[:, :, None]
        part = np.array([tile.part for tile in device.tiles])[:, None]
        of_product = -(-self.rows // rows) * -(-self.columns // columns) * self.count
        tiles = split * np.add.reduceat(of_product, self.first, axis=1)
        steps = -(-inner // (split * step))
        each = 2 * rows * columns * step * (steps + device.prologue) / part
        is_possible = (split == 1) | (inner >= split * LEAST_STEPS * step)
        best: FloatColumn = np.where(is_possible, _waves(device, tiles) * each, math.inf).min(axis=1)
        return best


def _of_attention(device: RooflineDevice, operation: Operation) -> float:
    scores, rows = operation.products[0], device.query_tile
    queries = scores.rows * scores.count
    of_pair = sum(product.operations for product in operation.products) / (queries * scores.columns)
    keys = operation.operations / of_pair / queries  # keys that a query sees
    each = max(of_pair, device.exponential_operations) + device.score_operations
    if not 0 < rows <= scores.rows:
        return float(queries * keys * each)
    tiles = -(-scores.rows // rows) * scores.count
    mean, longest = keys + device.query_prologue, scores.columns + device.query_prologue
    last = max(longest, tiles / device.processors * mean + longest - mean)  # if tiles are unequal
    return float(max(_waves(device, tiles) * mean, device.processors * last) * rows * each)


def _waves(device: RooflineDevice, tiles: Any) -> Any:
    """Return the number of tiles, rounded up to whole waves of all processors."""
    return -(-tiles // device.processors) * device.processors
