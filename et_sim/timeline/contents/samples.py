"""The columns of the samples of a step."""

from __future__ import annotations

import numpy as np

from et_sim.timeline.content import TableContent, Texts, whole
from et_sim.timeline.recorded import RecordedRun


def samples_content(run: RecordedRun) -> TableContent | None:
    """Return samples.arrow."""
    if run.samples is None:
        return None
    columns = run.samples.columns()
    names = tuple(dict.fromkeys(columns["without"]))
    number = {name: at for at, name in enumerate(names)}
    codes = np.array([number[name] for name in columns["without"]], np.int32)
    return whole({**columns, "without": Texts(codes, names)})
