"""Compiles helpers only as far as their callers need them.

Numba optimises every compiled function by itself and turns it into machine code, although of a helper only
the copy that is linked into an entry function ever runs: with a hundred small helpers that is most of the
compile time. A helper compiled by `HelperCompiler` is left as intermediate code; compiling the entry
function optimises all of it, once. Python cannot call such a helper.

Not here: which functions are helpers (`compiled`, `tables_by_reference`).
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerForCallers(NativeLowering):
    """Lowers a helper to intermediate code and stops there."""

    _name = "lower_for_callers"

    def __init__(self) -> None:
        NativeLowering.__init__(self)

    def run_pass(self, state: Any) -> bool:
        library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        library.enable_object_caching()
        library._optimize_final_module = lambda: None
        library._finalize_final_module = lambda: setattr(library, "_finalized", True)
        state.library = library
        context = state.targetctx
        context.get_executable = _no_executable
        try:
            return bool(super().run_pass(state))
        finally:
            del context.get_executable


def _no_executable(library: Any, description: Any, environment: Any) -> Any:
    """What names a helper among the compiled functions; calling it from Python is not possible."""
    library.finalize()
    name = description.qualname.split(".")[-1]
    module = description.lookup_module()
    return _dynfunc.make_function(module, name, name, 0, environment, (library,))


class HelperCompiler(CompilerBase):
    """The compiler of helpers: pass it to Numba as `pipeline_class`."""

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [
            (_LowerForCallers if step is NativeLowering else step, name) for step, name in manager.passes
        ]
        manager.finalize()
        return [manager]
