"""The number of messages, and of packets, of a run that completes."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.plan.records import Action, LoweredPlan


def expected_messages(plan: LoweredPlan) -> int:
    """Return the number of messages of a run that completes, for its progress."""
    sends = plan.programs["sends"].astype(np.float64)
    for row in np.flatnonzero(plan.programs["own_steps"]).tolist():
        sends[row] = _of_own_steps(plan.programs[row], plan.steps["bytes"] > 0)
    return round(_expected(plan, sends, 1))


def expected_packets(plan: LoweredPlan, payload: int) -> int:
    """Return about how many packets all messages are cut into: of trees and sends, by their mean sizes."""
    of_steps = np.maximum(-(-plan.steps["bytes"] // payload), 1)
    of_own_steps = -(-plan.steps["bytes"] // payload)
    of_program = np.array(
        [
            _of_own_steps(program, of_own_steps)
            if program["own_steps"]
            else _of_program(plan, program, of_steps, payload)
            for program in plan.programs
        ],
        np.float64,
    )
    sizes = plan.channels["bytes"]
    of_send = float(np.maximum(-(-sizes // payload), 1).mean()) if len(sizes) else 1.0
    return round(_expected(plan, of_program, of_send))


def _of_program(plan: LoweredPlan, program: Any, of_steps: Any, payload: int) -> int:
    """Return the number of packets that a member sends in a phase."""
    if program.tree_first >= 0 or program.custom_first >= 0 or program.step_period == 0:
        largest = max(int(plan.trees[way].max(initial=0)) for way in ("up_bytes", "down_bytes"))
        return int(program.sends) * max(-(-largest // payload), 1)
    steps = of_steps[program.step_first : program.step_first + program.step_period]
    rounds, rest = divmod(int(program.sends), int(program.step_period))
    return int(rounds * steps.sum() + steps[:rest].sum())


def _of_own_steps(program: Any, of_steps: Any) -> float:
    """Return the mean over members of a program in which each sends bytes of its own."""
    first, blocks, period = (int(program[name]) for name in ("step_first", "own_steps", "step_period"))
    rounds = int(program["sends"]) / period
    return float(of_steps[first : first + blocks * period].sum()) * rounds / blocks


def _expected(plan: LoweredPlan, of_program: Any, of_send: float) -> float:
    """Return the sum of a figure over all phases of all chunks, and all sends, of all actors."""
    per_collective = np.zeros(len(plan.collectives))
    for row, collective in enumerate(plan.collectives):
        chunk, plan_row = 0, int(collective["chunk_plan_first"])
        while chunk < collective["chunks"]:
            chunk_end, first = plan.chunk_plans[plan_row].tolist()
            programs = plan.phases["program"][first : first + collective["phases"]]
            per_collective[row] += (chunk_end - chunk) * float(of_program[programs].sum())
            chunk, plan_row = chunk_end, plan_row + 1
    of_node = np.zeros(len(plan.nodes))
    is_collective = plan.nodes["action"] == Action.COLLECTIVE
    of_node[is_collective] = per_collective[plan.nodes["detail"][is_collective]]
    of_node[plan.nodes["action"] == Action.SEND] = of_send
    totals = np.concatenate(([0], np.cumsum(of_node)))
    first = plan.templates["node_first"]
    of_template = totals[first + plan.templates["nodes"]] - totals[first]
    return float(of_template[plan.actors["template"]].sum())
