"""What all tests share: modules of helpers beside the tests are importable by name."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("golden", "engine", "trace", "conformance"):
    sys.path.insert(0, str(Path(__file__).parent / folder))
