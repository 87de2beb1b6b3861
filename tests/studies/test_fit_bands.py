"""Widths of bands are fitted to families that were left out, and judged by the limits of the page."""

from __future__ import annotations

import math
from random import Random
from types import MappingProxyType

import pytest
from fit_bands import MANY, Coverage, central, coverages, fitted, quantile
from judged_rows import OTHERS, UNKNOWN, Judged
from msgspec.structs import replace

from et_sim.basics.uncertainty import (
    ASSUMED,
    CALIBRATED,
    LEVEL,
    MODELLED,
    QUANTILE,
    SOFTWARE,
    Composition,
    ErrorTerm,
    Trait,
    UncertainPart,
)
from et_sim.machine.accuracy import (
    DEFAULTS,
    SHORT_ATTENTION,
    SMALL_BETWEEN_NODES,
    SMALL_LIBRARY,
    of_device,
    of_kind,
    of_network,
    of_other_machines,
    of_software,
)

PLAIN = ErrorTerm("measured", 0.0, 0.0)


def judged(
    family: str,
    error: float,
    traits: tuple[str, ...] = (SOFTWARE,),
    *,
    is_fitted: bool = False,
    software: str = "",
) -> Judged:
    """Return a row that depends on its traits alone; each family is of software of its own."""
    terms = MappingProxyType({"kernels": PLAIN})
    parts = (UncertainPart("kernels", "all", 1.0),)
    items = (Trait(name, software or f"of {family}", PLAIN) for name in traits)
    return Judged(family, is_fitted, error, Composition("", PLAIN, terms, parts, tuple(items)))


def collective(family: str, error: float, basis: str, item: str = "all") -> Judged:
    """Return a small collective, on a machine whose library rests on that."""
    parts = (UncertainPart(SMALL_LIBRARY, item, 1.0),)
    terms = MappingProxyType({SMALL_LIBRARY: ErrorTerm(basis, 0.0, 0.0)})
    return Judged(family, False, error, Composition("", PLAIN, terms, parts))


def families(count: int, bias: float, sigma: float, seed: int = 1) -> list[Judged]:
    random = Random(seed)
    return [judged(f"family {number % count}", random.gauss(bias, sigma)) for number in range(200 * count)]


def test_the_width_and_the_bias_of_known_errors_are_found() -> None:
    term = fitted(families(5, 0.2, 0.1))[SOFTWARE]
    assert term.bias == pytest.approx(0.2, abs=0.02)
    assert math.hypot(term.random, term.common) == pytest.approx(0.1, rel=0.1)
    assert term.rows == 1000


def test_bands_of_families_left_out_hold_four_rows_of_five() -> None:
    found = coverages(families(5, 0.2, 0.1))
    assert all(each.is_met for each in found)
    assert sum(each.share for each in found) / len(found) == pytest.approx(LEVEL, abs=0.03)


def test_a_family_is_judged_by_terms_that_do_not_come_from_it() -> None:
    rows = families(3, 0.0, 0.05)
    far = [judged("far", 2.0, software="new")] * (MANY - 1)
    (coverage,) = (each for each in coverages([*rows, *far]) if each.family == "far")
    assert coverage.inside == 0


def test_software_of_which_many_rows_are_public_has_a_term_of_its_own() -> None:
    random = Random(3)
    rows = families(4, 0.0, 0.05)
    far = [judged("far", random.gauss(1.0, 0.1), software="new") for _ in range(400)]
    term = fitted([*rows, *far])[of_software("new")]
    assert term.bias == pytest.approx(1.0, abs=0.03)
    assert math.hypot(term.random, term.common) == pytest.approx(0.1, rel=0.15)
    assert of_software("new") not in fitted([*rows, *far[: MANY - 1]])


def test_each_half_of_a_family_with_software_of_its_own_is_judged_by_the_other_half() -> None:
    rows = families(4, 0.0, 0.05)
    halves = [judged("far", 1.0 + number % 2, software="new") for number in range(4 * MANY)]
    (coverage,) = (each for each in coverages([*rows, *halves]) if each.family == "far")
    assert coverage.inside == 0  # as one half is at 1 and the other one at 2
    even = [judged("far", 1.0, software="new")] * (4 * MANY)
    (coverage,) = (each for each in coverages([*rows, *even]) if each.family == "far")
    assert coverage.inside == 4 * MANY


def test_rows_of_all_labs_speak_for_machines_whose_library_was_fitted_to_another_one() -> None:
    random = Random(4)
    near = [collective(f"near {number % 4}", random.gauss(0.0, 0.05), CALIBRATED) for number in range(400)]
    far = [collective(f"far {number % 4}", random.gauss(1.0, 0.05), MODELLED) for number in range(400)]
    terms = fitted([*near, *far])
    own, others = terms[SMALL_LIBRARY], terms[of_other_machines(SMALL_LIBRARY)]
    assert own.bias == pytest.approx(0.0, abs=0.02)
    assert math.hypot(own.random, own.common) < 0.07
    assert others.bias == pytest.approx(0.5, abs=0.03)
    assert math.hypot(others.random, others.common) > 0.3
    assert far[0].band(terms)[1] > near[0].band(terms)[1] + 0.5


def test_a_kind_of_collective_has_a_term_of_its_own_if_several_families_have_it() -> None:
    random = Random(5)

    def rows(kind: str, sigma: float, families: int) -> list[Judged]:
        return [
            collective(
                f"{kind} {number % families}", random.gauss(0.0, sigma), CALIBRATED, f"{kind} of 8 ranks"
            )
            for number in range(400)
        ]

    terms = fitted([*rows("all_gather", 0.2, 3), *rows("all_reduce", 0.05, 3), *rows("broadcast", 0.1, 1)])
    widths = {
        kind: math.hypot(terms[name].random, terms[name].common)
        for kind in ("all_gather", "all_reduce")
        for name in (of_kind(SMALL_LIBRARY, kind),)
    }
    assert widths["all_gather"] == pytest.approx(0.2, rel=0.15)
    assert widths["all_reduce"] == pytest.approx(0.05, rel=0.15)
    assert of_kind(SMALL_LIBRARY, "broadcast") not in terms
    assert SMALL_LIBRARY in terms


def between(lab: str, error: float, left_out: float | None) -> Judged:
    """Return a small collective over InfiniBand that a lab measured."""
    parts = (UncertainPart(SMALL_BETWEEN_NODES, "all_reduce of 16 ranks, from 2^3 B on", 1.0),)
    terms = MappingProxyType({SMALL_BETWEEN_NODES: ErrorTerm(CALIBRATED, 0.0, 0.0)})
    composition = Composition("", PLAIN, terms, parts)
    return Judged("between", True, error, composition, "infiniband", lab, lab, left_out)


def test_networks_have_the_width_of_errors_on_labs_that_were_left_out() -> None:
    random = Random(6)
    rows = [
        between(f"lab {number % 4}", random.gauss(0.0, 0.01), random.gauss(0.0, 0.2)) for number in range(400)
    ]
    term = fitted(rows)[of_network(SMALL_BETWEEN_NODES, "infiniband")]
    assert math.hypot(term.random, term.common) == pytest.approx(0.2, rel=0.15)
    assert term.bias == 0
    (coverage,) = coverages(rows)
    assert coverage.share == pytest.approx(LEVEL, abs=0.05)  # of the errors left out: all others are near 0
    assert of_network("a", "efa-1") == of_network("a", "efa")


def width(term: ErrorTerm) -> float:
    return math.hypot(term.random, term.common)


def test_a_kind_of_network_that_one_lab_measured_has_the_wider_of_its_errors_and_those_of_all_kinds() -> None:
    wide = [between(f"lab {number % 9}", 0.0, 0.3 * (-1) ** number) for number in range(180)]

    def terms(error: float) -> list[ErrorTerm]:
        """Return the terms of a kind of one lab, with this error, and of all kinds."""
        alone = replace(between("one", 0.0, error), network="efa")
        found = fitted([*wide, *[alone] * 20])
        return [found[of_network(SMALL_BETWEEN_NODES, kind)] for kind in ("efa", OTHERS)]

    own, of_all = terms(0.05)
    assert own == of_all
    assert width(of_all) == pytest.approx(0.3 / QUANTILE, abs=0.01)
    own, of_all = terms(0.9)
    assert width(of_all) == pytest.approx(0.3 / QUANTILE, abs=0.01)
    assert width(own) == pytest.approx(0.9 / QUANTILE, abs=0.01)
    assert own.bias == of_all.bias == 0


def test_a_kind_of_network_that_nothing_is_fitted_to_has_a_bias() -> None:
    random = Random(8)
    near = [between(f"lab {number % 4}", 0.0, 0.1 * (-1) ** number) for number in range(40)]
    errors = [random.uniform(0.0, 2.0) for _ in range(40)]
    found = fitted(near + [replace(between("one", 0.0, error), network="slingshot") for error in errors])
    term = found[of_network(SMALL_BETWEEN_NODES, "slingshot")]
    low, high = term.bias - QUANTILE * width(term), term.bias + QUANTILE * width(term)
    assert term.bias == pytest.approx(1.0, abs=0.2)
    assert low > 0  # as no error is below
    assert sum(low < error < high for error in errors) in range(int(40 * LEVEL), 36)
    assert found[of_network(SMALL_BETWEEN_NODES, "infiniband")].bias == 0


def test_a_network_that_is_not_known_has_the_errors_of_tables_as_if_theirs_were_not_stated() -> None:
    random = Random(7)
    rows = [
        replace(between(f"lab {number % 4}", 0.0, 0.0), as_unknown=random.gauss(0.5, 0.2))
        for number in range(400)
    ]
    term = fitted(rows)[of_network(SMALL_BETWEEN_NODES, UNKNOWN)]
    assert term.bias == pytest.approx(0.5, abs=0.04)
    assert width(term) == pytest.approx(0.2, rel=0.15)
    composition = rows[0].composition
    assumed = {SMALL_BETWEEN_NODES: ErrorTerm(ASSUMED, 0.0, 0.0)}
    stranger = replace(
        rows[0], lab="far", composition=Composition("", PLAIN, MappingProxyType(assumed), composition.parts)
    )
    low, high = stranger.band(fitted(rows))
    assert (low + high) / 2 == pytest.approx(term.bias)


def test_a_lab_is_judged_without_its_own_rows() -> None:
    near = [between(f"lab {number % 4}", 0.0, 0.1 * (-1) ** number) for number in range(80)]
    far = [between("far", 1.0, 1.0)] * 20
    (coverage,) = coverages([*near, *far])
    assert (coverage.rows, coverage.inside) == (100, 80)


def test_a_class_of_one_device_is_judged_by_the_other_half_of_a_family() -> None:
    def attention(error: float) -> Judged:
        parts = (UncertainPart(SHORT_ATTENTION, "attention 1", 1.0),)
        terms = MappingProxyType({SHORT_ATTENTION: ErrorTerm(CALIBRATED, 0.0, 0.0)})
        return Judged("attention", True, error, Composition("GPU", PLAIN, terms, parts))

    assert of_device(SHORT_ATTENTION, "GPU") not in fitted([attention(0.0)] * (MANY - 1))
    even = [attention(0.3)] * (2 * MANY)
    assert fitted(even)[of_device(SHORT_ATTENTION, "GPU")].bias == pytest.approx(0.3)
    (coverage,) = coverages(even)
    assert coverage.inside == 2 * MANY
    (coverage,) = coverages([attention(0.3 * (number % 2)) for number in range(2 * MANY)])
    assert coverage.inside == 0


def test_rows_that_constants_were_fitted_to_are_no_evidence() -> None:
    rows = families(3, 0.0, 0.05)
    seen = [judged("seen", 3.0, is_fitted=True)] * (2 * MANY)
    assert fitted([*rows, *seen]) == fitted(rows)


def test_a_class_of_one_family_keeps_its_default() -> None:
    assert fitted([judged("one", 0.5, (SOFTWARE, "experts"))] * MANY)["experts"] == DEFAULTS["experts"]


def test_a_later_class_explains_the_error_left_by_earlier_ones() -> None:
    random = Random(2)
    rows = families(4, 0.1, 0.1)
    for number in range(400):
        error = random.gauss(0.1, 0.1) + random.gauss(0.3, 0.2)
        rows.append(judged(f"experts {number % 4}", error, (SOFTWARE, "experts")))
    term = fitted(rows)["experts"]
    assert term.bias == pytest.approx(0.3, abs=0.03)
    assert math.hypot(term.random, term.common) == pytest.approx(0.2, rel=0.15)


@pytest.mark.parametrize(
    ("rows", "limits"), [(8, (4, 8)), (12, (7, 12)), (22, (14, 21)), (31, (20, 29)), (38, (25, 35))]
)
def test_small_families_are_judged_by_the_middle_of_a_binomial(rows: int, limits: tuple[int, int]) -> None:
    assert central(rows) == limits


@pytest.mark.parametrize(
    ("coverage", "is_met"),
    [
        (Coverage("a", 100, 80, 1.5), True),
        (Coverage("a", 100, 80, 2.5), False),  # too wide to be useful
        (Coverage("a", 100, 95, 1.5), False),
        (Coverage("a", 100, 60, 1.5), False),
        (Coverage("a", 12, 12, 1.5), True),
        (Coverage("a", 12, 6, 1.5), False),
        (Coverage("a", 4, 4, 1.5), None),
    ],
)
def test_a_band_is_met_if_it_holds_enough_and_is_narrow(coverage: Coverage, is_met: bool | None) -> None:
    assert coverage.is_met is is_met


def test_quantiles_are_of_weights() -> None:
    assert quantile([(1.0, 1.0), (2.0, 1.0), (3.0, 1.0)], 0.5) == 2.0
    assert quantile([(1.0, 8.0), (9.0, 1.0), (10.0, 1.0)], 0.1) == 1.0
    assert quantile([(5.0, 1.0)], 0.9) == 5.0
