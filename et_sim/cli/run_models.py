"""`et-sim run --models A,B`: one workload on several network models, and what each step makes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from et_sim.basics.errors import UsageError
from et_sim.cli.unread import printing
from et_sim.network.registry import check_model

if TYPE_CHECKING:
    from et_sim.run.options import RunOptions
    from et_sim.timeline import OutputFilter


def models_named(text: str) -> list[str]:
    """The models of a list such as `analytical,link`, each of which exists."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        check_model(name)
    if len(names) < 2 or len(set(names)) < len(names):
        raise UsageError(
            f"--models is {text!r}",
            remedy="name two or more different models, as in --models analytical,link",
        )
    return names


def check_ladder(target: Path, names: Sequence[str]) -> None:
    """Refuse a target that holds anything but such runs."""
    from et_sim.network.registry import MODELS
    from et_sim.timeline import check_target

    if target.is_dir():
        known = {*MODELS, *names}
        foreign = sorted(entry.name for entry in target.iterdir() if entry.name not in known)
        if foreign:
            raise UsageError(
                f"{target} holds {foreign[0]!r}, and a directory for every model is to be written there",
                remedy="choose another directory with --out; nothing was overwritten",
            )
    for name in names:
        check_target(target / name)


def simulate_ladder(
    target: Path,
    workload: str,
    options: RunOptions,
    names: Sequence[str],
    *,
    as_json: bool,
    output_filter: OutputFilter,
) -> int:
    """Simulate into a directory for each model, and print the ladder; 1 if any run stalled."""
    from et_sim.cli.simulating import simulated_into
    from et_sim.views import open_run
    from et_sim.views.compare.text import ladder, ladder_lines
    from et_sim.views.text import terminal_width

    reported: set[str] = set()
    status = 0
    for name in names:
        of_model = replace(options, model=name)
        _, stalled = simulated_into(target / name, workload, of_model, output_filter, reported)
        status = max(status, stalled)
    rungs = ladder([open_run(target / name) for name in names])
    with printing(status):
        if as_json:
            print(json.dumps([rung.as_dict() for rung in rungs], indent=2, ensure_ascii=False))
            return status
        print("\n".join(ladder_lines(rungs, terminal_width())))
        print(f"written to {', '.join(str(target / name) for name in names)}")
        print(f"look closer with: et-sim compare {target / names[0]} {target / names[1]}")
    return status
