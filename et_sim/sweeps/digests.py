"""Digests of everything that decides a result: the program itself, and the files that inputs name."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from et_sim.basics.errors import InputError
from et_sim.basics.files import is_file
from et_sim.documents.reading import parse_json
from et_sim.machine.texts import parse_yaml
from et_sim.version import __version__

PACKAGE = Path(__file__).parents[1]
SOURCES = (".py", ".json", ".yml", ".desc", ".bin")
TRACES = (".et", ".et.gz", ".json")
LONGEST_NAME = 1000
_READ_FOR_NAMES = (".json", ".yml", ".yaml")
_LARGEST_READ = 1_000_000


@functools.cache
def program_digest() -> str:
    """Return the digest of the version and of the sources, so that a changed program evaluates again."""
    digest = hashlib.sha256(__version__.encode())
    for folder, folders, names in os.walk(PACKAGE):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(SOURCES):
                path = Path(folder, name)
                content = path.read_bytes()
                digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0{len(content)}\0".encode())
                digest.update(content)
    return digest.hexdigest()


def digest_of(content: Any) -> str:
    """Return the digest of plain values."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def texts_in(content: Any) -> Iterator[str]:
    """Yield all texts in plain values except keys."""
    left = [content]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, float | int | None):
            continue  # most values; the check for mappings takes longer
        elif isinstance(value, Mapping):
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value


LEVELS_SEARCHED = 2  # roles of files, and their keys
MOST_PARTS = 1 << 10  # whose texts are known; as long as they are, no other object has their identity


class NamedFiles:
    """Contents of files that texts name, directly or as the prefix of traces, and of files named in those."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._found: dict[str, list[tuple[str, str]]] = {}  # by text: names and digests of files
        self._read: dict[Path, tuple[tuple[int, int], str]] = {}
        self._traces: dict[Path, list[Path]] = {}  # by folder
        self._texts: dict[int, tuple[Any, frozenset[str]]] = {}  # of parts of contents, by identity
        self._digests: dict[int, tuple[Any, str]] = {}  # likewise

    def of(self, contents: Sequence[Any]) -> list[tuple[str, str]]:
        """Return texts that name files, with the digests of these files; contents may share parts, which are
        searched once.
        """
        files: list[tuple[str, str]] = []
        parts: list[Any] = list(contents)
        for _ in range(LEVELS_SEARCHED):
            parts = [inner for part in parts for inner in (part.values() if type(part) is dict else [part])]
        for text in sorted(frozenset[str]().union(*map(self._texts_of, parts))):
            if text not in self._found:
                self._found[text] = list(self._files_of(text))
            files += self._found[text]
        return files

    def _texts_of(self, part: Any) -> frozenset[str]:
        if type(part) not in (dict, list):
            return frozenset(texts_in(part))
        known = self._texts.get(id(part))
        if known is None:
            if len(self._texts) >= MOST_PARTS:
                self._texts.clear()
            known = self._texts[id(part)] = part, frozenset(texts_in(part))
        return known[1]

    def _files_of(self, text: str) -> Iterator[tuple[str, str]]:
        left, seen = [(text, folder) for folder in self._folders], set[Path]()
        while left:
            name, folder = left.pop()
            for path in self._files_named(folder, name):
                path = path.resolve()
                if path in seen:
                    continue
                seen.add(path)
                yield text, self._digest(path)
                left += [(inner, path.parent) for inner in _texts_of_file(path)]

    def _files_named(self, folder: Path, name: str) -> list[Path]:
        """Return a file, or the traces of a prefix."""
        if not 0 < len(name) <= LONGEST_NAME or "\0" in name:
            return []
        path = folder / name
        if is_file(path):
            return [path]
        traces = self._traces_in(path.parent) if path.name else []
        return [trace for trace in traces if trace.name.startswith(f"{path.name}.")]

    def _traces_in(self, folder: Path) -> list[Path]:
        """Return the files of a folder that may be traces, as they were when it was first searched."""
        if folder not in self._traces:
            try:
                self._traces[folder] = sorted(file for file in folder.iterdir() if file.name.endswith(TRACES))
            except OSError:
                self._traces[folder] = []
        return self._traces[folder]

    def digest(self, content: Any) -> str:
        """Return the digest of plain values; contents may share parts, which are read once."""
        if type(content) is not dict:
            return digest_of(content)
        return digest_of({name: self._digest_of_part(part) for name, part in content.items()})

    def _digest_of_part(self, part: Any) -> Any:
        if type(part) not in (dict, list):
            return [part]
        known = self._digests.get(id(part))
        if known is None:
            if len(self._digests) >= MOST_PARTS:
                self._digests.clear()
            known = self._digests[id(part)] = part, digest_of(part)
        return known[1]

    def _digest(self, path: Path) -> str:
        status = path.stat()
        stamp = status.st_mtime_ns, status.st_size
        known = self._read.get(path)
        if known is None or known[0] != stamp:
            known = stamp, hashlib.sha256(path.read_bytes()).hexdigest()
            self._read[path] = known
        return known[1]


def _texts_of_file(path: Path) -> Iterator[str]:
    """Yield the texts in a file of keys and values."""
    if path.suffix not in _READ_FOR_NAMES or path.stat().st_size > _LARGEST_READ:
        return
    try:
        text = path.read_text(encoding="utf-8-sig")
        is_json = path.suffix == ".json"
        content = parse_json(text, str(path), InputError) if is_json else parse_yaml(text, str(path))
    except (OSError, UnicodeDecodeError, InputError):
        return
    yield from texts_in(content)
