"""The lines of `et-sim make llm` that name an assumed software, and the command for another one."""

from __future__ import annotations

import shlex
from typing import Any

from et_sim.basics.declared_options import Command, fields_of, flag_of
from et_sim.basics.errors import EtSimError
from et_sim.cli.jobs import read_plan
from et_sim.trace.manifest import ENDING
from et_sim.workloads.software import DEFAULT, read_software

OTHER = "torchtitan"  # in most of its kernels and exchanges unlike the default


def assumed_software(options: Command) -> list[str]:
    """Return lines for a job whose software is not given: the default, and the same job for another."""
    by = read_software(DEFAULT)
    prefix = f"{vars(options)['output'].removesuffix(ENDING)}-{OTHER}"
    changed = type(options)({**vars(options), "software": OTHER, "output": prefix})
    line = f"assumes {by.name}: {by.about}; steps of other software take other times"
    try:
        read_plan(changed)
    except EtSimError:  # the other software does not support the plan
        return [f"{line}: --software names another"]
    return [line, f"as {OTHER}: {as_command(changed)}"]


def as_command(options: Command) -> str:
    """Return the command line of options; those with their default are left out."""
    words = ["et-sim", vars(options)["command"]]
    for name in fields_of(type(options)):
        value, default = vars(options).get(name), getattr(type(options), name, None)
        follows = name == "ranks" and vars(options)["machine"]
        if value in (default, None, False) or follows:
            continue
        flag = {"kind": [], "output": ["-o"]}.get(name, [flag_of(name)])
        words += flag if value is True else [*flag, _word(value)]
    return shlex.join(words)


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
