"""`et-sim goodput`: the tokens of a long job, with failures, checkpoints and spares."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from et_sim.basics.declared_options import Command
from et_sim.basics.files import in_shell
from et_sim.basics.json_text import indented


class Options(Command):
    """Draw months of a long job at random: failures, restarts, checkpoints, spares. The step is a simulated
    one; steps that the directory already holds are not simulated again.
    """

    job: Annotated[Path, "YAML file that describes the job", "JOB"]
    days: Annotated[float, "days of each month"] = 30.0
    runs: Annotated[int, "months to draw"] = 1000
    seed: Annotated[int, "seed of the draws"] = 0
    out: Annotated[Path | None, "directory to write (default: ./NAME.goodput)", "DIR"] = None
    json: Annotated[bool, "print the content of summary.json"] = False


def run(options: Options) -> int:
    """Draw the months, write the directory, and print the summary."""
    from et_sim.goodput.goodput import goodput
    from et_sim.goodput.results import known_steps
    from et_sim.timeline import check_target
    from et_sim.views.goodput import summary_lines
    from et_sim.views.text import terminal_width

    target = options.out or Path(f"{options.job.stem}.goodput")
    check_target(target)
    result = goodput(
        options.job, days=options.days, runs=options.runs, seed=options.seed, known=known_steps(target)
    )
    result.write(target)
    for notice in result.remarks.warnings:
        print(f"et-sim: warning: {notice.place}: {notice.text}", file=sys.stderr)
    summary = result.summary()
    if options.json:
        print(indented(summary))
        return 0
    print("\n".join(summary_lines(summary, terminal_width())))
    print(f"\nwritten to {target}; draw it with: et-sim inspect {in_shell(target)} --svg FILE")
    return 0
