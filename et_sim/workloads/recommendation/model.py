"""A DLRM: a bottom network for dense features, tables for sparse ones, their products, and a top network.

How many rows a table has changes nothing here: what a step reads and writes of it are the rows that its
samples name.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec

from et_sim.trace import shapes
from et_sim.workloads.kernels import Kernel, product
from et_sim.workloads.presets import converted, preset_names, read_preset
from et_sim.workloads.training.chain import ChainLayer, dense_layer
from et_sim.workloads.training.plan import Plan

PRESETS = Path(__file__).parent / "presets"
USUAL = "hoti-2020"
Size = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Widths = Annotated[tuple[Size, ...], msgspec.Meta(min_length=1)]


class Dlrm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dimensions; widths are those of a network's layers, in their order."""

    source: str
    tables: Size
    dimension: Size  # of a row
    pooling: Size  # rows of each table that a sample names, and that are summed
    dense_features: Size
    bottom: Widths  # hidden layers; the last one, of `dimension`, comes by itself
    top: Widths  # hidden layers; the last one, of one value, comes by itself
    batch: Size  # samples of a rank

    @property
    def interactions(self) -> int:
        """What the top network is given: a product for each two vectors, and the bottom network's outputs."""
        return (self.tables + 1) * self.tables // 2 + self.dimension

    @property
    def dense_weights(self) -> int:
        """Of both networks."""
        widths = [self.bottom_widths, self.top_widths]
        return sum(a * b + b for chain in widths for a, b in pairwise(chain))

    @property
    def bottom_widths(self) -> tuple[int, ...]:
        """From the features to a vector as long as a table's row."""
        return (self.dense_features, *self.bottom, self.dimension)

    @property
    def top_widths(self) -> tuple[int, ...]:
        """From the products to the prediction."""
        return (self.interactions, *self.top, 1)


def dlrm_names() -> tuple[str, ...]:
    """The models that come with et-sim."""
    return preset_names(PRESETS)


def read_dlrm(name: str) -> tuple[str, Dlrm]:
    """A preset by its name, or what a file describes."""
    return read_preset(PRESETS, name, Dlrm)


def changed(model: Dlrm, changes: Mapping[str, Any]) -> Dlrm:
    """The same model with some other dimensions."""
    return converted({**msgspec.to_builtins(model), **changes}, "options", Dlrm)


def mlp(name: str, widths: tuple[int, ...], plan: Plan, *, needs_inputs: bool) -> list[ChainLayer]:
    """Dense layers; all but the last have an activation."""
    last = len(widths) - 2
    return [
        dense_layer(
            f"{name} {number}",
            plan,
            inputs,
            outputs,
            is_activated=number < last,
            needs_inputs=needs_inputs or number > 0,
        )
        for number, (inputs, outputs) in enumerate(pairwise(widths))
    ]


def interaction(model: Dlrm, plan: Plan, *, is_backward: bool) -> Kernel:
    """The products of all vectors of a sample with each other; backward there are two for each."""
    vectors, factor = model.tables + 1, 2 if is_backward else 1
    columns, inner = (model.dimension, vectors) if is_backward else (vectors, model.dimension)
    return product("interaction", vectors, columns, inner, plan.value_bytes, copies=factor * plan.batch)


def lookup(model: Dlrm, plan: Plan, *, is_update: bool) -> Kernel:
    """What a rank reads of its tables, for the samples of all ranks: as much as all tables for its own.

    An update reads and writes the same rows.
    """
    vectors, factor = plan.batch * model.tables, 2 if is_update else 1
    values = vectors * model.dimension
    return Kernel(
        "embedding update" if is_update else "embedding lookup",
        values * model.pooling * factor,
        values * (1 + model.pooling * factor) * plan.value_bytes,
        shapes.embedding(vectors * model.pooling, model.dimension),
    )
