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

from et_sim.compute.operations import Operation, Product
from et_sim.machine.roofline import RooflineDevice

PRODUCTS = ("gemm", "grouped_gemm", "conv")
ATTENTION = ("attention", "attention_backward")
LEAST_STEPS = 4  # that a split leaves to each part


def waste(device: RooflineDevice, operation: Operation) -> tuple[float, float]:
    """As one piece, and split in the best way, if that is better."""
    if device.tiles and operation.kind in PRODUCTS:
        own = sum(product.operations for product in operation.products)
        parts = (2 << power for power in range(device.split_k.bit_length() - 1))
        whole, *split = (_of_products(device, operation.products, number) / own for number in (1, *parts))
        return whole, min([whole, *split])
    if operation.kind in ATTENTION and 0 < device.query_tile <= operation.products[0].rows:
        of_attention = _of_attention(device, operation) / operation.operations
        return of_attention, of_attention
    return 1.0, 1.0


def _of_products(device: RooflineDevice, products: tuple[Product, ...], parts: int) -> float:
    """Operations of the best tile, where the inner side is split into so many parts."""
    best, inner = math.inf, products[0].inner
    for tile in device.tiles:
        steps = -(-inner // (parts * tile.step))
        if parts > 1 and inner < parts * LEAST_STEPS * tile.step:
            continue
        tiles = parts * sum(
            -(-p.rows // tile.rows) * -(-p.columns // tile.columns) * p.count for p in products
        )
        each = 2 * tile.rows * tile.columns * tile.step * (steps + device.prologue) / tile.part
        best = min(best, _waves(device, tiles) * each)
    return best


def _of_attention(device: RooflineDevice, operation: Operation) -> float:
    scores, rows = operation.products[0], device.query_tile
    tiles = -(-scores.rows // rows) * scores.count
    of_pair = sum(one.operations for one in operation.products) / (
        scores.rows * scores.columns * scores.count
    )
    of_query = operation.operations / (scores.rows * scores.count) + of_pair * device.query_prologue
    return _waves(device, tiles) * rows * of_query


def _waves(device: RooflineDevice, tiles: int) -> int:
    """Of all processors, as if none were idle."""
    return -(-tiles // device.processors) * device.processors
