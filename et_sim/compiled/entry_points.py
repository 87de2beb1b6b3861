"""Functions that Python calls: compiled if their machine code exists, and interpreted for short calls.

Another process makes the code (`worker`), of low priority if the calls so far are short together. They are
interpreted until it is made. Only a call that is long by itself waits for the code, and at most for the time
that interpreting it takes. A call that returns to Python now and then (`lasting`) never waits: it goes on
with the machine code. The environment variable ET_SIM_COMPILE changes that: `now` always waits, `background`
never does, and `never` neither makes nor uses machine code. The results are the same bytes.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from et_sim.basics.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from et_sim.compiled.compile_queue import Order

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

CHOICES = ("now", "background", "never")
SHIPPED_SECONDS = 1.5  # longer interpreted calls make their machine code themselves from shipped bitcode
SHORT_SECONDS = 4.0  # longer interpreted calls need machine code soon: one alone waits for it


class CompileWatch(Protocol):
    """An observer of compiling."""

    def compiling(self, what: str) -> None:
        """Report that machine code for `what` is being made in the background, on every call meanwhile."""

    def waiting(self, what: str, share: float, seconds: float) -> None:
        """Report that a call waits for machine code, the completed share and the seconds so far."""

    def compiled(self) -> None:
        """Report the end of the wait."""

    def by_public_numba(self, reason: str) -> None:
        """Report why public Numba alone compiles, which takes several times as long."""

    def failed(self, what: str, reason: str) -> None:
        """Report that there will be no machine code, so that everything is interpreted."""


_WATCH: ContextVar[CompileWatch | None] = ContextVar("watch", default=None)


@contextmanager
def watching_compilation(watch: CompileWatch) -> Iterator[None]:
    """Notify `watch` of compiling within the context."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def choice() -> str:
    """Return the value of ET_SIM_COMPILE; empty: automatic."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return "never"
    chosen = os.environ.get("ET_SIM_COMPILE", "")
    if chosen and chosen not in CHOICES:
        raise UsageError(
            f"ET_SIM_COMPILE is {chosen!r}",
            remedy=did_you_mean(chosen, CHOICES) or f"set it to {', '.join(CHOICES)}, or unset it",
        )
    return chosen


def entry(
    *, what: str, seconds: Callable[..., float] = lambda *_: 0.0
) -> Callable[[Callable[Parameters, Result]], CompiledEntry[Parameters, Result]]:
    """Mark a function that Python calls.

    `what` names it to people. `seconds` estimates from the arguments of a call how long it takes interpreted:
    a call waits no longer for its machine code.
    """
    return lambda function: CompiledEntry(function, what, seconds)


class _Whole:
    """The time of several calls together, and the forms of arguments with which they were counted."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.counted: set[tuple[Any, ...]] = set()

    def __call__(self) -> float:
        return self._seconds()


class CompiledEntry(Generic[Parameters, Result]):
    """A function that Python calls; made by `entry`."""

    def __init__(
        self, function: Callable[Parameters, Result], what: str, seconds: Callable[..., float]
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.what = what
        self._seconds = seconds
        self._interpreted: dict[tuple[Any, ...], float] = {}  # estimated seconds of calls so far
        self._native: dict[tuple[Any, ...], Any] = {}
        self._latest: tuple[Any, Any] | None = None  # tables of the last call, and its machine code
        self._ordered: set[tuple[tuple[Any, ...], bool]] = set()  # signatures, and whether urgently
        self._failed = False

    def __call__(self, *arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        """Run the function; the times of interpreted calls add up to those of a long one."""
        if named:
            raise TypeError(f"{self.function.__name__} takes no arguments by name")
        result: Result = self._run(None, *arguments)
        return result

    def lasting(self, seconds: Callable[[], float]) -> Callable[Parameters, Result]:
        """Return the function for calls whose whole time interpreted can be estimated.

        They count as one call, whose time adds up with others of its form, too. The first ones are
        interpreted, and the later ones are not, if the machine code is made by then.
        """
        return functools.partial(self._run, _Whole(seconds))

    def is_compiled(self, *arguments: Any) -> bool:
        """Return whether such a call runs existing machine code."""
        return choice() != "never" and self._found(arguments) is not None

    def _run(self, seconds: _Whole | None, *arguments: Any) -> Any:
        chosen = choice()
        if chosen == "never" or self._failed:
            return self._interpret(arguments)
        native = self._found(arguments)
        if native is None:
            if chosen:
                lasts = waits = {"now": math.inf, "background": 0.0}[chosen]
            else:
                lasts = self._so_far(seconds, arguments)
                waits = 0.0 if seconds is not None else self._seconds(*arguments)
            native = self._made(arguments, lasts, waits=waits)
        return self._interpret(arguments) if native is None else native(*arguments)

    def _so_far(self, seconds: _Whole | None, arguments: tuple[Any, ...]) -> float:
        """Return how long calls of this form, up to this one, take interpreted."""
        from et_sim.compiled.signature import signature_of

        form = signature_of(arguments)
        found = self._interpreted.get(form, 0.0)
        if seconds is None:
            found += self._seconds(*arguments)
        elif form not in seconds.counted:
            seconds.counted.add(form)
            found += seconds()
        self._interpreted[form] = found
        return found

    def _interpret(self, arguments: tuple[Any, ...]) -> Any:
        from et_sim.compiled.interpreted import interpret

        return interpret(self.function, arguments)

    def _found(self, arguments: tuple[Any, ...], *, shipped: bool = False) -> Any:
        """Return the machine code for such arguments, or None; with `shipped`, also from shipped bitcode."""
        from et_sim.compiled.signature import is_same_call, reference_to, signature_of

        if self._latest is not None and is_same_call(self._latest[0], arguments):
            return self._latest[1]
        signature = signature_of(arguments)
        found = self._native.get(signature)
        if found is None:
            from et_sim.compiled.store import code_path

            found = load(code_path(self.function, signature), signature, shipped=shipped)
            if found is not None:
                self._native[signature] = found
        self._latest = None if found is None else (reference_to(arguments[0]), found)
        return found

    def _made(self, arguments: tuple[Any, ...], seconds: float, *, waits: float) -> Any:
        """Make the machine code for calls that last some seconds together, of which this one `waits` some.

        Return it, or None if it is not there yet.
        """
        if seconds > SHIPPED_SECONDS and (found := self._found(arguments, shipped=True)):
            return found
        wanted = self.ordered(arguments, seconds > SHORT_SECONDS)
        if wanted is None:
            return None
        watch = _WATCH.get()
        if waits > SHORT_SECONDS:
            from et_sim.compiled.compile_queue import wait_for

            report = functools.partial(watch.waiting, self.what) if watch else None
            try:
                self._give_up(wait_for(wanted, report, waits))
            finally:
                if watch:
                    watch.compiled()
            _report_public(wanted)
        found = self._found(arguments) if waits > SHORT_SECONDS else None
        if watch and found is None and not self._failed:
            watch.compiling(self.what)
        return found

    def ordered(self, arguments: tuple[Any, ...], is_urgent: bool) -> Order | None:
        """Order the machine code for such arguments, once; return None if it cannot be made."""
        from et_sim.compiled.compile_queue import Order, order, search_paths
        from et_sim.compiled.signature import signature_of
        from et_sim.compiled.store import code_path

        signature = signature_of(arguments)
        path = code_path(self.function, signature)
        wanted = Order(path, self.function.__module__, self.function.__qualname__, signature, search_paths())
        if (signature, is_urgent) not in self._ordered:
            self._ordered.add((signature, is_urgent))
            self._give_up(order(wanted, is_urgent))
            _report_public(wanted)
        return None if self._failed else wanted

    def _give_up(self, reason: str | None) -> None:
        """Interpret everything if machine code cannot be made."""
        if reason is not None:
            self._failed = True
            if watch := _WATCH.get():
                watch.failed(self.what, reason)


def load(path: Path, signature: tuple[Any, ...], *, shipped: bool = False) -> Any:
    """Return the machine code in a file, ready to run; None if there is none that can be used."""
    from et_sim.compiled.store import read_code

    found = read_code(path)
    if found is None and shipped:
        from et_sim.compiled.shipped import finished

        found = finished(path)
    if found is None:
        return None
    from et_sim.compiled.native import Native

    try:
        return Native(*found, signature)
    except (RuntimeError, ValueError):  # not an object file, or of another machine
        path.unlink(missing_ok=True)
        return None


def _report_public(wanted: Order) -> None:
    """Report that public Numba alone compiles an order, if it does."""
    from et_sim.compiled.numba_version import public_reason

    if (watch := _WATCH.get()) and (reason := public_reason(wanted.path.parent)):
        watch.by_public_numba(reason)
