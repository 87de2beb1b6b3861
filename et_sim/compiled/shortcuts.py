"""Shortcuts in Numba that do not change the code: cached resolutions, and no messages or events.

Numba resolves every call, operator and item again for each place and each round of type inference; here,
results for the same types are remembered. Lifetimes of variables are not analysed: nothing is on the heap, so
nothing is released. Contexts of error messages and events about passes are not kept; if anything fails, Numba
compiles in its own way (`build`) and reports the error.

All changes are undone after compiling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from numba import types

from et_sim.compiled.numba_adapter import (
    BaseFunction,
    CPUContext,
    PassManager,
    base,
    cpu_target,
    errors,
    event,
    interpreter,
    lowering,
    postproc,
    replaced,
    transforms,
    typeinfer,
)
from et_sim.compiled.plain_calls import LeanCalls, called


@contextmanager
def shortcuts() -> Iterator[None]:
    """Apply the shortcuts within the context."""
    nothing = nullcontext()
    cpu_target.target_context.refresh()
    with ExitStack() as stack:

        def replace(place: Any, name: str, value: Any) -> None:
            stack.enter_context(replaced(place, name, value))

        for kind in (BaseFunction, types.Dispatcher):
            replace(kind, "get_call_type", _remembered(kind.get_call_type))
        find, refresh = base.BaseContext.get_function, base.BaseContext.refresh
        replace(base.BaseContext, "get_function", _remembered_function(find, refresh))
        replace(base.BaseContext, "refresh", _nothing)
        for name in ("start_event", "end_event"):
            replace(event, name, _nothing)
        replace(CPUContext, "call_conv", property(LeanCalls))
        for module in (typeinfer, lowering):
            replace(module, "new_error_context", lambda *_, **__: nothing)
        replace(type(errors.termcolor()), "errmsg", lambda _, message: message)
        for name in ("peep_hole_delete_with_exit", "peep_hole_fuse_dict_add_updates"):
            replace(interpreter, name, _same)
        replace(base, "user_function", _call_of(base.user_function))
        replace(postproc.PostProcessor, "run", _without_lifetimes(postproc.PostProcessor.run))
        replace(PassManager, "_runPass", _run_pass)
        yield


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _same(value: Any) -> Any:
    return value


def _call_of(user_function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `user_function` with plain calls of helpers (`lean_lower`)."""

    def call_of(description: Any, libraries: Any) -> Any:
        checked = user_function(description, libraries)

        def call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if context.enable_boundscheck or not getattr(libraries[0], "is_helper", False):
                return checked(context, builder, signature, arguments)
            return called(context, builder, description, arguments)

        call.signature, call.libs = checked.signature, checked.libs  # type: ignore[attr-defined]
        return call

    return call_of


def _remembered(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Return `get_call_type` with remembered results by function and types of arguments."""
    found: dict[Any, Any] = {}

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        named = tuple((name, kind._code) for name, kind in kws.items())
        key = (self._code, tuple([kind._code for kind in args]), named)
        known = found.get(key)
        if known is None:
            signature = resolve(self, context, args, kws)
            if signature is None:
                return None
            known = found[key] = (signature, self, args, kws)  # all kept alive, so that codes are not reused
        return known[0]

    return get_call_type


def _remembered_function(find: Callable[..., Any], refresh: Callable[..., Any]) -> Callable[..., Any]:
    """Return `get_function` with remembered results; if none is found, new declarations are read first."""
    found: dict[Any, Any] = {}

    def get_function(self: Any, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        known = found.get((fn, sig))
        if known is not None:
            return known
        try:
            known = find(self, fn, sig, False)
        except NotImplementedError:
            refresh(self)
            known = find(self, fn, sig, False)
        found[fn, sig] = known
        return known

    return get_function


def _without_lifetimes(run: Callable[..., None]) -> Callable[..., None]:
    """Return `PostProcessor.run` without steps that only Numba's own functions need."""

    def run_without(self: Any, *arguments: Any, **named: Any) -> None:
        graph = self.func_ir
        if graph.is_generator or graph.func_id.modname.startswith("numba."):
            run(self, *arguments, **named)
        else:
            graph.blocks = transforms.canonicalize_cfg(graph.blocks)
            graph.generator_info = None

    return run_without


def _run_pass(self: Any, _index: int, step: Any, state: Any) -> None:
    step.analysis = self._analysis
    step.run_initialization(state)
    step.run_pass(state)
    step.run_finalizer(state)
