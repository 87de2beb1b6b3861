"""Results of months as a directory: summary, manifest and tables, all or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from et_sim.documents.keys import Remarks
from et_sim.goodput.figures import Outcome, loss_shares, spread
from et_sim.goodput.formulas import best_interval, least_loss
from et_sim.goodput.job_file import ASYNCHRONOUS, JobSpec
from et_sim.goodput.presets import PRESETS
from et_sim.goodput.setting import LOSSES, JobStep, Loss
from et_sim.tables.goodput_tables import COURSES, MONTHS
from et_sim.tables.registry import MANIFEST, SUMMARY
from et_sim.timeline.arrow_tables import FilledTable
from et_sim.timeline.content import Texts, whole
from et_sim.timeline.writer import new_folder, write_json, write_table
from et_sim.version import __version__

TRAFFIC = "traffic of checkpoints to storage beside that of steps"
STEPS_KEPT = "steps_ns"  # key of the manifest: simulated steps by the digest of their inputs
NOT_SIMULATED = (
    "variation of steps",
    "failures within a step",
    "convergence after a corruption",
    "queues of other jobs",
)


class Goodput(Struct, frozen=True, eq=False):
    """A job's months with their inputs."""

    job: JobSpec
    step: JobStep
    outcome: Outcome
    remarks: Remarks
    known: dict[str, int]

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        outcome, step = self.outcome, self.step
        rate, tokens = outcome.setting.rate, outcome.months.steps * step.tokens
        return {
            "days": outcome.days,
            "months": len(tokens),
            "seed": outcome.seed,
            "step": {
                "source": step.source,
                "seconds": step.seconds,
                "tokens": step.tokens,
                "gpus": step.gpus,
                "nodes": step.nodes,
                "replicas_less": [list(pair) for pair in step.fewer],
                "slow_node_seconds": step.slow or None,
                "half_link_seconds": step.half_link if step.has_half_link else None,
                "half_link_at_most_seconds": step.half_link,
                "write_stall_seconds": step.write_stall,
                "copies_seconds": step.seconds + step.copy_stall if step.copy_stall else None,
            },
            "goodput": to_builtins(spread(outcome.goodput, 1.0), str_keys=True),
            "effective": to_builtins(spread(outcome.effective, 1.0), str_keys=True),
            "tokens": to_builtins(spread(tokens), str_keys=True),
            "finish_days": None
            if outcome.finish_days is None
            else to_builtins(spread(outcome.finish_days), str_keys=True),
            "interruptions": {
                "unplanned": float(outcome.months.events[:, :-1].sum(axis=1).mean()),
                "planned": float(outcome.months.events[:, -1].mean()),
                "hours_between_failures": 1 / rate / 3600 if rate else None,
            },
            "time": loss_shares(outcome),
            "parts": self._parts(),
            "checkpoints": self._checkpoints(),
            "changes": [to_builtins(change) for change in outcome.changes],
            "spares_for_95_percent": outcome.spares,
            "costs": self._costs(float(tokens.mean())),
            "notes": list(step.notes),
            "not_simulated": list(self._not_simulated()),
        }

    def _not_simulated(self) -> tuple[str, ...]:
        """Return what is left out; checkpoints for which steps stand still have no traffic beside them."""
        spec = self.outcome.resolved.checkpoints
        is_left_out = spec.how == ASYNCHRONOUS and self.step.write_stall is None
        return (*NOT_SIMULATED, TRAFFIC) if is_left_out else NOT_SIMULATED

    def _checkpoints(self) -> dict[str, Any]:
        """Return the figures of checkpoints."""
        outcome, setting = self.outcome, self.outcome.setting
        waits = outcome.resolved.checkpoints.how != ASYNCHRONOUS  # the formula is that of such checkpoints
        rate, stall = setting.rate, setting.cycle.storage_stall * waits
        return {
            "bytes": outcome.resolved.bytes,
            "write_seconds": outcome.resolved.write_seconds,
            "interval_seconds": setting.cycle.steps * setting.cycle.copies * setting.step,
            "interval_is_given": outcome.resolved.interval_is_given,
            "given_interval_seconds": outcome.resolved.checkpoints.interval,
            "first_order_seconds": best_interval(rate, stall) if rate and stall else None,
            "first_order_loss": least_loss(rate, stall) if rate and stall else None,
            "intervals": [list(entry) for entry in outcome.intervals],
        }

    def _costs(self, tokens: float) -> dict[str, Any]:
        """Return GPU-hours and prices; `tokens` are those of a month in the mean."""
        step, hours = self.step, self.outcome.days * 24
        spares = (self.outcome.setting.hot + self.outcome.setting.cold) * step.gpus_of_node
        price = None if step.price is None else step.price * hours * (step.gpus + spares)
        return {
            "gpu_hours": hours * step.gpus,
            "spare_gpu_hours": hours * spares,
            "price": price,
            "currency": step.currency,
            "price_per_million_tokens": None if price is None or not tokens else price / tokens * 1e6,
            "price_of_spare": None if step.price is None else step.price * step.gpus_of_node * hours,
        }

    def _parts(self) -> list[dict[str, Any]]:
        """Return the interruptions and the lost time of each kind of part, the worst first."""
        months, setting = self.outcome.months, self.outcome.setting
        whole_time = float(months.clock.sum())
        names = [*(part.name for part in setting.parts), "planned"]
        rows = [
            {
                "part": name,
                "interruptions": float(months.events[:, number].mean()),
                "share": float(months.lost_by_part[:, number].sum()) / whole_time,
            }
            for number, name in enumerate(names)
        ]
        return sorted(rows, key=lambda row: (-row["share"], row["part"]))

    def manifest(self) -> dict[str, Any]:
        """Return the content of run.json."""
        preset = self.job.failures.preset
        return {
            "et_sim": __version__,
            "goodput": to_builtins(self.job),
            "source": PRESETS[preset].source if preset else None,
            STEPS_KEPT: self.known,
            "warnings": to_builtins(self.remarks.warnings),
            "defaults": to_builtins(self.remarks.defaults),
        }

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return the columns of the tables."""
        outcome, lost = self.outcome, self.outcome.months.lost
        count = len(outcome.goodput)
        finish = np.full(count, np.nan) if outcome.finish_days is None else outcome.finish_days
        figures = {
            "month": np.arange(count, dtype=np.int64),
            "goodput": outcome.goodput,
            "effective": outcome.effective,
            "steps": outcome.months.steps,
            "tokens": outcome.months.steps * self.step.tokens,
            "interruptions": outcome.months.events.sum(axis=1),
            "finish_days": finish,
        }
        names = [column.name for column in MONTHS.columns if column.name.endswith("_s")]
        figures |= {name: lost[:, cause] for name, cause in zip(names, Loss, strict=True)}
        rows = [
            (percent, month, *part) for percent, (month, course) in outcome.courses.items() for part in course
        ]
        columns = list(zip(*rows, strict=True)) if rows else [()] * 5
        kinds = (np.int32, np.int64, np.float64, np.float64, np.int64)
        percent, month, begin, end, cause = (
            np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)
        )
        courses = {
            "percent": percent,
            "month": month,
            "begin_s": begin,
            "end_s": end,
            "activity": Texts(cause + 1, ("steps", *LOSSES)),
        }
        return {MONTHS.name: figures, COURSES.name: courses}

    def write(self, target: Path) -> None:
        """Write the directory."""
        manifest = self.manifest()
        text, tables = json.dumps(manifest, ensure_ascii=False), self.tables()
        with new_folder(target) as (draft, _):
            for table in (MONTHS, COURSES):
                filled = FilledTable(table, whole(tables[table.name]), text)
                write_table(draft / table.file, filled.schema, filled.batches())
            write_json(self.summary(), draft / SUMMARY)
            write_json(manifest, draft / MANIFEST)


def known_steps(target: Path) -> dict[str, int]:
    """Return the simulated steps that a directory of an earlier command keeps."""
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
        steps = manifest[STEPS_KEPT]
        return {str(key): int(value) for key, value in steps.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
