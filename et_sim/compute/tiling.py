"""Kernels that are cut into tiles: operations of whole waves of tiles, for each of the kernel's own.

Processors take a tile each, wave by wave, and a wave takes as long however many tiles there are. A tile of a
product goes through its inner side in steps, of which it needs some more to begin and to end; where there are
few tiles, that side may be split among several. A tile of attention is a part of the queries of one head, and
goes through the keys that they see; kernels for fewer queries than a tile has are built in another way, and
are not cut.

Not here: how long an operation takes (`device`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.compute.operations import Operation, Product
from et_sim.machine.roofline import FloatColumn, RooflineDevice
from et_sim.trace.columns import IntColumn

PRODUCTS = ("gemm", "grouped_gemm", "conv")
ATTENTION = ("attention", "attention_backward")
LEAST_STEPS = 4  # that a split leaves to each part


def waste(device: RooflineDevice, operations: Sequence[Operation]) -> tuple[FloatColumn, FloatColumn]:
    """Of each operation: as one piece, and split in the best way, if that is better."""
    whole, split = np.ones(len(operations)), np.ones(len(operations))
    products = [at for at, one in enumerate(operations) if one.kind in PRODUCTS]
    if device.tiles and products:
        columns = _Products.of([operations[at].products for at in products])
        powers = range(device.split_k.bit_length())
        found = np.stack([columns.operations(device, 1 << power) for power in powers]) / columns.own
        whole[products], split[products] = found[0], found.min(axis=0)
    for at, one in enumerate(operations):
        if one.kind in ATTENTION and 0 < device.query_tile <= one.products[0].rows:
            whole[at] = split[at] = _of_attention(device, one) / one.operations
    return whole, split


@dataclass(frozen=True, slots=True)
class _Products:
    """All products of some operations, one after the other; `first`: where each operation's begin."""

    rows: IntColumn
    columns: IntColumn
    count: IntColumn
    first: IntColumn
    inner: IntColumn  # of each operation
    own: FloatColumn

    @staticmethod
    def of(operations: Sequence[tuple[Product, ...]]) -> _Products:
        sizes = np.array([(p.rows, p.columns, p.count) for one in operations for p in one], np.int64)
        rows, columns, count = sizes.T
        return _Products(
            rows,
            columns,
            count,
            np.cumsum([0, *map(len, operations[:-1])]),
            np.array([one[0].inner for one in operations], np.int64),
            np.array([float(sum(p.operations for p in one)) for one in operations]),
        )

    def operations(self, device: RooflineDevice, parts: int) -> FloatColumn:
        """Those of the best tile, where the inner side is split into so many parts."""
        best = np.full(len(self.inner), math.inf)
        for tile in device.tiles:
            steps = -(-self.inner // (parts * tile.step))
            of_product = -(-self.rows // tile.rows) * -(-self.columns // tile.columns) * self.count
            tiles = parts * np.add.reduceat(of_product, self.first)
            each = 2 * tile.rows * tile.columns * tile.step * (steps + device.prologue) / tile.part
            is_possible = (parts == 1) | (self.inner >= parts * LEAST_STEPS * tile.step)
            best = np.minimum(best, np.where(is_possible, _waves(device, tiles) * each, math.inf))
        return best


def _of_attention(device: RooflineDevice, operation: Operation) -> float:
    scores, rows = operation.products[0], device.query_tile
    tiles = -(-scores.rows // rows) * scores.count
    of_pair = sum(one.operations for one in operation.products) / (
        scores.rows * scores.columns * scores.count
    )
    of_query = operation.operations / (scores.rows * scores.count) + of_pair * device.query_prologue
    return float(_waves(device, tiles) * rows * of_query)


def _waves(device: RooflineDevice, tiles: Any) -> Any:
    """Of all processors, as if none were idle."""
    return -(-tiles // device.processors) * device.processors
