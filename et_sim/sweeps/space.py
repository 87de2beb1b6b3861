"""The design space of a sweep: the base run with all its inputs, and the changes that axes make to it.

It is read once, and holds all that a worker needs: the inputs of a point follow from it and the values of the
axes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, InputError
from et_sim.documents.keys import keys_of
from et_sim.documents.recognise import FileKind, kind_of
from et_sim.machine.presets import preset
from et_sim.machine.readers import check_profile, check_when_full
from et_sim.machine.recognise import MachineFile
from et_sim.machine.sources import Source, load
from et_sim.network.registry import model_named
from et_sim.recipes.recipe import MAKE, check_recipe, for_machine, make, recipe_keys
from et_sim.recipes.servings import DECODE_PLAN, PLAN
from et_sim.run.options import RunOptions
from et_sim.run.simulation import is_layer_file
from et_sim.sweeps.axes import SweepAxis, Values
from et_sim.sweeps.digests import NamedFiles, digest_of, program_digest
from et_sim.sweeps.fields import WORDS, InputField, check_field, with_value
from et_sim.sweeps.long_job import LongJob, long_job_of
from et_sim.sweeps.spec import Sweep
from et_sim.trace import Workload, read_workload
from et_sim.workloads.training.plan import Plan

if TYPE_CHECKING:
    from et_sim.serving.replicas import MachineTimes

ROW_VERSION = 2  # version of the content of a row: another one evaluates again
ROLES = {
    "system": MachineFile.SYSTEM,
    "network": MachineFile.NETWORK,
    "memory": MachineFile.MEMORY,
    "groups": MachineFile.GROUPS,
}
_OF_PRESETS = ("system", "network")
_MADE_AT_ONCE = 4  # number of cached workloads


class GivenWorkload(Struct, frozen=True, eq=False):
    """Traces that were read, or the path of a file whose ranks depend on the machine."""

    content: Workload | str
    digest: str


Draws = tuple[int | None, int | None]  # samples of the step, and their seed
Loaded = Source | GivenWorkload | dict[str, Any]  # the last: a recipe of a workload


class Inputs(Struct, frozen=True, eq=False):
    """The inputs of one point."""

    workload: GivenWorkload | dict[str, Any]
    parts: Mapping[str, Source]
    machine: str | None
    model: str | None
    profile: str | None
    when_full: str | None = None
    draws: Draws = (None, None)
    long_job: LongJob | None = None
    ties_alike: bool = False

    @property
    def options(self) -> RunOptions:
        """Return the options of the run on its machine."""
        parts: dict[str, Any] = dict(self.parts)
        words = {name: getattr(self, name) for name in ("machine", "model", "profile", "when_full")}
        samples, seed = self.draws
        return RunOptions(**parts, **words, ties_alike=self.ties_alike, samples=samples, seed=seed)

    @property
    def machine_key(self) -> str:
        """Return a text that is the same for points on the same machine."""
        parts = sorted((name, source.place, source.digest) for name, source in self.parts.items())
        return _key([parts, self.machine, self.model, self.profile, self.when_full])

    @property
    def recipe(self) -> Mapping[str, Any]:
        """Return the recipe of the workload, with the fields of its plan that the machine decides."""
        assert not isinstance(self.workload, GivenWorkload)
        return for_machine(self.workload, self.machine)


class Space(Struct, frozen=True, eq=False):
    """A base, the axes, and everything that they name, in memory."""

    folder: Path
    base: Mapping[str, Loaded]
    machine: str | None
    model: str | None
    profile: str | None
    when_full: str | None
    draws: Draws
    long_job: LongJob | None
    ties_alike: bool
    axes: tuple[SweepAxis, ...]
    loaded: Mapping[tuple[str, str], Loaded] = field(default_factory=dict)  # whole inputs that axes name

    def inputs(self, values: Values, model: str | None = None) -> Inputs:
        """Return the inputs of a point; `model` replaces its network model."""
        parts: dict[str, Any] = dict(self.base)
        words = {name: _given(self, name) for name in WORDS}
        pairs = list(zip(self.axes, values, strict=True))
        for axis, value in pairs:
            if axis.field.root in words:
                if value is not None and not isinstance(value, str):
                    raise InputError(f"axis {axis.name!r} has the value {value!r}", remedy="give names")
                words[axis.field.root] = value
            elif not axis.field.path:
                parts[axis.field.root] = self.loaded[axis.field.root, _key(value)]
        for axis, value in pairs:
            root = axis.field.root
            if axis.field.path:
                if root not in parts and words["machine"] is not None:
                    parts[root] = preset_source(words["machine"], root)
                parts[root] = _changed(parts[root], axis.field, value)
        workload = parts.pop("workload")
        named = (words["machine"], model or words["model"], words["profile"], words["when-full"])
        return Inputs(workload, parts, *named, self.draws, self.long_job, self.ties_alike)

    def digest(self, inputs: Inputs, files: NamedFiles) -> str:
        """Return a digest of everything that decides the row of a point."""
        workload = inputs.workload
        contents = {name: source.content for name, source in inputs.parts.items()}
        imports = [digest for source in inputs.parts.values() for digest in _of_import(source)]
        made = None if isinstance(workload, GivenWorkload) else workload
        return digest_of(
            {
                "program": program_digest(),
                "row": ROW_VERSION,
                "workload": workload.digest if isinstance(workload, GivenWorkload) else made,
                "parts": {name: files.digest(content) for name, content in contents.items()},
                "texts": sorted(name for name, source in inputs.parts.items() if source.is_text),
                "imports": imports,
                "machine": inputs.machine,
                "model": inputs.model,
                "profile": inputs.profile,
                "when-full": inputs.when_full,
                "ties-alike": inputs.ties_alike,
                "draws": inputs.draws,
                "long job": None if inputs.long_job is None else structs.asdict(inputs.long_job),
                "files": files.of([contents, made]),
            }
        )

    def files(self) -> NamedFiles:
        """Return a reader of the files that contents name."""
        return NamedFiles((self.folder, Path()))


def _of_import(source: Source) -> list[str]:
    """Return digests of the imported topology of another tool, which is not part of the content."""
    if source.imported is None:
        return []
    return [digest for _, digest in source.imports] or [source.digest]


def open_space(sweep: Sweep) -> Space:
    """Read everything that a sweep names, and refuse axes that name no field."""
    base: dict[str, Loaded] = {}
    for name in ("workload", *ROLES):
        given = getattr(sweep.base, name)
        if given is not None:
            base[name] = _load(name, given, sweep, ("base", name))
    loaded: dict[tuple[str, str], Loaded] = {}
    for axis in sweep.axes:
        if axis.field.path or axis.field.root not in ("workload", *ROLES):
            continue
        for value in axis.values or ():
            loaded[axis.field.root, _key(value)] = _load(axis.field.root, value, sweep, ("axes", axis.name))
    named = sweep.base
    space = Space(
        sweep.folder.absolute(),
        base,
        named.machine,
        named.model,
        named.profile,
        named.when_full,
        (named.samples, named.seed),
        long_job_of(sweep),
        named.ties_alike,
        sweep.axes,
        loaded,
    )
    _check_names(space, sweep)
    for axis in sweep.axes:
        if axis.field.path:
            _check_axis(space, axis, sweep)
    return space


def _given(space: Space, word: str) -> str | None:
    """Return the base's value of an option of a run."""
    given: str | None = getattr(space, word.replace("-", "_"))
    return given


def _check_names(space: Space, sweep: Sweep) -> None:
    """Refuse names in the base that no point could use."""
    varied = {axis.field.root for axis in sweep.axes}
    checks: tuple[Callable[[str], object], ...] = (model_named, preset, check_profile, check_when_full)
    for name, check in zip(("model", "machine", "profile", "when-full"), checks, strict=True):
        word = _given(space, name)
        if word is not None and name not in varied:
            try:
                check(word)
            except EtSimError as error:
                raise _placed(error, sweep.section.at("base", name)) from None


def _check_axis(space: Space, axis: SweepAxis, sweep: Sweep) -> None:
    root, place = axis.field.root, sweep.section.at("axes", axis.name)
    first = next((value for (name, _), value in space.loaded.items() if name == root), None)
    try:
        source = space.base.get(root) if first is None else first
        if source is None:
            machines = [axis.values or () for axis in space.axes if axis.field.root == "machine"]
            name = next((str(value) for values in machines for value in values), space.machine)
            assert name is not None  # the spec was checked
            source = preset_source(name, root)
        if isinstance(source, GivenWorkload):
            raise InputError(
                f"{axis.field} names no field: the workload is given, not made",
                remedy="make it, or vary the whole: workload: [one, another]",
            )
        if isinstance(source, Source):
            check_field(axis.field, source.content)
        else:
            names = [key.name for key in recipe_keys(source)]
            root_key = str(axis.field.path[0])
            inner = root_key in (PLAN, DECODE_PLAN) and root_key in names
            known = [key.name for key in keys_of(Plan)] if inner else names
            at = InputField(f"workload.{root_key}", axis.field.path[1:]) if inner else axis.field
            check_field(at, source.get(root_key, {}) if inner else source, known)
    except EtSimError as error:
        raise _placed(error, place) from None


def _load(name: str, given: Any, sweep: Sweep, path: tuple[str, ...]) -> Loaded:
    """Load one whole input; a path is relative to the sweep's file."""
    try:
        if name == "workload":
            return _load_workload(given, sweep.folder)
        if not isinstance(given, str | dict):
            raise InputError(f"the {name} is {given!r}", remedy="name a file, or write its keys here")
        where = str(sweep.folder / given) if isinstance(given, str) else given
        return load(where, ROLES[name], f"{sweep.section.place}: {name}")
    except EtSimError as error:
        raise _placed(error, sweep.section.at(*path)) from None


def _load_workload(given: Any, folder: Path) -> GivenWorkload | dict[str, Any]:
    if isinstance(given, Workload):
        raise InputError(
            "a Workload cannot be part of a sweep", remedy="write it to files with write_workload"
        )
    if isinstance(given, dict) and MAKE in given:
        check_recipe(given)
        return given
    if not isinstance(given, str):
        raise InputError(f"the workload is {given!r}", remedy="name its files, or make it, as in make: llm")
    path = folder / given
    if is_layer_file(path) or kind_of(path) is FileKind.JOBS:
        files = NamedFiles((path.parent,)).of([path.name])
        return GivenWorkload(str(path), digest_of([digest for _, digest in files]))
    workload = read_workload(path)
    return GivenWorkload(workload, digest_of([workload.profile, *(digest for _, digest in workload.inputs)]))


@functools.lru_cache(8)
def preset_source(machine: str, role: str) -> Source:
    """Return an input file of a machine preset."""
    if role not in _OF_PRESETS:
        raise InputError(f"a machine by its name has no {role}", remedy=f'add "{role}" to base')
    content: dict[str, Any] = getattr(preset(machine), role)
    return Source(machine, content, digest_of(content))


def _changed(loaded: Loaded, where: InputField, value: Any) -> Loaded:
    """Return the input with another value in a field."""
    if isinstance(loaded, GivenWorkload):
        raise InputError(f"{where} cannot be changed: the workload is given, not made")
    try:
        if isinstance(loaded, Source):
            content = with_value(loaded.content, where.path, value)
            return replace(loaded, content=content, digest=digest_of(content))
        changed: dict[str, Any] = with_value(loaded, where.path, value)
        return changed
    except (KeyError, IndexError, TypeError, AttributeError):
        raise InputError(f"there is no field {where} in this one") from None


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _placed(error: EtSimError, place: str) -> EtSimError:
    """Return the refusal with the place in the sweep that names the input."""
    if error.place:
        return InputError(f"{error.place}: {error.cause}", place=place, remedy=error.remedy)
    return InputError(error.cause, place=place, remedy=error.remedy)


def _recipe_text(text: str, machine: str | None) -> str:
    """Return the text of a recipe with the fields of its plan that the machine decides."""
    return json.dumps(for_machine(json.loads(text), machine), sort_keys=True)


class Workshop:
    """A cache of the latest workloads, which neighbours in a sweep often share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._served: dict[str, MachineTimes] = {}
        self._recipe = functools.lru_cache(_MADE_AT_ONCE)(_recipe_text)
        self._make = functools.lru_cache(_MADE_AT_ONCE)(lambda text: make(json.loads(text), folder))

    def workload(self, inputs: Inputs) -> Workload | str:
        """Return the workload of a point, or the path of a file that makes one."""
        if isinstance(inputs.workload, GivenWorkload):
            return inputs.workload.content
        return self._make(self._recipe(json.dumps(inputs.workload), inputs.machine))

    def served_on(self, inputs: Inputs) -> MachineTimes:
        """Return the times of passes that points on the same machine share."""
        from et_sim.serving.replicas import MachineTimes

        return self._served.setdefault(inputs.machine_key, MachineTimes())
