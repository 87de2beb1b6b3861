"""A workload manifest: one small JSON file that assigns template traces to ranks.

    {"et_sim_workload": 1, "ranks": 16,
     "profile": "corrected",
     "step": {"tokens": 1048576, "model_operations": 5e16, "dtype": "bf16"},
     "templates": [{"file": "job.template0.et", "ranks": "0-15", "peers": "distances"}],
     "groups": {"tensor": {"size": 8, "stride": 1}}}

No function loops over ranks, so that a million of them cost as much as a few.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.files import is_file
from et_sim.basics.units import format_ranks, plural, strided_ranks
from et_sim.documents.keys import Remarks, Section, key, read, show
from et_sim.documents.kinds import NAMED, SOME_RANKS, choice, count, of_type, section, sections, text
from et_sim.documents.reading import parse_json
from et_sim.trace.columns import RowColumn, Trace
from et_sim.trace.decoded_files import DecodedFiles
from et_sim.trace.disk import ENDING, MARK, is_manifest, read_bytes, replace_all, unpacked
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.workload import MadeFor, Step, Workload

VERSION = 1
MOST_RANKS = 1 << 24

PROFILES = ("reference", "corrected")  # names for workloads; the third profile is named by files of 1.0
_RELATIVE = "distances"
_ONE_EACH = "give every rank one template"


class Template(Struct, frozen=True):
    """A trace and its ranks."""

    file: str = text("The trace file.", required=True, form="a path from the manifest's folder")
    ranks: tuple[range, ...] = key(SOME_RANKS, "The ranks that run it.", required=True)
    peers: str = choice(
        "The meaning of `comm_src` and `comm_dst`: `ranks`, or `distances` from the own rank.",
        required=True,
        choices=("ranks", _RELATIVE),
    )


RECIPE = of_type("recipe", "an object, as in {make: llm, model: gpt2}", dict)


class Made(Struct, frozen=True):
    """The origin of a made workload."""

    recipe: dict[str, Any] = key(
        RECIPE,
        "The options of `et-sim make` that made the workload, as in a sweep; a file of a model has a path "
        "from the manifest's folder.",
        required=True,
    )
    sha256: str = text(
        "A hash of the manifest, its recipe and its traces, and of the model's file, as they were made.",
        required=True,
    )


class Manifest(Struct, frozen=True):
    """The whole file."""

    form: int = count("The form of the file, 1.", name=MARK, required=True)
    ranks: int = count("The number of ranks.", minimum=1, maximum=MOST_RANKS, required=True)
    templates: tuple[Template, ...] = sections("The traces.", required=True, of=Template)
    groups: dict[str, GroupRule] = key(NAMED, "Rules of groups.", {}, of=GroupRule)
    profile: str = choice("The profile to simulate it in.", "", choices=PROFILES)
    step: Step | None = section("The work of one step.", None, of=Step)
    software: MadeFor | None = section("The software that the workload represents.", None, of=MadeFor)
    made: Made | None = section(
        "The origin of the workload, if its software is assumed: runs make it for another one, too.",
        None,
        of=Made,
    )


def read_manifest(path: str | Path, ranks: int | None = None, *, drop_dangling: bool = False) -> Workload:
    """Read the workload of a manifest; `ranks` is the required number."""
    place = str(path)
    raw = read_bytes(Path(path))
    manifest = read(Manifest, Section(place, _parse(raw, place), error_type=TraceError), Remarks())
    if ranks is not None and ranks != manifest.ranks:
        raise TraceError(
            f"the workload has {manifest.ranks} ranks, but the machine has {plural(ranks, 'NPU')}",
            place=place,
            remedy=f'describe a machine of {manifest.ranks} NPUs, or change the key "ranks"',
        )
    of_rank = _template_of_rank(manifest, place)
    templates, inputs = _read_templates(Path(path), manifest.templates, drop_dangling)
    return Workload(
        templates,
        of_rank,
        place,
        ((place, hashlib.sha256(raw).hexdigest()), *inputs),
        relative_peers=tuple(entry.peers == _RELATIVE for entry in manifest.templates),
        group_rules=manifest.groups,
        profile=manifest.profile,
        step=manifest.step,
        software=manifest.software,
    )


def recipe_of(workload: Workload) -> tuple[dict[str, Any], bool] | None:
    """Return the recipe in the manifest of a workload that was read, and whether manifest, traces and the
    model's file are as they were made; None if there is no recipe."""
    place = workload.source
    if not is_manifest(place):
        return None
    content = _parse(read_bytes(Path(place)), place)
    made = read(Manifest, Section(place, content, error_type=TraceError), Remarks()).made
    if made is None:
        return None
    hash_of = dict(workload.inputs)
    folder = Path(place).parent
    hashes = [hash_of.get(str(folder / entry["file"]), "") for entry in content["templates"]]
    return made.recipe, made.sha256 == _hash_of(content, made.recipe, hashes, folder)


def _hash_of(
    content: Mapping[str, Any], recipe: Mapping[str, Any], hashes: Sequence[str], folder: Path
) -> str:
    """Return a hash of a manifest with its recipe, and the model's file if this names one in the folder;
    `hashes` are those of the files of its templates."""
    model = folder / str(recipe.get("model"))
    of_model = hashlib.sha256(read_bytes(model)).hexdigest() if is_file(model) else ""
    known = json.dumps([{**content, "made": recipe}, *hashes, of_model], sort_keys=True)
    return hashlib.sha256(known.encode()).hexdigest()


def write_manifest(
    workload: Workload, path: str | Path, recipe: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write a manifest and its templates beside it; return the files, the manifest first.

    Templates without ranks are left out, and equal ones are written once. The manifest states the recipe.
    """
    from et_sim.trace.encode import encode_several

    used = np.flatnonzero(workload.ranks_per_template).tolist()
    encoded = dict(zip(used, encode_several([workload.templates[at] for at in used]), strict=True))
    contents = [encoded.get(at, b"") for at in range(len(workload.templates))]
    files = manifest_files(workload, contents, path, recipe)
    replace_all([*files[1:], files[0]])
    return [file for file, _ in files]


def manifest_stem(path: str | Path) -> str:
    """Return the common stem of the files of a manifest; refuse names without its ending."""
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
    workload: Workload,
    contents: Sequence[bytes],
    path: str | Path,
    recipe: Mapping[str, Any] | None = None,
) -> list[tuple[Path, bytes]]:
    """Return the path and content of each file, the manifest first; `contents` are the files of the
    templates.
    """
    target, stem = Path(path), manifest_stem(path)
    number_of: dict[tuple[bytes, bool], int] = {}
    of_template = np.zeros(len(workload.templates), np.int64)
    for template in np.flatnonzero(workload.ranks_per_template).tolist():
        key = contents[template], workload.has_relative_peers(template)
        of_template[template] = number_of.setdefault(key, len(number_of))
    files = [target.with_name(f"{stem}.template{number}.et") for number in number_of.values()]
    of_rank = of_template[workload.template_of_rank]
    relative = [is_relative for _, is_relative in number_of]
    manifest = _content(workload, [file.name for file in files], of_rank, relative)
    if recipe is not None:
        hashes = [hashlib.sha256(content).hexdigest() for content, _ in number_of]
        recipe = json.loads(json.dumps(recipe))  # lists in place of tuples
        manifest["made"] = {"recipe": recipe, "sha256": _hash_of(manifest, recipe, hashes, target.parent)}
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    return [(target, text.encode()), *zip(files, (content for content, _ in number_of), strict=True)]


def _content(workload: Workload, files: list[str], of_rank: Any, relative: list[bool]) -> dict[str, Any]:
    content: dict[str, Any] = {
        MARK: VERSION,
        "ranks": workload.ranks,
        **({"profile": workload.profile} if workload.profile else {}),
        **({"step": workload.step.as_written()} if workload.step else {}),
        **({"software": workload.software.as_written()} if workload.software else {}),
        "templates": [
            {
                "file": file,
                "ranks": strided_ranks(np.flatnonzero(of_rank == number)),
                "peers": _RELATIVE if relative[number] else "ranks",
            }
            for number, file in enumerate(files)
        ],
    }
    if workload.group_rules:
        content["groups"] = {name: rule.as_written() for name, rule in workload.group_rules.items()}
    return content


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
    if content[MARK] != VERSION:
        raise TraceError(
            f'key "{MARK}" is {show(content[MARK])}',
            place=place,
            remedy=f"this version of et-sim reads manifests of form {VERSION}",
        )
    return content


def _template_of_rank(manifest: Manifest, place: str) -> RowColumn:
    """Return the template of each rank, after checking that each occurs exactly once."""
    entries, ranks = manifest.templates, manifest.ranks
    of_rank = np.full(ranks, -1, np.int32)
    for number, entry in enumerate(entries):
        where = f"template {number} ({entry.file})"
        for piece in entry.ranks:
            if piece[-1] >= ranks:
                raise TraceError(
                    f"{where} has rank {piece[-1]}, and there are ranks 0 to {ranks - 1}",
                    place=place,
                    remedy='correct its ranks, or the number of all "ranks"',
                )
            taken = of_rank[piece.start : piece.stop : piece.step]
            if bool((taken >= 0).any()):
                at = int(np.argmax(taken >= 0))
                other = f"template {taken[at]} ({entries[int(taken[at])].file})"
                twice = "twice in" if taken[at] == number else f"in {other} and in"
                raise TraceError(f"rank {piece[at]} is {twice} {where}", place=place, remedy=_ONE_EACH)
            taken[:] = number
    lacking = np.flatnonzero(of_rank < 0)
    if len(lacking):
        lacking_ranks = f"rank {lacking[0]}" if len(lacking) == 1 else f"{len(lacking)} of {ranks} ranks"
        which = "" if len(lacking) == 1 else f": {_shortened(format_ranks(lacking))}"
        raise TraceError(f"no template is for {lacking_ranks}{which}", place=place, remedy=_ONE_EACH)
    return of_rank


def _read_templates(
    path: Path, entries: Sequence[Template], drop_dangling: bool
) -> tuple[Sequence[Trace], list[tuple[str, str]]]:
    """Return the traces, and each file with its hash."""
    files = DecodedFiles(drop_dangling)
    places: dict[Path, int] = {}
    inputs = []
    for number, entry in enumerate(entries):
        file = path.parent / entry.file
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
    of_entry = [places[path.parent / entry.file] for entry in entries]
    is_once = of_entry == [*range(len(decoded))]
    return decoded if is_once else tuple(decoded[place] for place in of_entry), inputs


def _shortened(text: str) -> str:
    return text if len(text) <= 64 else f"{text[:61]}..."
