"""What libraries besides PyTorch must be told, as soon as the program imports them.

They look for fake tensors and take another way when they see one: as if the program were traced, with kernels
that no GPU would run. Not here: PyTorch itself (`redirect`).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def _transformers(module: ModuleType) -> None:
    vars(module)["is_fake_tensor"] = lambda _: False


_TOLD: dict[str, Callable[[ModuleType], None]] = {"transformers.utils.import_utils": _transformers}


class _Loader(importlib.abc.Loader):
    """Loads as another does, and then tells the module."""

    def __init__(self, inner: Any, tell: Callable[[ModuleType], None]) -> None:
        self._inner, self._tell = inner, tell

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._tell(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are to be told, through the finders behind it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        tell = _TOLD.get(fullname)
        if tell is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, tell)
                return spec
        return None


def tell_libraries() -> None:
    """From now on."""
    sys.meta_path.insert(0, _Finder())
