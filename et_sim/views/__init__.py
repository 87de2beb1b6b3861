"""Views: the content of a run's directory as text, lists and pictures.

Everything here is computed from the files of a run alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.lazy_names import lazy_names

if TYPE_CHECKING:
    from et_sim.views.run.directory import RunDirectory, open_run

__all__ = ["RunDirectory", "open_run"]

# Loaded on first use, so that listing the views does not import numpy.
__getattr__, __dir__ = lazy_names(__name__, __all__, {"run.directory": __all__})
