"""Kind of a file or folder by its first bytes, and the command that takes it, for misplaced arguments.

Both programs check their arguments before they run a command. `et_sim.machine.recognise` separates
configuration files.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from et_sim.basics.errors import UsageError
from et_sim.basics.files import in_shell


class FileKind(StrEnum):
    """The kinds of files that are recognised, as messages name them."""

    RUN = "the directory of a run"
    PART_OF_RUN = "a part of a run's directory"
    SWEEP = "the directory of a sweep"
    AXES = "the description of a sweep"
    TRACE = "a trace file of one rank"
    MANIFEST = "a workload manifest"
    LAYERS = "a layer file"
    JOBS = "a job file"
    GOAL = "a GOAL text (schedules of LogGOPSim)"
    RECORDING = "a recording of PyTorch"
    RECORDINGS = "a folder with recordings of PyTorch"
    JSON_TRACE = "a trace as JSON lines"
    ALGORITHM = "a collective algorithm of MSCCL"
    NETWORK = "a network file"
    SYSTEM = "a system file"
    MEMORY = "a memory file"
    GROUPS = "a groups file"


_MACHINE = (FileKind.NETWORK, FileKind.SYSTEM, FileKind.MEMORY, FileKind.GROUPS)
_WORKLOADS = (FileKind.MANIFEST, FileKind.LAYERS, FileKind.JOBS, FileKind.GOAL)
# Allowed kinds by the name of an argument.
SIMULATOR: Mapping[str, tuple[FileKind, ...]] = MappingProxyType(
    {
        "workload": _WORKLOADS,
        "recording": (FileKind.TRACE,),
        "schedule_of": (FileKind.MANIFEST, FileKind.RUN, FileKind.PART_OF_RUN),
        **dict.fromkeys(("system", "network", "memory", "groups"), _MACHINE),  # their reader separates these
        **dict.fromkeys(("a", "b"), (FileKind.RUN, FileKind.PART_OF_RUN, FileKind.SWEEP, FileKind.MANIFEST)),
        "directory": (FileKind.RUN, FileKind.PART_OF_RUN, FileKind.SWEEP),
    }
)
_TRACES = (FileKind.TRACE, FileKind.MANIFEST)
_PYTORCH = (FileKind.RECORDING, FileKind.RECORDINGS)
CONVERTER: Mapping[str, Mapping[str, tuple[FileKind, ...]]] = MappingProxyType(
    {
        "pytorch": dict.fromkeys(("input", "host", "device"), _PYTORCH),
        "json": {"inputs": (FileKind.JSON_TRACE,)},
        "text": {"input": (FileKind.LAYERS,)},
        "goal": {"input": (FileKind.GOAL,)},
        "gemm": {"input": ()},
        "msccl": {"input": (FileKind.ALGORITHM,)},
        **dict.fromkeys(
            ("show", "unjson", "stats", "graph", "slice", "strip", "repair", "expand", "scale"),
            dict.fromkeys(("input", "prefix", "trace", "manifest"), _TRACES),
        ),
    }
)
_BYTES_READ = 4096
_GROUP = r'"[^"]*"\s*:\s*\[[\s\d,]*\]\s*(?:,\s*|(?=\}))'
_BEGIN_OF_GROUPS = r'\s*\{\s*"[^"]+"\s*:\s*\[\s*\d'
# Names of groups may be keys of other files; all groups in these bytes have lists of ranks.
_ONLY_GROUPS = (
    rf"\s*\{{\s*(?:{_GROUP})*"
    r'(?:\}|(?:"[^"]*(?:"\s*(?::\s*(?:\[[\s\d,]*(?:\]\s*)?)?)?)?)?\Z)'
)
_RECORDING = r'"(traceEvents|deviceProperties)"\s*:|\{\s*"schema"\s*:\s*"\d+\.\d'
# Patterns, each with words: a text without any of them cannot match, so most patterns need no compilation.
_SIGNS: tuple[tuple[FileKind, tuple[str, ...], str], ...] = (
    (FileKind.AXES, ("axes",), r"(?m:^axes\s*:)"),
    (FileKind.MANIFEST, ("et_sim_workload",), r'"et_sim_workload"\s*:'),
    (FileKind.JSON_TRACE, ("et_sim_trace",), r'\s*\{\s*"et_sim_trace"\s*:'),
    (FileKind.RECORDING, ("traceEvents", "deviceProperties", "schema"), _RECORDING),
    (FileKind.ALGORITHM, ("<algo",), r"\s*<algo\b"),
    (
        FileKind.LAYERS,
        ("DATA", "MODEL", "MICRO", "HYBRID_", "TRANSFORMER", "DLRM", "DISTRIBUTED_INFERENCE"),
        r"\s*(DATA|MODEL|MICRO|HYBRID_[A-Z_]+|TRANSFORMER\w*|DLRM\w*|DISTRIBUTED_INFERENCE)\s+\S",
    ),
    (FileKind.GOAL, ("num_ranks",), r"(?m:^[ \t]*num_ranks[ \t]+\d)"),
    (FileKind.JOBS, ("jobs",), r"""(?m:^["']?jobs["']?\s*:)|\A\s*\{[^{}\[\]]*"jobs"\s*:"""),
    (FileKind.MEMORY, ("memory-type",), r'"memory-type"\s*:'),
    (
        FileKind.SYSTEM,
        ("scheduling-policy", "preferred-dataset-splits", "-implementation"),
        r'(^|[\s"])(scheduling-policy|preferred-dataset-splits|[a-z-]+-implementation)"?\s*:',
    ),
    (
        FileKind.NETWORK,
        ("npus_count", "topology", "units-count"),
        r'(^|[\s"{])(npus_count|topology|topology-name|units-count)"?\s*:',
    ),
)
_GOAL_NAMES = (".goal", ".goal.gz")
_TRACE_NAME = r"(.+?)\.(0|[1-9]\d*)\.et(\.gz)?"


def kind_of(path: Path) -> FileKind | None:
    """Return the kind of a path, if it is one of these."""
    try:
        if path.is_dir():
            if (path / "run.json").is_file():
                return FileKind.RUN
            if (path / "sweep.arrow").is_file():
                return FileKind.SWEEP
            return (
                FileKind.RECORDINGS if any(_is_recording(content) for content in _some_json(path)) else None
            )
        if not path.is_file():
            return None
        if (path.parent / "run.json").is_file() and path.suffix in (".arrow", ".json"):
            return FileKind.PART_OF_RUN
        begin = _begin(path)
    except (OSError, ValueError):  # a name that is too long, or has a null character
        return None
    text = "" if b"\0" in begin else begin.decode("utf-8-sig", errors="replace")
    may_be_groups = _fits(_BEGIN_OF_GROUPS, text)
    if may_be_groups and _fits(_ONLY_GROUPS, text):
        return FileKind.GROUPS
    for kind, words, sign in _SIGNS:
        if any(word in text for word in words) and _fits(sign, text):
            return kind
    if may_be_groups:
        return FileKind.GROUPS
    is_text = begin.startswith(b"{") and begin.isascii()
    if path.name.endswith(_GOAL_NAMES):
        return FileKind.GOAL
    return FileKind.TRACE if re.fullmatch(_TRACE_NAME, path.name) and not is_text else None


def refuse_misplaced(given: Mapping[str, object], places: Mapping[str, tuple[FileKind, ...]]) -> None:
    """Refuse the first argument that is clearly of another kind."""
    for name, allowed in places.items():
        value = given.get(name)
        values: Iterable[object] = value if isinstance(value, list) else [value]
        for path in values:
            if isinstance(path, str | Path) and (kind := kind_of(Path(path))) and kind not in allowed:
                if (
                    name == "workload"
                    and kind in (FileKind.RUN, FileKind.RECORDINGS)
                    and _is_prefix(Path(path))
                ):
                    continue
                if name == "workload" and kind is FileKind.TRACE and given.get("alone"):
                    continue
                raise UsageError(f"this is {kind}", place=str(path), remedy=_remedy(kind, Path(path)))


def _remedy(kind: FileKind, path: Path) -> str:
    """Return the command that takes it."""
    file = in_shell(path)
    match kind:
        case FileKind.RUN | FileKind.SWEEP:
            return f"look at it with: et-sim inspect {file}"
        case FileKind.AXES:
            return f"carry it out with: et-sim sweep {file}"
        case FileKind.PART_OF_RUN:
            return f"look at the run with: et-sim inspect {in_shell(path.parent)}"
        case FileKind.TRACE:
            match = re.fullmatch(_TRACE_NAME, path.name)
            prefix = path.with_name(match[1]) if match else path
            return (
                f"a workload is given by its prefix, et-sim run {in_shell(prefix)}, or one rank with --alone;"
                f" to read the file: et-convert show {file}"
            )
        case FileKind.MANIFEST | FileKind.LAYERS | FileKind.JOBS | FileKind.GOAL:
            return f"simulate it with: et-sim run {file} --system FILE --network FILE"
        case FileKind.RECORDING:
            return f"make a trace of it first: et-convert pytorch {file} -o NAME.0.et"
        case FileKind.RECORDINGS:
            return f"make traces of it first: et-convert pytorch {file} -o NAME"
        case FileKind.JSON_TRACE:
            return f"make trace files of it first: et-convert json {file} -o NAME"
        case FileKind.ALGORITHM:
            return f"make programs of it first: et-convert msccl {file} -o NAME"
        case _:
            option = {FileKind.NETWORK: "network", FileKind.SYSTEM: "system", FileKind.MEMORY: "memory"}.get(
                kind, "groups"
            )
            return f"pass it to et-sim run with --{option} {file}"


def _is_prefix(path: Path) -> bool:
    """Return whether there are traces with that prefix."""
    return any(Path(f"{path}{ending}").is_file() for ending in (".0.et", ".0.et.gz", ".workload.json"))


def _begin(path: Path) -> bytes:
    with path.open("rb") as file:
        begin = file.read(_BYTES_READ)
    if begin.startswith(b"\x1f\x8b"):
        try:
            import gzip

            with gzip.open(path) as packed:
                return packed.read(_BYTES_READ)
        except (EOFError, OSError, zlib.error):
            return begin
    return begin


def _fits(sign: str, text: str) -> bool:
    """Return whether a sign matches; signs that begin with white space match at the beginning."""
    find = re.match if sign.startswith(r"\s*") else re.search
    return find(sign, text) is not None


def _some_json(folder: Path) -> list[Path]:
    names = (file for file in folder.iterdir() if file.name.endswith((".json", ".json.gz")))
    return sorted(names)[:3]


def _is_recording(path: Path) -> bool:
    return _fits(_RECORDING, _begin(path).decode("utf-8", errors="replace"))
