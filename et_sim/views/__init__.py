"""Views: what a run's directory says, as text, lists and pictures.

Everything here is computed from the files of a run alone. Not here: simulating, and how the files come
about (`et_sim.timeline`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.lazy_names import lazy_names

if TYPE_CHECKING:
    from et_sim.views.run.directory import RunDirectory, open_run

__all__ = ["RunDirectory", "open_run"]

# Loaded on first use: which views there are is known without numpy.
__getattr__, __dir__ = lazy_names(__name__, __all__, {"run.directory": __all__})
