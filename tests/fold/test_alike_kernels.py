"""Traces whose kernels take equal times are folded only if the machine times them alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.compute import Durations, Treatment, Utilisation
from et_sim.fold import shapes
from et_sim.plan.kernel_table import KernelPrices, KernelTable

TEMPLATES = 4


def _same(kernels: KernelTable | None) -> list[list[bool]]:
    """Return which of four templates, of two nodes each, are timed alike."""
    templates = [SimpleNamespace(node_first=2 * number, nodes=2) for number in range(TEMPLATES)]
    lowering: Any = SimpleNamespace(kernels=kernels, templates=templates)
    every = range(TEMPLATES)
    return [[shapes._use_the_same(lowering, one, two) for two in every] for one in every]


def _prices(*models: str) -> KernelPrices:
    """Return the prices of templates with a kernel by a model, or none, in their second node."""
    prices = KernelPrices()
    for model in models:
        rows = np.array([1] if model else [], np.int64)
        treatment = np.full(len(rows), Treatment.MODELLED, np.uint8)
        used = Utilisation.unknown(model, "", len(rows))
        prices.add(rows, Durations(np.full(len(rows), 7), treatment, None, used))
        prices.finish_templates(2)
    return prices


def test_kernels_of_two_traces_are_alike_if_both_have_none_or_both_use_the_machine_equally() -> None:
    no, yes = False, True
    table = [[yes, no, no, no], [no, yes, yes, no], [no, yes, yes, no], [no, no, no, yes]]
    assert _same(_prices("", "one", "one", "other").table()) == table


def test_all_are_alike_if_no_model_describes_the_times_of_kernels() -> None:
    assert _same(_prices("", "", "", "").table()) == [[True] * TEMPLATES] * TEMPLATES


def test_one_model_without_a_description_leaves_all_kernels_without_one() -> None:
    prices = _prices("one")
    prices.add(np.array([0]), Durations(np.array([7]), np.array([Treatment.MODELLED], np.uint8)))
    assert prices.table() is None


def test_only_modelled_kernels_have_rows_and_words_are_in_the_order_of_use() -> None:
    prices = _prices("", "second", "first", "second")
    treatment = np.array([Treatment.INSTANT, Treatment.MODELLED], np.uint8)
    rows, ns = np.array([0, 3]), np.array([0, 9])
    prices.add(rows, Durations(ns, treatment, None, Utilisation.unknown("second", "", 2)))
    table = prices.table()
    assert table is not None
    assert (table.node.tolist(), table.ns.tolist()) == ([3, 5, 7, 11], [7, 7, 7, 9])
    assert table.used.timed_by.texts == ("", "second", "first")
    assert table.used.timed_by.codes.tolist() == [1, 2, 1, 1]


def test_nodes_that_are_no_kernels_have_no_figures_and_slower_kernels_longer_parts() -> None:
    table = _prices("", "one", "one", "one").table()
    assert table is not None
    table = replace(table, used=_with_parts(table.used, [10.0, 20.0, 30.0]))
    found = table.of_nodes(np.array([5, 0, 7, 6]), np.array([14, 1, 7, 1]))
    assert found.arithmetic_ns[[0, 2]].tolist() == [40.0, 30.0]  # node 5 takes 14 ns in place of 7
    assert np.isnan(found.arithmetic_ns[[1, 3]]).all()
    assert [found.timed_by.texts[code] for code in found.timed_by.codes] == ["one", "", "one", ""]


def test_a_table_without_kernels_gives_nodes_without_figures() -> None:
    table = _prices("", "").table()
    assert table is not None
    found = table.of_nodes(np.array([0, 3]), np.array([1, 1]))
    assert (np.isnan(found.compute).tolist(), found.timed_by.texts) == ([True, True], ("",))


def _with_parts(used: Utilisation, arithmetic_ns: list[float]) -> Utilisation:
    return replace(used, arithmetic_ns=np.array(arithmetic_ns))
