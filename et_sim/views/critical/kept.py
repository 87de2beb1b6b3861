"""What was found in a long record, kept beside it for the next call.

It is believed only if it is whole, and was found by this version in the very tables that the run holds: by a
digest of their content. Otherwise all is found anew. Where nothing can be written, nothing is kept.

Not here: how it is found (`chain`, `condensed`, `sensitivity`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from et_sim.basics.errors import UsageError
from et_sim.basics.files import new_file
from et_sim.tables.registry import KEPT, SUMMARY
from et_sim.version import __version__
from et_sim.views.critical.chain import Chain
from et_sim.views.run.columns import Words
from et_sim.views.run.directory import RunDirectory

FORMAT = 2  # goes up whenever what is found, or how it is kept, changes
LONG_BYTES = 1 << 20  # of the record, from which it is worth while
READ = ("path", "timeline", "actors", "groups", "resources")
COLUMNS = ("start_ns", "end_ns", "kind", "resource", "actor", "node", "other_end_ns")


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The critical path, and of runs where it can be predicted, what would change it, and slack; or only the
    changes that a page shows."""

    chain: Chain
    sensitivities: Sequence[dict[str, Any]] | None
    slack: tuple[Any, Any] | None
    changes: Sequence[dict[str, Any]] | None


def key_of(run: RunDirectory) -> str | None:
    """What tells the run's tables from all others; None: it is found quickly enough."""
    if run.table_path("path").stat().st_size < LONG_BYTES:
        return None
    digest = hashlib.blake2b(json.dumps([FORMAT, __version__]).encode())
    for path in (run.path / SUMMARY, *(run.table_path(name) for name in READ if run.holds(name))):
        with path.open("rb") as source:
            digest.update(hashlib.file_digest(source, "blake2b").digest())
    return digest.hexdigest()


def kept(run: RunDirectory, key: str) -> Kept | None:
    """What was found with this key, if it is there and whole."""
    try:
        found = (run.path / KEPT).read_bytes()
    except OSError:
        return None
    head, _, body = found.partition(b"\n")
    return _read(BytesIO(body)) if head == _head(key, body) else None


def keep(run: RunDirectory, key: str, found: Kept) -> None:
    """Write what was found, whole or not at all."""
    body = BytesIO()
    chain, slack = found.chain, found.slack
    facts = {
        "links": chain.link.texts,
        "sensitivities": found.sensitivities,
        "slack": slack is not None,
        "changes": found.changes,
    }
    body.write(json.dumps(facts).encode() + b"\n")
    columns = [getattr(chain, name) for name in COLUMNS]
    for column in (*columns, chain.link.codes, *(slack or ())):
        np.save(body, column, allow_pickle=False)
    content = body.getvalue()
    target: Path = run.path / KEPT
    with suppress(UsageError), new_file(target) as sink:
        sink.write(_head(key, content) + b"\n")
        sink.write(content)


def _head(key: str, body: bytes) -> bytes:
    """The first line: whose it is, and what shows that the rest is whole."""
    return f"et-sim {key} {hashlib.blake2b(body).hexdigest()}".encode()


def _read(body: BytesIO) -> Kept:
    facts = json.loads(body.readline())
    columns = {name: np.load(body, allow_pickle=False) for name in (*COLUMNS, "link")}
    link = Words(tuple(facts["links"]), columns.pop("link"))
    slack = tuple(np.load(body, allow_pickle=False) for _ in range(2)) if facts["slack"] else None
    return Kept(Chain(link=link, **columns), facts["sensitivities"], slack, facts["changes"])
