"""Views: what a run's directory says, as text, lists and pictures.

Everything here is computed from the files of a run alone. Not here: simulating, and how the files come
about (`et_sim.timeline`).
"""

from et_sim.views.run.directory import RunDirectory, open_run

__all__ = ["RunDirectory", "open_run"]
