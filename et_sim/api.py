"""The Python call `simulate(workload, system=…, network=…)`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from typing import Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.execution import execute
from et_sim.network.registry import as_named
from et_sim.run.options import DEFAULTS, NAMES, RunOptions, described_for_python
from et_sim.run.result import Result
from et_sim.run.simulation import Given

Subject = TypeVar("Subject")
Fields = ParamSpec("Fields")


def _with_keywords(
    options: Callable[Fields, RunOptions],
) -> Callable[[Callable[[Subject, RunOptions], Result]], Callable[Concatenate[Subject, Fields], Result]]:
    """Return a decorator for functions of `RunOptions`, which then take the options as keywords."""

    def decorate(
        call: Callable[[Subject, RunOptions], Result],
    ) -> Callable[Concatenate[Subject, Fields], Result]:
        @wraps(call)
        def called(workload: Subject, /, *args: Fields.args, **fields: Fields.kwargs) -> Result:
            for name in fields:
                if name not in NAMES:
                    raise UsageError(
                        f"{call.__name__} has no option {name!r}",
                        remedy=did_you_mean(name, NAMES) or f"the options are {', '.join(NAMES)}",
                    )
            given = options(*args, **fields)
            return call(workload, replace(given, model=as_named(given.model)))

        first = next(iter(signature(call).parameters.values()))
        keywords = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default) for name, default in DEFAULTS.items()
        ]
        called.__signature__ = Signature([first, *keywords])  # type: ignore[attr-defined]
        called.__doc__ = f"{cleandoc(call.__doc__ or '')}\n\n{described_for_python()}"
        return called

    return decorate


@_with_keywords(RunOptions)
def simulate(workload: Given, options: RunOptions) -> Result:
    """Simulate a workload on a machine.

    `workload` is a trace prefix or a `Workload`, or several jobs: a job file, or a dict with its keys. The
    machine's parts are file paths, or dicts with the files' keys. `detail` names further recordings:
    "phases", "messages", "links", "ports" or "path", or several of them in a list or separated by commas.
    With `samples`, `result.samples.step_ns` has the time of the step in each sample, and
    `result.samples.summary()` its percentiles, causes and blame.
    Raises `StallError` if some rank cannot finish and `OutOfMemoryError` if one needs more memory than it has
    (their `report` explains the cause), and another `EtSimError` for invalid input.
    """
    result = execute(workload, options)
    if stall := result.stall:
        raise stall.as_error()
    if result.is_stopped:
        raise result.why_stopped()
    return result


@_with_keywords(RunOptions)
def run(workload: Given, options: RunOptions) -> Result:
    """Simulate like `simulate`, but return a run in which ranks never finish instead of raising an error."""
    return execute(workload, options)
