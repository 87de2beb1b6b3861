"""Names that are loaded on first use, so importing a package or a registry is fast.

For type checkers, the package imports the same names under TYPE_CHECKING.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping
from importlib import import_module
from typing import Any, TypeVar

_Annotated = TypeVar("_Annotated", bound=Callable[..., Any])


def lazy_names(
    package: str, offered: Iterable[str], homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package: its names, and the modules that hold them."""
    home = {name: f"{package}.{module}" for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name in home:
            return getattr(import_module(home[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted(offered)


def loaded(place: str) -> Any:
    """Return the object that `module:name` refers to."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def late_hints(annotated: _Annotated) -> _Annotated:
    """Let `help`, `inspect.signature` and `typing.get_type_hints` resolve names imported for type checkers.

    The imports under TYPE_CHECKING run when the annotations are first read, not when the module is loaded.
    """
    annotated.__annotations__ = _LateHints(annotated.__annotations__, annotated.__module__)
    return annotated


class _LateHints(dict[str, Any]):
    """Annotations whose reader first imports the names that they refer to."""

    def __init__(self, annotations: Mapping[str, Any], module: str) -> None:
        super().__init__(annotations)
        self._module = module

    def __iter__(self) -> Iterator[str]:  # dict(annotations) calls `keys` if this differs from that of dict
        return iter(self.keys())

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        self._resolve()
        return super().keys()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._resolve()
        return super().items()

    def _resolve(self) -> None:
        if self._module:
            _import_type_names(self._module)
        self._module = ""


def _import_type_names(module: str) -> None:
    """Run the imports of a module that stand under TYPE_CHECKING."""
    import ast
    import inspect

    loaded_module = sys.modules[module]
    for node in ast.parse(inspect.getsource(loaded_module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            code = compile(ast.Module(node.body, []), str(loaded_module.__file__), "exec")
            exec(code, vars(loaded_module))
