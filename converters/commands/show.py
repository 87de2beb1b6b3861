"""`et-convert show`: print a trace, one line per node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from et_sim.basics.declared_options import Command, Option
from et_sim.basics.errors import TraceError, UsageError
from et_sim.basics.files import is_file


class Options(Command):
    """Print the trace of one rank, one line per node in the order of the file."""

    trace: Annotated[str, "PREFIX for PREFIX.<rank>.et, a manifest, or a file", "PREFIX_OR_FILE"]
    rank: Annotated[int | None, "which rank of PREFIX or manifest (default: 0)"] = None
    limit: Annotated[int | None, "print only the first N nodes", "N", Option(least=0)] = None
    json: Annotated[bool, "print JSON lines, which hold all content of the file"] = False


def run(options: Options) -> Iterator[str]:
    """Check the file with the reader, then yield its records one by one."""
    import json
    from itertools import islice

    from converters.json_lines import header_object, node_object
    from converters.records import parse, split
    from converters.showing import table
    from et_sim.trace import decode
    from et_sim.trace.disk import read_unpacked

    path, ranks = _file_of(options)
    content = read_unpacked(path)
    trace = decode(content, str(path), drop_dangling=True)
    records = parse(split(content), str(path))
    header = next(records)
    nodes = islice(records, options.limit)
    if options.json:
        yield json.dumps(header_object(header), ensure_ascii=False)
        yield from (json.dumps(node_object(node), ensure_ascii=False) for node in nodes)
        return
    yield _title(path, ranks, len(trace), header.version)
    yield from table(trace, nodes)
    left = len(trace) - (options.limit if options.limit is not None else len(trace))
    if left > 0:
        yield f"… {left:,} more"


def _title(path: Path, ranks: int, nodes: int, version: str) -> str:
    from et_sim.basics.units import plural

    place = f", one of {plural(ranks, 'rank')}" if ranks > 1 else ""
    written = f", schema version {version}" if version else ""
    return f"{path}{place}: {plural(nodes, 'node')}{written}"


def _file_of(options: Options) -> tuple[Path, int]:
    """Return the file to show, and the number of ranks (0 if a file was named)."""
    from et_sim.trace.disk import is_manifest

    named = Path(options.trace)
    if is_manifest(named):
        return _template_of(options)
    if is_file(named):
        if options.rank is not None:
            raise UsageError(
                "is a file, which has no ranks",
                place=options.trace,
                remedy="leave out --rank, or give a prefix",
            )
        return named, 0
    rank = options.rank or 0
    ranks = _ranks_of(named)
    for ending in (".et", ".et.gz"):
        path = Path(f"{options.trace}.{rank}{ending}")
        if is_file(path):
            return path, len(ranks)
    if not ranks:
        from et_sim.trace import read_workload

        read_workload(options.trace)  # raises the error that names the missing files
    from et_sim.basics.units import plural

    listed = str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
    raise TraceError(
        f"there is no trace of rank {rank}",
        place=options.trace,
        remedy=f"there is one of {plural(len(ranks), 'rank')}: {listed}",
    )


def _template_of(options: Options) -> tuple[Path, int]:
    """Return the template that a rank of a manifest runs, and the number of ranks."""
    from et_sim.trace import read_manifest

    workload = read_manifest(options.trace, drop_dangling=True)
    rank = options.rank or 0
    if not 0 <= rank < workload.ranks:
        remedy = f"there are ranks 0 to {workload.ranks - 1}"
        raise TraceError(f"there is no trace of rank {rank}", place=options.trace, remedy=remedy)
    return Path(workload.trace(rank).source), workload.ranks


def _ranks_of(prefix: Path) -> list[int]:
    """Return the ranks that have a file."""
    pattern = re.compile(re.escape(prefix.name) + r"\.(0|[1-9][0-9]*)\.et(?:\.gz)?")
    matches = (pattern.fullmatch(path.name) for path in prefix.parent.glob("*.et*"))
    return sorted({int(match[1]) for match in matches if match})
