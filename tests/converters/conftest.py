"""Fixtures that these tests share with those of the command line."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))

from warm_engine import warm_engine

__all__ = ["warm_engine"]
