"""A compute model in a Python file of a user: a function `times_ns` of kernels.

`docs/extending.md` writes one, and `et-sim check-model` tests it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.basics.own_modules import mistake_in, module_in_file
from et_sim.basics.units import LONGEST_NS
from et_sim.compute.model import Durations, Treatment, Utilisation
from et_sim.compute.registry import is_recorded, recorded_ns
from et_sim.machine.compute_rules import ComputeRule, Scope
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.model import System
from et_sim.trace.columns import BoolColumn, IntColumn, NodeKind, Trace

FUNCTION = "times_ns"
Timer = Callable[["Kernels"], Any]


class Kernels(Struct, frozen=True, eq=False):
    """Kernels of a trace as columns, an entry for each; a number that a trace does not state is 0."""

    names: npt.NDArray[Any]
    operations: IntColumn
    bytes: IntColumn
    shapes: npt.NDArray[Any]  # `layer_shape`: gemm M N K, conv, …; empty if not stated
    datatypes: npt.NDArray[Any]  # bf16, fp8, …; empty if not stated
    recorded_ns: IntColumn

    def __len__(self) -> int:
        return len(self.operations)

    def take(self, rows: Any) -> Kernels:
        """Return some of the kernels, in the order of `rows`."""
        return Kernels(*(getattr(self, name)[rows] for name in self.__struct_fields__))


class OwnKernelTimes(Struct, frozen=True):
    """The settings of a user's compute model: its function, or the file with it."""

    model: str | Timer
    timer: ClassVar[str] = f"{__name__}:OwnTimes"
    scope: ClassVar[Scope | None] = "kernels as your own model times them", ""

    @property
    def name(self) -> str:
        """Return the name of the file or the function."""
        return (
            Path(self.model).name if isinstance(self.model, str) else getattr(self.model, "__name__", "model")
        )

    @property
    def figures(self) -> tuple[str, ...]:
        """Return no names."""
        return ()

    def scaled(self, name: str, multiple: float) -> None:
        """Return None: the times of a program have no figures."""


class OwnTimes:
    """A model that times kernels by a user's function; kernels with NaN are left to the system's models."""

    def __init__(self, settings: OwnKernelTimes, label: str = "", place: str = "") -> None:
        self._function, self._path = _function_of(settings.model)
        self._label, self._place = label or settings.name, place
        self._last: tuple[Trace, npt.NDArray[np.float64]] | None = None

    def covers(self, trace: Trace) -> BoolColumn:
        """Return the kernels that the function times."""
        return ~np.isnan(self._times(trace))

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:  # noqa: ARG002
        """Return no kernels: the function decides which it times."""
        return {}

    def durations(self, trace: Trace, rows: IntColumn, rank: int = 0) -> Durations:  # noqa: ARG002
        """Return the times of the function in whole nanoseconds, at least one where they are above zero."""
        times = self._times(trace)[rows]
        whole = np.maximum(np.rint(times), times > 0).astype(np.int64)
        treatment = np.full(len(rows), Treatment.MODELLED, np.uint8)
        return Durations(whole, treatment, utilisation=Utilisation.unknown(self._label, "", len(rows)))

    def _times(self, trace: Trace) -> npt.NDArray[np.float64]:
        """Return the time of each node; NaN for all that are no kernels."""
        if self._last is None or self._last[0] is not trace:
            rows = np.flatnonzero((trace.kind == NodeKind.COMP) & ~trace.is_cpu)
            times = np.full(len(trace), np.nan)
            times[rows] = self.of_kernels(kernels_of(trace, rows))
            self._last = trace, times
        return self._last[1]

    def of_kernels(self, kernels: Kernels) -> npt.NDArray[np.float64]:
        """Return the time of each kernel; refuse other results of the function."""
        try:
            result = self._function(kernels)
            returned = np.asarray(result, np.float64)
        except (Exception, SystemExit) as error:
            place = mistake_in(self._path, error) if self._path else ""
            raise UsageError(
                f"{place or self._label}: {type(error).__name__}: {error}", remedy=f"correct {FUNCTION}"
            ) from error
        if result is None:
            raise UsageError(
                f"{self._label}: {FUNCTION} returned nothing", remedy="return a number for each kernel"
            )
        if returned.shape not in ((), (len(kernels),)):
            raise UsageError(
                f"{self._label}: {FUNCTION} returned {returned.size} numbers for {len(kernels)} kernels",
                remedy="return a number for each kernel",
            )
        times = np.broadcast_to(returned, len(kernels))
        wrong = (times < 0) | (times > LONGEST_NS)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise UsageError(
                f"{self._label}: {FUNCTION} returned {times[row]:g} for the kernel {kernels.names[row]!r}",
                remedy=f"return nanoseconds from 0 to {LONGEST_NS}, or NaN for kernels that it does not time",
            )
        return times


def kernels_of(trace: Trace, rows: IntColumn) -> Kernels:
    """Return the columns of some kernels of a trace."""

    def words(texts: list[str], codes: Any) -> npt.NDArray[Any]:
        chosen: npt.NDArray[Any] = np.array([*texts, ""], np.object_)[codes[rows]]
        return chosen

    datatypes = [datatype_named(text) or text for text in trace.datatypes]
    return Kernels(
        words(list(trace.names), trace.name),
        trace.num_ops[rows].astype(np.int64),
        trace.tensor_bytes[rows].astype(np.int64),
        words(list(trace.layer_shapes), trace.layer_shape),
        words(datatypes, trace.datatype),
        np.where(is_recorded(trace), recorded_ns(trace), 0)[rows],
    )


def with_own_times(system: System, model: str | Timer) -> System:
    """Return a system whose kernels a user's model times before all others; its errors are not known."""
    settings = OwnKernelTimes(model)
    if system.replay_only:
        raise UsageError(
            f"the compute model {settings.name} has no effect: this system replays recorded times",
            remedy='leave it out, or leave "replay-only" out of the system file',
        )
    _function_of(model)
    rule = ComputeRule(settings, settings.name)
    return replace(system, compute=(rule, *system.compute), accuracy=None)


def _function_of(model: str | Timer) -> tuple[Timer, Path | None]:
    """Return the function of a model, and its file."""
    if not isinstance(model, str):
        return model, None
    path = Path(model)
    module = module_in_file(path, f"a function {FUNCTION}")
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        raise UsageError(
            f"{path} is not a compute model: it has no function {FUNCTION}",
            remedy="docs/extending.md describes a compute model",
        )
    return function, path
