"""Predictions of public measurements are at least as near as the page states."""

from __future__ import annotations

import json
import math
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import fmean

import pytest
from accuracy import (
    KEPT,
    PAGE,
    counts_text,
    coverage_text,
    errors_table,
    mapes,
    predicted,
    quick_rows,
    range_text,
    without_software,
)
from accuracy_lines import APART, lab_of, line_of, public_rows
from fit_bands import BANDS, BARE, Coverage
from unmet_families import unmet_text

from et_sim.basics.uncertainty import ASSUMED, CALIBRATED
from et_sim.machine.accuracy import (
    DEFAULTS,
    LARGE_BYTES,
    LIBRARY,
    SMALL_LIBRARY,
    of_other_machines,
    of_software,
)
from et_sim.machine.presets import names, preset
from et_sim.validation.row import Collective, Row, TrainingStep
from et_sim.validation.rows import shipped

GROWTH = 1.05
LEAST = 0.1  # percent, for lines that are nearly exact


@cache
def rows_with_lines() -> tuple[tuple[Row, str], ...]:
    """Return public measurements and the names of their lines, which take seconds to find."""
    return tuple((row, line.name) for row in public_rows() if (line := line_of(row)) is not None)


def test_every_public_measurement_has_a_line_of_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    lines = {name for _, name in rows_with_lines()}
    assert [name for name in sorted(lines) if f"{name}**" not in text and f"| {name} |" not in text] == []


def test_families_that_are_not_met_are_listed_with_their_counts_and_causes() -> None:
    judged = [
        Coverage("all-to-all on A100, other labs", 21, 8, 1.89),
        Coverage("collectives between nodes, H100", 110, 99, 8.02),
        Coverage("collectives between nodes, H200", 16, 16, 8.32),
        Coverage("products on A100, vLLM", 100, 50, 1.2),
        Coverage("products on H100", 100, 80, 1.2),
        Coverage("few", 3, 0, 1.2),
    ]
    first, second, third = unmet_text(judged).split("\n")
    assert first.startswith(
        "- all-to-all on A100, other labs (8 of 21 rows, 13 to 20 expected, width 1.89): one"
    )
    counts = [
        f"{place} ({rows} expected, width {width})"
        for place, rows, width in (
            ("H100", "99 of 110 rows, 77 to 99", "8.02"),
            ("H200", "16 of 16 rows, 9 to 16", "8.32"),
        )
    ]
    begin = "- collectives between nodes, "
    assert second.startswith(begin + f"; {begin[2:]}".join(counts) + ": one other lab")
    assert (
        third
        == "- products on A100, vLLM (50 of 100 rows, 70 to 90 expected, width 1.20): the cause is not known."
    )


def test_labs_differ_by_as_much_in_large_all_reduces_of_a100_as_the_page_states() -> None:
    times: dict[tuple[int, int], dict[str, float]] = {}
    for row in public_rows():
        job = row.job
        if not isinstance(job, Collective) or "A100" not in row.hardware or row.measured_us is None:
            continue
        is_alike = job.nodes == 1 and job.kind == "all_reduce" and job.datatype != "int8"
        if is_alike and job.bytes >= LARGE_BYTES:
            times.setdefault((job.gpus, job.bytes), {})[lab_of(row)] = row.measured_us
    pairs = [pair for labs in times.values() for pair in combinations(labs.values(), 2)]
    of_a_lab = math.sqrt(fmean(math.log(one / other) ** 2 / 2 for one, other in pairs))
    assert len(pairs) == 21
    assert f"a lab differs from others by {100 * of_a_lab:.1f} %" in PAGE.read_text(encoding="utf-8")


def test_all_public_measurements_are_read() -> None:
    rows = public_rows()
    assert {row.why for row in rows if row.job is None} == set()
    tables = {row.table for row in rows}
    assert {
        "steps_today",
        "vtrain_single",
        "b200_training",
        "h100_gemm_fp8",
        "gb200x144_ar_coreweave",
    } <= tables
    assert len({(row.table, row.number) for row in rows}) == len(rows)


def test_the_page_has_the_furthest_off_first_and_marks_bands_that_are_too_wide() -> None:
    def row(family: str, predicted: float, *, is_fitted: bool = False) -> dict[str, object]:
        return {"family": family, "predicted_us": predicted, "measured_us": 1.0, "is_fitted": is_fitted}

    found = [row("near", 1.1), row("far", 3.0), row("known", 1.2, is_fitted=True), row(BARE + "far", 9.0)]
    table = errors_table(found, [Coverage("far", 10, 8, 2.5), Coverage("near", 10, 8, 1.5)])
    missing = errors_table([{**row("lost", 1.0), "predicted_us": None}], [])
    assert missing.splitlines()[-1] == "| **lost** | 0 | - | - | - | - | - | - | - |"
    first, second, third = table.splitlines()[2:]
    assert first == "| **far** | 1 | 200.0 | 200.0 | 200.0 | +200.0 | 80 | 2.50, too wide | no |"
    assert second.startswith("| known | 1 | 20.0 |")
    assert second.endswith("| - | - | yes |")
    assert third.endswith("| 80 | 1.50 | no |")
    judged = [Coverage("far", 10, 8, 2.5), Coverage("near", 10, 6, 1.5), Coverage("few", 2, 2, 1.1)]
    assert coverage_text(judged).startswith(
        "All 3 families with equal weight: 80 % of rows in the band. 1 of 2 families"
    )


def test_the_readme_states_the_nearest_and_the_furthest_family() -> None:
    def row(family: str, predicted: float, *, is_fitted: bool = False) -> dict[str, object]:
        return {"family": family, "predicted_us": predicted, "measured_us": 1.0, "is_fitted": is_fitted}

    found = [
        row("training steps, a", 1.1),
        row("training steps, b", 1.5),
        row("training steps, b", 2.5),
        row("products on A100", 1.2),
        row("products on H100", 1.01, is_fitted=True),
        row("all-reduce on A100", 1.3),
    ]
    assert range_text(found).splitlines()[2:] == [
        "| training steps | 3 | 10 | 100 | training steps, a; training steps, b |",
        "| single kernels | 1 | 20 | 20 | products on A100; products on A100 |",
        "| collectives on a node | 1 | 30 | 30 | all-reduce on A100; all-reduce on A100 |",
    ]


def test_a_network_that_its_source_calls_degraded_is_listed_and_not_judged() -> None:
    family = f"{APART}collectives between nodes, H100"
    row = {"family": family, "predicted_us": 0.5, "measured_us": 1.0, "is_fitted": False}
    table = errors_table([row], [Coverage(family, 11, 0, 1.5)])
    assert table.splitlines()[2].startswith(f"| **{family}** | 1 | 50.0 |")
    assert coverage_text([Coverage(family, 11, 0, 1.5), Coverage("sound", 10, 8, 1.5)]).startswith(
        "All 1 families with equal weight: 80 % of rows in the band. 1 of 1 families"
    )
    assert range_text([row]).splitlines()[2:] == []


def test_collectives_of_unstated_and_of_degraded_networks_have_lines_of_their_own() -> None:
    named = {
        name.removesuffix(", from 64 MiB on"): row.table
        for row, name in rows_with_lines()
        if isinstance(row.job, Collective) and row.job.nodes != 1
    }
    unstated = "collectives between nodes, H20, cards or kind of network not stated"
    assert named[unstated] == "h20x16_ar_nccl1244"
    assert named[f"{APART}collectives between nodes, H100"] == "h100x16_ar_nccltests290"
    assert "collectives between nodes, B200" in named


def test_rows_without_a_prediction_are_counted_with_their_reason() -> None:
    rows = [{"family": "a", "predicted_us": None, "how": "a V100 is unknown"}] * 2
    seen = {"family": "a", "predicted_us": 1.0, "how": "simulated"}
    text = "The table has 1 of 9 public rows. Not predicted: 2, as a V100 is unknown."
    assert counts_text([*rows, seen], 9) == text


def test_a_row_without_its_software_is_the_same_job_otherwise() -> None:
    row = next(row for row in public_rows() if row.table == "steps_today")
    bare = without_software(row)
    assert isinstance(row.job, TrainingStep)
    assert isinstance(bare.job, TrainingStep)
    assert (row.job.software, bare.job.software) == ("torchtitan", "")
    assert (bare.job.model, str(bare.job.plan)) == (row.job.model, str(row.job.plan))


def test_machines_take_widths_that_are_fitted_for_all_of_them() -> None:
    terms = json.loads(BANDS.read_text(encoding="utf-8"))["terms"]
    others = {name: of_other_machines(name) for name in (LIBRARY, SMALL_LIBRARY)}
    narrow = {name for name in terms if " on " in name or name.startswith(tuple(f"{of} " for of in others))}
    narrow -= {*others.values()}  # tests of presets check these
    of_one = {name for name in terms if name.startswith(of_software(""))}
    assert {*terms} <= {*DEFAULTS, SMALL_LIBRARY, *others.values(), *of_one, *narrow}
    for name in names():
        accuracy = preset(name).system["accuracy"]
        assert not {*others.values()} & {*accuracy}
        of_device = {name: name.removesuffix(f" on {accuracy['device']}") for name in of_one}
        assert {name for name in accuracy if name.startswith(of_software(""))} == {
            short for name, short in of_device.items() if short != name
        }
        assert all(terms[name] == accuracy[short] for name, short in of_device.items() if short != name)
        for term in {*terms} - {*others.values()} - of_one - narrow:
            basis = accuracy[term]["basis"]
            if term in others and basis == ASSUMED:
                continue  # of racks, whose width is stated
            figures = terms[others[term] if term in others and basis != CALIBRATED else term]
            assert accuracy[term] == {**figures, "basis": basis}, (name, term)


def test_measurements_of_tests_are_cited_and_do_not_travel() -> None:
    text = (Path(__file__).parents[1] / "measurements" / "README.md").read_text(encoding="utf-8")
    folder = Path(__file__).parents[1] / "measurements"
    travelling = {path.name for path in shipped()}
    for path in folder.glob("*.*"):
        if path.name != "README.md":
            assert f"`{path.name}`" in text
            assert path.name not in travelling - {"kernels.csv", "kernels.json"}


@pytest.mark.deep
def test_no_error_has_grown_by_a_twentieth() -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    result = mapes(predicted(quick_rows()))
    assert result.keys() == kept.keys()
    grown = {name: (kept[name], off) for name, off in result.items() if off > GROWTH * kept[name] + LEAST}
    assert grown == {}


@pytest.mark.parametrize("table", ["a100_pcie_memory", "h100_attention"])
def test_kernels_are_predicted_as_the_page_was(table: str) -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    result = mapes(predicted([row for row in public_rows() if row.table == table]))
    assert result == {name: kept[name] for name in result}
