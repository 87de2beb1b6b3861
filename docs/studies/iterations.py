"""The study of training iterations: `python docs/studies/iterations.py` writes the figures of iterations.md.

Published times of iterations on A100s beside simulated ones, with one machine and one set of options for
all. Nothing is fitted to the times that are predicted. Not here: calibration.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from plots import Axis, Line, lines
from study_page import table, write_study

from et_sim.validation.predictions import predictions
from et_sim.validation.row import Row, TrainingStep
from et_sim.validation.rows import read_rows

FOLDER = Path(__file__).parent
PAGE, ROWS = FOLDER / "iterations.md", FOLDER / "iterations.json"
PICTURE = "iterations.svg"
MEGATRON, VTRAIN = "megatron_seqpar_table5", "vtrain_multi"


class Run(Struct, frozen=True):
    """An iteration that was measured."""

    row: Row
    job: TrainingStep

    def predicted_s(self) -> float:
        """Return the simulated time of the iteration."""
        (found,) = predictions([self.row])
        assert found.predicted_us is not None
        return found.predicted_us / 1e6


def runs(name: str) -> list[Run]:
    """Return the rows of one of the two tables."""
    rows = [row for row in read_rows(ROWS) if row.table == name]
    return [Run(row, row.job) for row in rows if isinstance(row.job, TrainingStep)]


class Errors(Struct, frozen=True):
    """The errors of predictions against measurements."""

    ratios: tuple[float, ...]  # predicted by measured

    @property
    def mean(self) -> float:
        """Return the mean absolute percentage error."""
        return sum(abs(ratio - 1) for ratio in self.ratios) / len(self.ratios)

    @property
    def largest(self) -> float:
        """Return the largest error."""
        return max(abs(ratio - 1) for ratio in self.ratios)

    @property
    def middle(self) -> float:
        """Return the geometric mean of the ratios, which one factor could remove."""
        return math.exp(sum(map(math.log, self.ratios)) / len(self.ratios))

    @property
    def rest(self) -> float:
        """Return the mean absolute percentage error that remains after division by that factor."""
        return Errors(tuple(ratio / self.middle for ratio in self.ratios)).mean


def results_table(measured: Sequence[Run], predicted: Sequence[float]) -> str:
    """Write the table of all rows."""
    rows = []
    for run, found in zip(measured, predicted, strict=True):
        measured_s = run.job.measured_s
        times = (f"{measured_s:.2f}", f"{found:.2f}", f"{found / measured_s - 1:+.1%}")
        rows.append([run.job.label, str(run.job.plan.ranks), *times])
    return table(("iteration", "GPUs", "measured, s", "simulated, s", "difference"), rows)


def summary(errors: dict[str, Errors]) -> str:
    """Write the errors of both tables."""
    rows = [
        [
            name,
            str(len(one.ratios)),
            f"{one.mean:.1%}",
            f"{one.largest:.1%}",
            f"{one.middle - 1:+.1%}",
            f"{one.rest:.1%}",
        ]
        for name, one in errors.items()
    ]
    head = ("table", "iterations", "mean error", "largest", "all together", "mean error without that")
    return table(head, rows)


def main() -> None:
    """Simulate all rows and write the page."""
    texts, errors, series = {}, {}, []
    for name, title in ((MEGATRON, "Megatron-LM, table 5"), (VTRAIN, "vTrain, several nodes")):
        measured, predicted = runs(name), []
        for at, run in enumerate(measured, 1):
            predicted.append(run.predicted_s())
            sys.stderr.write(f"{title}: {at} of {len(measured)}\n")
        pairs = [(run.job.measured_s, found) for run, found in zip(measured, predicted, strict=True)]
        errors[title] = Errors(tuple(found / real for real, found in pairs))
        texts[name] = results_table(measured, predicted)
        series.append(Line(title, tuple(sorted(pairs))))
    texts["errors"] = summary(errors)
    longest = max(run.job.measured_s for name in (MEGATRON, VTRAIN) for run in runs(name))
    series.append(Line("as measured", ((1.0, 1.0), (longest, longest))))
    across, up = Axis("measured, s", is_log=True), Axis("simulated, s", is_log=True)
    picture = lines("Iterations on A100s, measured and simulated", across, up, series)
    write_study(PAGE, texts, {PICTURE: picture})


if __name__ == "__main__":
    main()
