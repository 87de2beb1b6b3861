"""Names that are loaded on first use: importing a package, or a registry, costs nothing that is not used.

For checkers of types, the package imports the same names under TYPE_CHECKING.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, offered: Iterable[str], homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Its `__getattr__` and `__dir__`: all names that it offers, and which modules of it have which."""
    home = {name: f"{package}.{module}" for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name in home:
            return getattr(import_module(home[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted(offered)


def loaded(place: str) -> Any:
    """What `module:name` means."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
