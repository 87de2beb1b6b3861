"""Load one configuration, a file or a dict, as a plain object with its place and content hash.

A system file of ASTRA-sim 1.0 is text: `key: value` pairs of words. Line breaks have no meaning; a word that
ends with a colon is a key, and the word after it its value.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

from et_sim.basics.errors import MachineError, UsageError, did_you_mean, unreadable
from et_sim.basics.files import is_file, is_folder
from et_sim.documents.keys import Section
from et_sim.documents.reading import MOST_DIGITS, TOO_MANY_DIGITS, read_bounded
from et_sim.machine.recognise import (
    FORMATS,
    NS3_KEY,
    Imported,
    MachineFile,
    format_of,
    is_infragraph,
    is_node_link,
    mixed_up,
    refuse_other_role,
    role_of,
)
from et_sim.machine.texts import parse_json, parse_yaml

_WORD = re.compile(r"\S+")
_FIRST_KEY = re.compile(r"\s*[A-Za-z][A-Za-z-]*:(\s|\Z)")


def looks_like_settings(text: str) -> bool:
    """Check whether the text begins with `key:`, as no JSON does."""
    return _FIRST_KEY.match(text) is not None


def parse_settings(text: str, place: str) -> dict[str, str]:
    """Parse `key: value` pairs; the keys are returned without their colons."""
    settings: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = [(match[0], match.start() + 1) for match in _WORD.finditer(line)]
        at = 0
        while at < len(words):
            word, column = words[at]
            where = f"{place}: line {number}, column {column}"
            if not word.endswith(":"):
                raise MachineError(
                    f"a key is expected, not {word!r}",
                    place=where,
                    remedy='write one "key: value" per line; a list is one word, joined by "_": ring_ring',
                )
            name = word.removesuffix(":")
            if at + 1 == len(words) or words[at + 1][0].endswith(":"):
                raise MachineError(f'key "{name}" has no value', place=where, remedy='write "key: value"')
            if name in settings:
                raise MachineError(f'key "{name}" is given twice', place=where, remedy="keep one of them")
            settings[name] = words[at + 1][0]
            at += 2
    return settings


AS_IMPORT = {"graph": {"import": "this file"}}
_MOST_BITS = int(MOST_DIGITS * math.log2(10))


class Source(Section, frozen=True):
    """The content of one configuration, and its origin: a path, or "<system>" and the like."""

    digest: str = ""  # sha256 of the file, or of the dict's canonical JSON
    is_text: bool = False  # a system file in the text form of ASTRA-sim 1.0
    imported: Imported | None = None  # a topology of another tool
    imports: tuple[
        tuple[str, str], ...
    ] = ()  # (path, content hash) of the imported file, if it is another file


Given: TypeAlias = str | Path | Mapping[Any, Any] | Source


def load(given: Given, role: MachineFile, place: str = "") -> Source:
    """Read a path, or take a dict, as the file of a role; return a source unchanged.

    `place` is the origin of a dict that is a part of a file; paths in the dict are relative to its folder.
    """
    if isinstance(given, Source):
        return given
    if role is MachineFile.NETWORK and hasattr(given, "nodes") and hasattr(given, "edges"):
        source = _from_networkx(given)
    elif isinstance(given, Mapping):
        source = _from_mapping(given, role)
        source = replace(source, place=place) if place else source
    elif isinstance(given, str | Path):
        source = _from_file(Path(given), role)
    else:
        raise UsageError(f"{role} must be a path or a dict, not {type(given).__name__}")
    refuse_other_role(source.content, role, source.place)
    return _with_import(source) if role is MachineFile.NETWORK else source


def as_given(source: Source) -> dict[str, Any]:
    """Return the content as a dict that is read as the same configuration.

    Links of a topology without a file are listed, and a topology with a file is named; text of ASTRA-sim 1.0
    names its profile.
    """
    content, imported = source.content, source.imported
    if source.is_text:
        return {**content, "profile": "astra-1.0"}
    if imported is None or source.imports:
        return content
    if is_file(Path(source.place)):
        return {**content, "graph": {"import": Path(source.place).name}}
    listed: dict[str, Any] = _plain(imported.content, source.place)
    return {**{key: value for key, value in content.items() if key != "graph"}, **listed}


def _with_import(source: Source) -> Source:
    """Return the network with the other tool's topology that it names, or is."""
    if source.imported is not None:
        return source
    if is_node_link(source.content):
        from et_sim.machine.other_topologies import from_node_link

        imported = from_node_link(source.content, source.place)
        return replace(source, content=dict(AS_IMPORT), imported=imported)
    if is_infragraph(source.content):
        from et_sim.machine.infragraph import from_infragraph

        imported = from_infragraph(source.content, source.place)
        return replace(source, content=AS_IMPORT | imported.keys, imported=imported)
    entry = source.content.get("graph")
    if not isinstance(entry, dict) or not isinstance(entry.get("import"), str):
        return source
    from et_sim.machine.other_topologies import read_import

    path = Path(source.place).parent / entry["import"]
    form = entry.get("format", "")
    imported, raw = read_import(path, form if form in FORMATS else "")
    content = {**imported.keys, **source.content}
    digest = hashlib.sha256(raw).hexdigest()
    return replace(source, content=content, imported=imported, imports=((str(path), digest),))


def _from_networkx(given: Any) -> Source:
    from et_sim.machine.other_topologies import from_networkx

    imported = from_networkx(given, "<network>")
    text = json.dumps(imported.content, sort_keys=True, default=str)
    return Source("<network>", dict(AS_IMPORT), hashlib.sha256(text.encode()).hexdigest(), imported=imported)


def _from_mapping(given: Mapping[Any, Any], role: MachineFile) -> Source:
    place = f"<{role}>"
    try:
        content = _plain(given, place)
    except RecursionError:
        raise MachineError("the dict is nested too deeply, or contains itself", place=place) from None
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return Source(place, content, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def _plain(value: Any, place: str) -> Any:
    """Convert a value given in Python to the one that a file would hold."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, numbers.Integral):
        whole = int(value)
        if whole.bit_length() > _MOST_BITS:
            digits = int(whole.bit_length() / math.log2(10)) + 1
            raise MachineError(TOO_MANY_DIGITS.format(f"about {digits}"), place=place)
        return whole
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Mapping):
        content = {str(key): _plain(entry, place) for key, entry in value.items()}
        if len(content) < len(value):
            raise MachineError("two keys are the same when written as text", place=place)
        return content
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return _plain(value.tolist(), place)
    if isinstance(value, list | tuple | range):
        return [_plain(entry, place) for entry in value]
    raise MachineError(
        f"a value of type {type(value).__name__} is not allowed in a configuration",
        place=place,
        remedy="allowed: numbers, texts, true and false, lists and dicts",
    )


def _from_file(path: Path, role: MachineFile) -> Source:
    place = str(path)
    raw = _read(path, role)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MachineError(f"byte {error.start} is not UTF-8 text", place=place) from None
    if role is MachineFile.SYSTEM and looks_like_settings(text) and _yaml_role(text, place) in (None, role):
        return Source(place, dict(parse_settings(text, place)), hashlib.sha256(raw).hexdigest(), is_text=True)
    if role is MachineFile.NETWORK and (form := format_of(text)):
        from et_sim.machine.other_topologies import import_text

        imported, digest = import_text(text, place, form), hashlib.sha256(raw).hexdigest()
        return Source(place, {**AS_IMPORT, **imported.keys}, digest, imported=imported)
    content = parse_yaml(text, place) if role is MachineFile.NETWORK else _json_object(text, place, role)
    if not isinstance(content, dict):
        shape = "is empty" if content is None else f"holds {_noun(content)} at its top level"
        if role is MachineFile.NETWORK and NS3_KEY.search(text):
            remedy = f"name it in a network file: protocol: {{ file: {path.name} }}"
            raise MachineError("this is ns-3's key file, not a network file", place=place, remedy=remedy)
        raise MachineError(
            f"the {role} file {shape}", place=place, remedy='expected keys with values, "key": value'
        )
    return Source(place, content, hashlib.sha256(raw).hexdigest())


def _read(path: Path, role: MachineFile) -> bytes:
    try:
        return read_bounded(path, MachineError)
    except FileNotFoundError:
        remedy = _nearby(path)
        raise MachineError(f"the {role} file does not exist", place=str(path), remedy=remedy) from None
    except OSError as error:
        raise MachineError(f"the {role} file cannot be read: {unreadable(error)}", place=str(path)) from None
    except ValueError as error:  # a null character in the path
        raise MachineError(
            f"the {role} file cannot be read: {unreadable(error)}", place=repr(str(path))
        ) from None


def _nearby(path: Path) -> str:
    """Suggest a remedy for a missing file: the nearest name in its folder, or the missing folder."""
    if not is_folder(path.parent):
        return f"the folder {str(path.parent)!r} does not exist"
    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
    except OSError:
        return ""
    return did_you_mean(path.name, names)


def _json_object(text: str, place: str, role: MachineFile) -> Any:
    """Parse JSON; report a YAML network file that was passed with the wrong option."""
    if not text.strip():
        return None
    try:
        return parse_json(text, place)
    except MachineError as error:
        other = None if text.lstrip().startswith(("{", "[")) else _yaml_role(text, place)
        if other is None and role is MachineFile.SYSTEM and not text.lstrip().startswith(("{", "[")):
            raise MachineError(
                "the file is neither JSON, as system files of 2.x, nor the text of 1.0",
                place=place,
                remedy='begin with {, or with words such as "scheduling-policy: LIFO"',
            ) from None
        if other is None:
            raise
        if other is not role:
            raise mixed_up(other, role, place) from None
        raise MachineError(
            f"this looks like a {role} file in YAML or in the text form of ASTRA-sim 1.0",
            place=place,
            remedy="write it as JSON, as in 2.x",
        ) from error


def _yaml_role(text: str, place: str) -> MachineFile | None:
    try:
        content = parse_yaml(text, place)
    except MachineError:
        return None
    return role_of(content) if isinstance(content, dict) else None


def _noun(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    nouns = {list: "a list", str: "a text", int: "a number", float: "a number"}
    return nouns.get(type(value), "no object")
