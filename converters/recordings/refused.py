"""Formats that are recognised, and from which no job can be made: each with the reason and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from converters.recordings.format import REFUSED, RecordingFormat, RecordingTask, first_bytes
from et_sim.basics.errors import InputError


class _Known(Struct, frozen=True):
    name: str
    cause: str
    remedy: str


TOPOLOGY = _Known(
    "a topology of NCCL",
    "it describes a host, and no job",
    "et-sim machine from FILE --out DIR makes its network file",
)
INFRAGRAPH = _Known(
    "an infrastructure of InfraGraph",
    "it describes machines, and no job",
    "et-sim machine from FILE --out DIR makes the network file",
)
STRAGGLERS = _Known(
    "a result of StragglerAnalysis",
    "it has figures of an analysis, and no operations",
    "name the recording that it is about: et-convert steps TRACE.parquet",
)
REPORT = _Known(
    "a report of Nsight Systems in its own form",
    "only Nsight Systems can read it",
    "export it: nsys export --type sqlite FILE, and name the file that results",
)
ARCHIVE = _Known(
    "an archive",
    "it may hold files of many kinds",
    "unpack it (tar xf FILE, or unzip FILE), and name what it held",
)
TRACE = _Known(
    "a trace by its name",
    "et-sim reads it without conversion",
    "name the beginning of the files of all ranks: et-sim run PREFIX",
)
MLPERF = _Known(
    "a log of MLPerf Training",
    "it has the times of blocks of steps, and no work",
    "compare its step with a prediction: et-sim validate FILE",
)
REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")
_ZIP, _TAR, _TAR_AT = b"PK\x03\x04", b"ustar", 257
_MLLOG = b":::MLLOG {"
_JOB_META, _TREM, _TIDEAL = b'"step_t_nodelay"', b'"trem"', b'"tideal"'


def known_kind(path: Path, begin: bytes) -> _Known | None:
    """Return the kind of a file."""
    text = begin.lstrip()
    if text.startswith((b"<system", b"<?xml")) and b"<system" in begin and b"<cpu" in begin:
        return TOPOLOGY
    if path.suffix in (".yaml", ".yml", ".json") and b"components" in begin and b"infrastructure" in begin:
        return INFRAGRAPH
    if text.startswith(b"{") and (_JOB_META in begin or (_TREM in begin and _TIDEAL in begin)):
        return STRAGGLERS
    if _MLLOG in begin:
        return MLPERF
    return None


def refusal_beside_nothing(path: Path, begin: bytes) -> InputError | None:
    """Return the refusal of a file that is no recording, but lies beside recordings where there are some."""
    kind = None
    if path.suffix in REPORTS:
        kind = REPORT
    elif begin.startswith(_ZIP) or begin[_TAR_AT:].startswith(_TAR):
        kind = ARCHIVE
    elif path.name.removesuffix(".gz").endswith(".et"):
        kind = TRACE
    return None if kind is None else _refusal(kind, path)


def _refusal(kind: _Known, path: Path) -> InputError:
    return InputError(f"this is {kind.name}: {kind.cause}", place=str(path), remedy=kind.remedy)


def _recognises(path: Path, begin: bytes) -> bool:
    return known_kind(path, begin) is not None


def _convert(task: RecordingTask) -> Iterator[str]:
    path = task.files[0]
    kind = known_kind(path, first_bytes(path))
    assert kind is not None
    yield from ()
    raise _refusal(kind, path)


FORMAT = RecordingFormat(REFUSED, recognises=_recognises, convert=_convert)
