"""Views: what a run's directory says, as text, lists and pictures.

Everything here is computed from the files of a run alone. Not here: simulating, and how the files come
about (`et_sim.timeline`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from et_sim.views.run.directory import RunDirectory, open_run

__all__ = ["RunDirectory", "open_run"]


def __getattr__(name: str) -> Any:
    """Loaded on first use: which views there are is known without numpy."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from et_sim.views.run import directory

    return getattr(directory, name)
