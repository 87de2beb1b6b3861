"""The file that names a custom collective program per workload node: node id -> prefix of trace files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from et_sim.errors import MachineError
from et_sim.machine.texts import parse_yaml


def read_programs(path: str | None) -> tuple[dict[int, str], tuple[tuple[str, str], ...]]:
    """(program prefixes by node id, the path and content hash of the file); both empty without a file."""
    if path is None:
        return {}, ()
    try:
        raw = Path(path).read_bytes()
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(
            f"cannot be read: {error}", place=path, remedy='see "per-node-custom-implementation"'
        ) from None
    content = parse_yaml(text, path)
    programs: dict[int, str] = {}
    for node, prefix in (content if isinstance(content, dict) else {"": content}).items():
        if not str(node).isdecimal() or not isinstance(prefix, str):
            raise MachineError(
                f"entry {node!r}: {prefix!r} does not name a program for a node",
                place=path,
                remedy='write lines like "7: programs/ring": a node id and the prefix of its files',
            )
        programs[int(node)] = prefix
    return programs, ((path, hashlib.sha256(raw).hexdigest()),)
