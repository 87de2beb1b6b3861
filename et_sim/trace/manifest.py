"""A workload manifest: one small JSON file that says which ranks run which template trace.

    {"et_sim_workload": 1, "ranks": 16,
     "profile": "corrected",
     "step": {"tokens": 1048576, "model_operations": 5e16, "dtype": "bf16"},
     "templates": [{"file": "job.template0.et", "ranks": "0-15", "peers": "distances"}],
     "groups": {"tensor": {"size": 8, "stride": 1}}}

Nothing here loops over ranks, so that a million of them cost what a few do.

Not here: one file per rank (`files`), and a manifest turned into such files (`expansion`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from et_sim.basics.errors import TraceError, UsageError, did_you_mean
from et_sim.basics.files import is_file
from et_sim.basics.units import format_ranks, parse_ranks, strided_ranks
from et_sim.documents.json_text import parse_json
from et_sim.trace.columns import RowColumn, Trace
from et_sim.trace.decoded_files import DecodedFiles
from et_sim.trace.disk import read_bytes, replace_all, unpacked
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.workload import KEYS, Step, Workload, read_step

ENDING = ".workload.json"
MARK = "et_sim_workload"
VERSION = 1
MOST_RANKS = 1 << 24

# What comm_src and comm_dst of a template are.
_PEERS = {"ranks": False, "distances": True}
PROFILES = ("reference", "corrected")  # that a workload may name; the third one is named by files of 1.0
_WHOLE_KEYS = (MARK, "ranks", "profile", "step", "templates", "groups")
_TEMPLATE_KEYS = ("file", "ranks", "peers")
_RULE_KEYS = ("size", "stride", "every")
_ONE_EACH = "give every rank one template"
_LOOKED_AT = 4096  # so many bytes decide whether a file of another name is a manifest


def is_manifest(path: str | Path) -> bool:
    """Whether a workload is named by a manifest: by its name or, if there is such a file, by its content."""
    path = Path(path)
    if path.name.endswith(ENDING):
        return True
    if not is_file(path):
        return False
    try:
        with path.open("rb") as file:
            begin = file.read(_LOOKED_AT)
    except OSError:
        return False
    return path.suffix == ".json" or (begin.lstrip().startswith(b"{") and f'"{MARK}"'.encode() in begin)


def read_manifest(path: str | Path, ranks: int | None = None, *, drop_dangling: bool = False) -> Workload:
    """The workload that a manifest describes; `ranks`: how many it must have."""
    place = str(path)
    raw = read_bytes(Path(path))
    content = _parse(raw, place)
    count = _integer(content, "ranks", place, "", most=MOST_RANKS)
    if ranks is not None and ranks != count:
        raise TraceError(
            f"describes {count} ranks, and {ranks} are wanted",
            place=place,
            remedy="give a machine of as many NPUs, or change the manifest's ranks",
        )
    entries = _entries(content, place)
    of_rank = _template_of_rank(entries, count, place)
    templates, inputs = _read_templates(Path(path), entries, drop_dangling)
    return Workload(
        templates,
        of_rank,
        place,
        ((place, hashlib.sha256(raw).hexdigest()), *inputs),
        relative_peers=tuple(_PEERS[entry["peers"]] for entry in entries),
        group_rules=_rules(content, place),
        profile=_profile(content, place),
        step=_step(content, place),
    )


def write_manifest(workload: Workload, path: str | Path) -> list[Path]:
    """Write a manifest and its templates beside it; returns the files, the manifest first.

    Templates that no rank runs are left out, and equal ones are written once.
    """
    from et_sim.trace.encode import encode_several

    used = np.flatnonzero(workload.ranks_per_template).tolist()
    encoded = dict(zip(used, encode_several([workload.templates[at] for at in used]), strict=True))
    contents = [encoded.get(at, b"") for at in range(len(workload.templates))]
    files = manifest_files(workload, contents, path)
    replace_all([*files[1:], files[0]])
    return [file for file, _ in files]


def manifest_stem(path: str | Path) -> str:
    """What the files of a manifest's templates are called after; refuses other names."""
    name = Path(path).name
    stem = name.removesuffix(ENDING)
    if not stem or stem == name:
        raise TraceError(
            f"is no name for a manifest, which ends in {ENDING}",
            place=str(path),
            remedy=f"call it {stem or 'job'}{ENDING}",
        )
    return stem


def manifest_files(
    workload: Workload, contents: Sequence[bytes], path: str | Path
) -> list[tuple[Path, bytes]]:
    """What is to be written where, the manifest first; `contents` are the files of the templates."""
    target, stem = Path(path), manifest_stem(path)
    number_of: dict[tuple[bytes, bool], int] = {}
    of_template = np.zeros(len(workload.templates), np.int64)
    for template in np.flatnonzero(workload.ranks_per_template).tolist():
        key = contents[template], workload.has_relative_peers(template)
        of_template[template] = number_of.setdefault(key, len(number_of))
    files = [target.with_name(f"{stem}.template{number}.et") for number in number_of.values()]
    of_rank = of_template[workload.template_of_rank]
    relative = [is_relative for _, is_relative in number_of]
    text = _text(workload, [file.name for file in files], of_rank, relative)
    return [(target, text.encode()), *zip(files, (content for content, _ in number_of), strict=True)]


def _text(workload: Workload, files: list[str], of_rank: Any, relative: list[bool]) -> str:
    word = {is_relative: name for name, is_relative in _PEERS.items()}
    content: dict[str, Any] = {
        MARK: VERSION,
        "ranks": workload.ranks,
        **({"profile": workload.profile} if workload.profile else {}),
        **({"step": workload.step.as_written()} if workload.step else {}),
        "templates": [
            {
                "file": file,
                "ranks": strided_ranks(np.flatnonzero(of_rank == number)),
                "peers": word[relative[number]],
            }
            for number, file in enumerate(files)
        ],
    }
    if workload.group_rules:
        content["groups"] = {name: rule.as_written() for name, rule in workload.group_rules.items()}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _parse(raw: bytes, place: str) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(
            f"byte {error.start} is not UTF-8 text", place=place, remedy="a workload manifest is JSON"
        ) from None
    content = parse_json(text, place, TraceError)
    if not isinstance(content, dict) or MARK not in content:
        raise TraceError(
            f'is not a workload manifest: there is no key "{MARK}"',
            place=place,
            remedy=f'a manifest begins with {{"{MARK}": {VERSION}; give one, or the prefix of trace files',
        )
    if content[MARK] != VERSION or isinstance(content[MARK], bool):
        raise TraceError(
            f'key "{MARK}" is {_show(content[MARK])}',
            place=place,
            remedy=f"this version of et-sim reads manifests of form {VERSION}",
        )
    _refuse_unknown(content, _WHOLE_KEYS, place, "")
    return content


def _entries(content: Mapping[str, Any], place: str) -> list[dict[str, Any]]:
    """The templates as the manifest lists them, checked one by one."""
    listed = content.get("templates")
    if not isinstance(listed, list) or not listed:
        cause = "is missing" if "templates" not in content else f"is {_show(listed)}"
        remedy = 'give a list: [{"file": "job.template0.et", "ranks": "0-7", "peers": "ranks"}, …]'
        raise TraceError(f'key "templates" {cause}', place=place, remedy=remedy)
    entries = []
    for number, entry in enumerate(listed):
        where = f"template {number}"
        if not isinstance(entry, dict):
            remedy = 'expected "file", "ranks" and "peers"'
            raise TraceError(f"{where} is {_show(entry)}", place=place, remedy=remedy)
        _refuse_unknown(entry, _TEMPLATE_KEYS, place, where)
        for key in _TEMPLATE_KEYS:
            if not isinstance(entry.get(key), str) or not entry[key]:
                cause = f'has no "{key}"' if key not in entry else f'has {_show(entry[key])} as "{key}"'
                raise TraceError(f"{where} {cause}", place=place, remedy=_TEMPLATE_FORMS[key])
        if entry["peers"] not in _PEERS:
            cause = f'{where} has {_show(entry["peers"])} as "peers"'
            raise TraceError(cause, place=place, remedy=_TEMPLATE_FORMS["peers"])
        entries.append(entry)
    return entries


_TEMPLATE_FORMS = {
    "file": "name the template's trace file, from the manifest's folder",
    "ranks": 'give the ranks that run it: "0-1023", "0-3,8-11", "0-14/2"',
    "peers": 'say what comm_src and comm_dst are: "ranks", or "distances" from the own rank',
}


def _template_of_rank(entries: list[dict[str, Any]], ranks: int, place: str) -> RowColumn:
    """Every rank exactly once."""
    of_rank = np.full(ranks, -1, np.int32)
    for number, entry in enumerate(entries):
        where = f"template {number} ({entry['file']})"
        for piece in _ranges(entry["ranks"], place, where):
            if piece[-1] >= ranks:
                raise TraceError(
                    f"{where} has rank {piece[-1]}, and there are ranks 0 to {ranks - 1}",
                    place=place,
                    remedy='correct its ranks, or the number of all "ranks"',
                )
            taken = of_rank[piece.start : piece.stop : piece.step]
            if bool((taken >= 0).any()):
                at = int(np.argmax(taken >= 0))
                other = f"template {taken[at]} ({entries[int(taken[at])]['file']})"
                twice = "twice in" if taken[at] == number else f"in {other} and in"
                raise TraceError(f"rank {piece[at]} is {twice} {where}", place=place, remedy=_ONE_EACH)
            taken[:] = number
    lacking = np.flatnonzero(of_rank < 0)
    if len(lacking):
        who = f"rank {lacking[0]}" if len(lacking) == 1 else f"{len(lacking)} of {ranks} ranks"
        which = "" if len(lacking) == 1 else f": {_shortened(format_ranks(lacking))}"
        raise TraceError(f"no template is for {who}{which}", place=place, remedy=_ONE_EACH)
    return of_rank


def _ranges(text: str, place: str, where: str) -> list[range]:
    try:
        return parse_ranks(text)
    except UsageError as error:
        raise TraceError(f"{where}: {error.cause}", place=place, remedy=error.remedy) from None


def _read_templates(
    path: Path, entries: list[dict[str, Any]], drop_dangling: bool
) -> tuple[tuple[Trace, ...], list[tuple[str, str]]]:
    """(the traces, each file with its hash)."""
    files = DecodedFiles(drop_dangling)
    places: dict[Path, int] = {}
    inputs = []
    for number, entry in enumerate(entries):
        file = path.parent / entry["file"]
        if file in places:
            continue
        with files.decoding_after_errors():
            if not is_file(file):
                raise TraceError(
                    f"template {number} names {file}, and there is no such file",
                    place=str(path),
                    remedy="files are looked for in the manifest's folder: correct the name, "
                    "or move the file",
                )
            raw = read_bytes(file)
            content = unpacked(raw, str(file))
        inputs.append((str(file), hashlib.sha256(raw).hexdigest()))
        places[file] = len(places)
        files.add(content, str(file))
    decoded = files.finish()
    return tuple(decoded[places[path.parent / entry["file"]]] for entry in entries), inputs


def _rules(content: Mapping[str, Any], place: str) -> dict[str, GroupRule]:
    listed = content.get("groups", {})
    form = 'give rules by name: {"tensor": {"size": 8, "stride": 1}}'
    if not isinstance(listed, dict):
        raise TraceError(f'key "groups" is {_show(listed)}', place=place, remedy=form)
    rules = {}
    for name, rule in listed.items():
        where = f'group "{name}"'
        if not isinstance(rule, dict):
            raise TraceError(f"{where} is {_show(rule)}", place=place, remedy=form)
        _refuse_unknown(rule, _RULE_KEYS, place, where)
        size = _integers(rule, "size", place, where)
        stride = _integers(rule, "stride", place, where) if "stride" in rule else 1
        every = _integer(rule, "every", place, where) if "every" in rule else 0
        try:
            rules[name] = GroupRule(size, stride, every)
        except TraceError as error:
            raise TraceError(f"{where}: {error.cause}", place=place, remedy=error.remedy) from None
    return rules


def _integers(content: Mapping[str, Any], key: str, place: str, where: str) -> int | tuple[int, ...]:
    """A number, or a list with one for each axis."""
    value = content.get(key)
    if not isinstance(value, list) or not value:
        return _integer(content, key, place, where)
    return tuple(_integer({key: element}, key, place, where) for element in value)


def _profile(content: Mapping[str, Any], place: str) -> str:
    """The profile that a manifest names, if any."""
    named: Any = content.get("profile", "")
    if "profile" in content and named not in PROFILES:
        cause = f'key "profile" is {_show(named)}'
        remedy = did_you_mean(str(named), PROFILES) or f"give {' or '.join(PROFILES)}, or leave it out"
        raise TraceError(cause, place=place, remedy=remedy)
    return str(named)


def _step(content: Mapping[str, Any], place: str) -> Step | None:
    """What a run does, if the manifest says it."""
    if "step" not in content:
        return None
    step = content["step"]
    if not isinstance(step, dict):
        remedy = 'say it as in {"tokens": 1048576, "model_operations": 5e16, "dtype": "bf16"}'
        raise TraceError(f'key "step" is {_show(step)}', place=place, remedy=remedy)
    _refuse_unknown(step, KEYS, place, "step")
    return read_step(step, place)


def _integer(content: Mapping[str, Any], key: str, place: str, where: str, *, most: int = MOST_RANKS) -> int:
    value = content.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        cause = f'key "{key}" is missing' if key not in content else f'key "{key}" is {_show(value)}'
        raise TraceError(
            f"{where}: {cause}" if where else cause,
            place=place,
            remedy=f"give a whole number from 1 to {most:,}",
        )
    return value


def _refuse_unknown(content: Mapping[str, Any], known: tuple[str, ...], place: str, where: str) -> None:
    for key in content:
        if key not in known:
            cause = f'key "{key}" is not known'
            remedy = did_you_mean(key, known) or f"known: {', '.join(known)}"
            raise TraceError(f"{where}: {cause}" if where else cause, place=place, remedy=remedy)


def _show(value: Any) -> str:
    return _shortened(json.dumps(value, ensure_ascii=False))


def _shortened(text: str) -> str:
    return text if len(text) <= 64 else f"{text[:61]}..."
