"""Processor time of months of a job of 16,384 GPUs: python benchmarks/goodput.py

One setting alone, and all that `et-sim goodput` follows: the best interval, changes, and days to finish.
"""

from __future__ import annotations

from time import process_time

import numpy as np

from et_sim.goodput.arrivals import arrivals
from et_sim.goodput.goodput import goodput
from et_sim.goodput.months import follow
from et_sim.goodput.presets import DAY

DAYS, MONTHS, SEED = 54.0, 1000, 7
JOB = {
    "step": "6.51s",
    "tokens-of-step": 16_777_216,
    "gpus": 16_384,
    "tokens": 15.6e12,
    "failures": {"preset": "llama3-2024"},
    "checkpoints": {"bytes": "5.68TB", "storage": "2TB/s"},
    "spares": {"hot": 16},
}


def main() -> None:
    """Print the seconds."""
    begin = process_time()
    outcome = goodput(JOB, days=DAYS, runs=MONTHS, seed=SEED).outcome
    whole = process_time() - begin
    begin = process_time()
    events = arrivals(outcome.setting, np.arange(MONTHS), DAYS * DAY, SEED)
    follow(outcome.setting, events, DAYS * DAY)
    alone = process_time() - begin
    failures = int(outcome.months.events.sum())
    print(f"{MONTHS:,} months of {DAYS:g} days, {failures:,} interruptions: {alone:.2f} s for one setting")
    print(f"with intervals, changes and days to finish: {whole:.2f} s, {whole / alone:.1f} times as long")


if __name__ == "__main__":
    main()
