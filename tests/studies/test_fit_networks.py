"""Figures of networks are fitted again without each lab, and take nothing from it."""

from __future__ import annotations

import fit_networks
import pytest
from fit_networks import BEGIN, OF_FILL_RATE, Measured
from msgspec.structs import replace

from et_sim.machine.collective_library import Call, Library
from et_sim.machine.collective_library.between import Between
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_machine
from et_sim.validation.row import Row

LABS = ("a", "b", OF_FILL_RATE)
FACTORS = {"a": 1.0, "b": 1.2, OF_FILL_RATE: 2.0}


def library(machine: str = "h100-dgx:16,cards=8x200Gbps,network=infiniband") -> Library:
    known = preset(machine)
    found = read_machine(system=known.system, network=known.network).system.library
    assert found is not None
    return found


def measured(known: Library) -> list[Measured]:
    """Return an all-reduce of each lab, which takes a factor of the library's time."""
    call = Call("all_reduce", 16, 2, 1 << 24, "bf16")
    time_us = known.choice(call).time_us
    rows = (Row(lab, 1, "", "", "all_reduce", "", "", FACTORS[lab] * time_us, None) for lab in LABS)
    return [Measured(row, "infiniband", known, call) for row in rows]


def test_a_lab_gives_no_figure_to_its_own_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    known = library()
    rows = measured(known)
    fits: dict[str, Between] = {}

    def fitted(others: list[Measured], begin: Between) -> Between:
        (lab,) = set(LABS) - {each.row.table for each in others}
        fits[lab] = begin
        return begin

    monkeypatch.setattr(fit_networks, "measured", lambda: rows)
    monkeypatch.setattr(fit_networks, "lab_of", lambda row: row.table)
    monkeypatch.setattr(fit_networks, "fitted", fitted)
    errors = fit_networks.left_out()
    assert set(errors) == {(lab, 1) for lab in LABS}
    assert known.between is not None
    assert known.between.fill_rate > 0
    assert fits["a"] == fits["b"] == replace(known.between, **BEGIN)
    assert fits[OF_FILL_RATE] == replace(known.between, fill_rate=0.0, **BEGIN)


def test_a_factor_that_a_lab_gave_is_left_out() -> None:
    known = library("mi300x-node:16,cards=8x400Gbps,network=roce")
    (row, *_) = measured(known)
    assert known.calibration.between_latency > 1
    assert row.unfitted.library.calibration.between_latency == 1
    assert row.unfitted.error(known.between) > row.error(known.between)


def test_a_kind_of_one_lab_and_a_network_that_is_not_known_have_the_figures_of_infiniband(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known, unstated = library(), library("h100-dgx:16,cards=8x100Gbps,network=unknown")
    alone = replace(measured(known)[0], kind="slingshot", row=replace(measured(known)[0].row, table="c"))
    rows = [replace(each, unstated=unstated) for each in [*measured(known), alone]]
    fits: list[set[str]] = []

    def fitted(others: list[Measured], begin: Between) -> Between:
        fits.append({each.row.table for each in others})
        return begin

    monkeypatch.setattr(fit_networks, "measured", lambda: rows)
    monkeypatch.setattr(fit_networks, "lab_of", lambda row: row.table)
    monkeypatch.setattr(fit_networks, "fitted", fitted)
    errors, unknown = fit_networks.left_out(), fit_networks.as_unknown()
    assert set(errors) == set(unknown) == {(lab, 1) for lab in (*LABS, "c")}
    assert fits.count(set(LABS)) == 2  # for the lab alone: once of its kind, once of none
    assert all(unknown[key] < errors[key] for key in errors)  # half of the rate is predicted


def test_a_search_finds_figures_that_fit_better_and_keeps_the_fill_rate() -> None:
    known = library()
    assert known.between is not None
    rows = measured(known)[1:]
    found = fit_networks.fitted(rows, known.between)
    assert fit_networks.cost(rows, found) < 0.8 * fit_networks.cost(rows, known.between)
    assert found.fill_rate == known.between.fill_rate
