"""A plugin of pytest for mutants: a failing random case is neither shrunk nor kept."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings

EXAMPLES = 15  # of a random case; the short suite draws 4


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    settings.register_profile(
        "unshrunk",
        settings(),
        max_examples=EXAMPLES,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        report_multiple_bugs=False,
    )
    settings.load_profile("unshrunk")
