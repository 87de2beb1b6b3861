"""Cases of `et-convert pytorch`: recordings alone and in pairs, and the correct reports.

  python tests/converters/pytorch_cases.py   # put today's reports into pytorch_reports.json

With ET_SIM_RECORDINGS=/folder, every recording below that folder is a case, too (and gets a report).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from recordings import ELSEWHERE, FOLDER, is_of_a_later_rank, json_files

from converters.pytorch.converting import convert_rank
from converters.pytorch.emission import trace_bytes
from converters.pytorch.rank import ConvertedRank
from converters.pytorch.reading import identify, read_device, read_host, read_linked
from converters.pytorch.report import report_on

LARGE_BYTES = 300_000
REPORTS = Path(__file__).parent / "pytorch_reports.json"


@dataclass(frozen=True)
class Case:
    """One rank's files."""

    name: str
    host: Path | None = None
    device: Path | None = None
    linked: Path | None = None


@functools.cache
def cases() -> tuple[Case, ...]:
    """Return files alone, and pairs: an execution trace and a timeline of one folder and one number."""
    results = []
    for folder in [FOLDER, *([Path(ELSEWHERE)] if ELSEWHERE else [])]:
        prefix = "" if folder == FOLDER else "elsewhere/"
        for path in json_files(folder):
            kind = identify(path).kind
            name = prefix + str(path.relative_to(folder)).removesuffix(".gz").removesuffix(".json")
            if kind in ("host", "device", "linked"):
                results.append(Case(name, **{kind: path}))
            partner = path.with_name(re.sub(r"^(?:\w+_)?et(?=[_.])", "kineto", path.name))
            if kind == "host" and partner != path and partner.is_file():
                results.append(Case(name + "+kineto", host=path, device=partner))
    old = Path(ELSEWHERE) / "param" if ELSEWHERE else None
    if old is not None and (old / "old_resnet_et.json.gz").is_file():
        pair = old / "old_resnet_et.json.gz", old / "resnet_kineto.json.gz"
        results.append(Case("elsewhere/param/resnet, 1 iteration of 30", *pair))
    return tuple(results)


def every(chosen: Iterable[Case]) -> Any:
    """Return the parameter `case`; of a recorded job, all ranks but the first run only with `--deep`."""
    return _parameter([(case, _is_of_a_later_rank(case)) for case in chosen])


def some(chosen: Iterable[Case], step: int) -> Any:
    """Return the parameter `case`; of small cases, all but every `step`th run only with `--deep`."""
    every_case = list(chosen)
    short = [case for case in every_case if not _is_of_a_later_rank(case) and not _is_large(case)]
    return _parameter([(case, case not in short[::step]) for case in every_case])


def _parameter(deep: list[tuple[Case, bool]]) -> Any:
    results = [
        pytest.param(case, id=case.name, marks=pytest.mark.deep if is_deep else ()) for case, is_deep in deep
    ]
    return pytest.mark.parametrize("case", results)


def _files(case: Case) -> list[Path]:
    return [path for path in (case.host, case.device, case.linked) if path is not None]


def _is_of_a_later_rank(case: Case) -> bool:
    return any(map(is_of_a_later_rank, _files(case)))


def _is_large(case: Case) -> bool:
    return sum(path.stat().st_size for path in _files(case)) > LARGE_BYTES


@functools.lru_cache(maxsize=64)
def converted(case: Case) -> ConvertedRank:
    if case.linked is not None:
        return convert_rank(*read_linked(case.linked))
    host = read_host(case.host) if case.host is not None else None
    return convert_rank(host, read_device(case.device) if case.device is not None else None)


@functools.lru_cache(maxsize=64)
def content(case: Case) -> bytes:
    return b"".join(trace_bytes(converted(case)))


def report(case: Case) -> dict[str, Any]:
    return report_on(converted(case), [], "", len(content(case)))


if __name__ == "__main__":
    known = json.loads(REPORTS.read_text()) if REPORTS.is_file() else {}
    known |= {case.name: report(case) for case in cases()}
    lines = (f"{json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known))
    REPORTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
