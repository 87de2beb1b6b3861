"""A compiler that does only what the engine needs: helpers are optimised once, all of them together.

Numba optimises every compiled function by itself, turns it into machine code and links a copy into each of
its callers. Here, helpers are left as intermediate code. The entry function is linked with all of them, once;
functions that it does not call after inlining are dropped, and machine code is made of the rest. Passes for
features of Python that compiled functions do not use (closures, `with`, unrolled literals, array expressions)
are left out, and so are long names of symbols.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from et_sim.compiled.lean_lower import LeanHelperLower, LeanLower
from et_sim.compiled.numba_adapter import (
    CompilerBase,
    DefaultPassBuilder,
    NativeLowering,
    TranslateByteCode,
    _dynfunc,
    register_pass,
    replace_methods,
    replaced,
)
from et_sim.compiled.reachable import Reachable
from et_sim.compiled.shortcuts import shortcuts

NEEDED = (
    "FixupArgs",
    "IRProcessing",
    "GenericRewrites",
    "ReconstructSSA",
    "NopythonTypeInference",
    "PreLowerStripPhis",
    "NoPythonBackend",
)


_REACHABLE: ContextVar[Reachable] = ContextVar("reachable")
_REPORT: ContextVar[tuple[Callable[[int], None], int]] = ContextVar("report", default=(lambda _: None, 0))


@contextmanager
def compiling_once(
    function: Any, arguments: tuple[Any, ...], report: Callable[[float], None]
) -> Iterator[None]:
    """Save Numba work within the context, and compile only functions that can be reached from one.

    `report` gets the share of helpers that are compiled, after each of them.
    """
    reachable = Reachable()
    tokens = _REPORT.set((lambda _: None, 0)), _REACHABLE.set(reachable)
    try:
        with shortcuts():
            helpers = reachable.helpers_of(function, arguments)
            _REPORT.set((lambda done: report(min(done / helpers, 1)), 0))
            yield
    finally:
        _REPORT.reset(tokens[0])
        _REACHABLE.reset(tokens[1])


@register_pass(mutates_CFG=True, analysis_only=False)
class _TranslateReachable(TranslateByteCode):
    """A pass that translates the reachable parts of a function."""

    _name = "translate_reachable"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = _REACHABLE.get().graph(state.func_id.func, state.args)
        state.func_id = state.func_ir.func_id
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerHelper(NativeLowering):
    """A pass that lowers a helper to intermediate code and stops there."""

    _name = "lower_helper"
    lowering_class = LeanHelperLower

    def __init__(self) -> None:
        NativeLowering.__init__(self)

    def run_pass(self, state: Any) -> bool:
        library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        replace_methods(
            library,
            _optimize_functions=_nothing,
            add_llvm_module=lambda module: setattr(library, "_final_module", module),
            finalize=lambda: setattr(library, "_finalized", True),
            _get_module_for_linking=lambda: _to_link(library),
        )
        library.is_helper = True
        done = self._lower(state, library)
        report, count = _REPORT.get()
        _REPORT.set((report, count + 1))
        report(count + 1)
        return done

    def _lower(self, state: Any, library: Any) -> bool:
        state.library = library
        context = state.targetctx
        with (
            replaced(context, "get_executable", _no_executable),
            replaced(context, "mangler", _short_name),
        ):
            return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerEntry(_LowerHelper):
    """A pass that lowers an entry function, and makes machine code of it and all its helpers."""

    _name = "lower_entry"
    lowering_class = LeanLower

    def run_pass(self, state: Any) -> bool:
        library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        finalize = library.finalize

        def finalize_with_all_helpers() -> None:
            library._linking_libraries = _all_helpers(library)
            finalize()

        replace_methods(
            library,
            _optimize_functions=_nothing,
            _finalize_final_module=lambda: setattr(library, "_finalized", True),
            _optimize_final_module=lambda: _optimise(library),
            finalize=finalize_with_all_helpers,
        )
        return self._lower(state, library)


class HelperCompiler(CompilerBase):
    """The compiler of helpers: pass it to Numba as `pipeline_class`."""

    lowering = _LowerHelper

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        own = {NativeLowering: self.lowering, TranslateByteCode: _TranslateReachable}
        manager.passes = [
            (own.get(step, step), name)
            for step, name in manager.passes
            if step in own or step.__name__ in NEEDED
        ]
        manager._ENFORCING = False
        manager.finalize()
        return [manager]


class EntryCompiler(HelperCompiler):
    """The compiler of entry functions, likewise; the result is optimised intermediate code."""

    lowering = _LowerEntry


def _nothing(*_arguments: Any, **_named: Any) -> None:
    pass


def _short_name(name: str, kinds: Any, *, abi_tags: Any = (), uid: Any = None) -> str:
    """Return a short symbol for a function and its types: Numba's names of tables are long."""
    text = f"{name}\0{kinds}\0{abi_tags}\0{uid}"
    return f"{name.rpartition('.')[2]}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _to_link(library: Any) -> Any:
    """Return the intermediate code of a helper, of which there may be several copies."""
    for function in library._final_module.functions:
        if not function.is_declaration:
            function.linkage = "linkonce_odr"
    return library._final_module


def _all_helpers(library: Any) -> list[Any]:
    """Return all functions that a library calls, directly or indirectly, in a fixed order."""
    found: dict[Any, None] = {}
    left = [library]
    while left:
        for called in left.pop()._linking_libraries:
            if called not in found:
                found[called] = None
                left.append(called)
    return list(found)


def _optimise(library: Any) -> None:
    """Make everything but the entry function private to the module, and optimise it as a whole."""
    module = library._final_module
    for function in module.functions:
        if not function.is_declaration and function.linkage.name != "external":
            function.linkage = "internal"
    for variable in module.global_variables:
        if variable.linkage.name == "common":
            variable.linkage = "internal"
    passes, builder = library.codegen._module_pass_manager()
    passes.run(module, builder)


def _no_executable(library: Any, description: Any, environment: Any) -> Any:
    """Return a name for a helper among the compiled functions; Python cannot call it."""
    library.finalize()
    name = description.qualname.split(".")[-1]
    module = description.lookup_module()
    return _dynfunc.make_function(module, name, name, 0, environment, (library,))
