"""The recordings that tests read: those of this repository, and those of a folder given in the environment.

`ET_SIM_RECORDINGS=/folder pytest tests/converters` also reads every file below that folder.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from converters.pytorch.reading import identify

FOLDER = Path(__file__).parent / "pytorch_traces"
ELSEWHERE = os.environ.get("ET_SIM_RECORDINGS")


def json_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name.endswith((".json", ".json.gz")))


def is_of_a_later_rank(path: Path) -> bool:
    """Return whether rank 0 of the same job was recorded, too, so that this rank adds little."""
    first = path.with_name(re.sub(r"_\d+(?=\.json)", "_0", path.name))
    return first != path and first.is_file()


def recordings(*kinds: str) -> list[Any]:
    """Return the recordings of these kinds as parameters, named by their paths; later ranks with `--deep`."""
    folders = [FOLDER, Path(ELSEWHERE)] if ELSEWHERE else [FOLDER]
    results = [(path, path.relative_to(folder)) for folder in folders for path in json_files(folder)]
    return [
        pytest.param(
            path,
            id=str(name).removesuffix(".gz").removesuffix(".json"),
            marks=pytest.mark.deep if is_of_a_later_rank(path) else (),
        )
        for path, name in results
        if identify(path).kind in kinds
    ]


def parsed(path: Path) -> Any:
    """Parse the file with the standard library, with exact decimals."""
    content = path.read_bytes()
    if path.name.endswith(".gz"):
        content = gzip.decompress(content)
    return json.loads(content, parse_float=Decimal)
