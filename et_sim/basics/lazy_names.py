"""Names that are loaded on first use, so importing a package or a registry is fast.

For type checkers, the package imports the same names under TYPE_CHECKING.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


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
