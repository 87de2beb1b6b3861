"""Options of a run are declared once: the command line and Python offer exactly these."""

from __future__ import annotations

import argparse
from inspect import signature

import pytest

import et_sim
from et_sim.api import run
from et_sim.basics.declared_options import declare
from et_sim.cli.options import SimulationOptions, run_options
from et_sim.run.options import HELP, RunOptions

NAMES = [*RunOptions.__struct_fields__]


def parsed(*arguments: str) -> RunOptions:
    parser = argparse.ArgumentParser()
    declare(parser, SimulationOptions)
    return run_options(SimulationOptions(vars(parser.parse_args(arguments))))


@pytest.mark.parametrize("call", [et_sim.simulate, run])
def test_python_takes_every_field_as_a_keyword(call: object) -> None:
    assert list(signature(call).parameters) == ["workload", *NAMES]


def test_every_field_has_a_help_text() -> None:
    assert list(HELP) == NAMES
    assert all(HELP.values())


def test_options_left_out_have_the_defaults_of_python() -> None:
    assert parsed("--system=s", "--network=n") == RunOptions(system="s", network="n")


def test_the_command_line_sets_every_field() -> None:
    given = ["--system=s", "--network=n", "--memory=m", "--groups=g", "--network-model=link", "--no-fold"]
    expected = RunOptions(
        system="s", network="n", memory="m", groups="g", model="link", fold=False, detail=["links", "path"]
    )
    assert parsed(*given, "--detail=links", "--detail=path") == expected


def test_options_cannot_be_changed_while_they_are_used() -> None:
    with pytest.raises(AttributeError):
        RunOptions(system="s", network="n").fold = False  # type: ignore[misc]


def test_a_seed_is_that_of_samples_only_where_a_command_has_samples() -> None:
    assert run_options(SimulationOptions({"seed": 7, "samples": 2})).seed == 7
    assert run_options(SimulationOptions({"seed": 7})).seed == RunOptions().seed
