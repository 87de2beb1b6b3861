"""Rooms import only the rooms that the design allows.

Every import of every module is read from its source, those inside functions and behind TYPE_CHECKING too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

# Rooms that every room may import, and that import only each other.
COMMON = {"basics", "documents", "compiled", "version"}

# Room -> the rooms it may import, besides itself and the common modules.
ALLOWED: dict[str, set[str]] = {
    "basics": set(),
    "documents": set(),
    "compiled": set(),
    "version": set(),
    "trace": set(),
    "layerfile": {"trace"},
    "workloads": {"trace", "memory"},
    "machine": {"collectives.names"},
    "collectives": set(),
    "compute": {"machine", "trace"},
    "memory": {"machine", "trace"},
    "network": {"machine", "plan.records", "plan.splitmix", "fold.path_keys", "engine"},
    "plan": {"trace", "machine", "collectives", "compute", "memory"},
    "fold": {"plan", "machine", "memory", "compute", "trace"},
    "engine": {"plan", "fold", "machine", "trace"},  # trace: to name nodes in a stall
    "tables": set(),
    "timeline": {"tables", "engine", "plan", "machine", "network.levels", "trace", "compute", "memory"},
    "views": {"tables"},
    "jobs": {"trace", "machine", "plan.splitmix"},
    "run": {
        "trace",
        "machine",
        "jobs",
        "layerfile",
        "compute.custom",
        "plan",
        "fold",
        "network",
        "engine",
        "tables",
        "timeline",
        "views",
    },
    "api": {"execution", "network", "run"},
    "execution": {
        "run",
        "samples",
        "trace",
        "machine",
        "plan",
        "fold",
        "network",
        "engine",
        "tables.summary",
        "timeline",
    },
    "samples": {
        "trace",
        "machine",
        "collectives.program",
        "plan",
        "fold.limits",
        "engine",
        "run",
        "timeline",
    },
    "serving": {
        "execution",
        "machine",
        "network.registry",
        "plan",
        "run",
        "tables",
        "timeline",
        "trace",
        "workloads",
    },
    "calibrate": {"compute", "execution", "machine", "run", "samples", "serving", "trace", "validation"},
    "validation": {"api", "compute", "machine", "run", "serving", "trace", "workloads"},
    "recipes": {"machine", "run", "serving", "trace", "workloads"},
    "sweeps": {
        "compute",
        "execution",
        "goodput",
        "machine",
        "network.registry",
        "recipes",
        "run",
        "serving",
        "tables",
        "timeline",
        "trace",
        "views",
        "workloads",
    },
    "goodput": {
        "execution",
        "machine",
        "plan.splitmix",
        "run",
        "recipes",
        "tables",
        "timeline",
        "trace",
        "views",
        "workloads",
    },
    "doctor": {"api", "compute.custom", "fold.path_keys", "machine", "network.registry", "run", "trace"},
    "reference_texts": set(),
    "reference_page": {
        "goodput.job_file",
        "jobs",
        "machine",
        "recipes",
        "reference_texts",
        "serving.engines.description",
        "sweeps",
        "trace",
        "workloads",
    },
    "glossary": set(),
    "explain": {"glossary", "machine", "reference_page", "reference_texts", "tables", "views.summary.parts"},
    "entry": set(),  # imports the command line by its name, after it handles Ctrl-C
    "cli": {
        "api",
        "calibrate",
        "collectives",
        "compute",
        "doctor",
        "execution",
        "engine",
        "explain",
        "goodput",
        "machine",
        "network.description",
        "network.graph_of_grid",
        "network.registry",
        "plan",
        "recipes",
        "run",
        "samples",
        "serving",
        "sweeps",
        "tables.summary",
        "timeline",
        "trace",
        "validation",
        "views",
        "workloads",
    },
    "converters": {"calibrate.inspector", "compute", "layerfile", "trace"},
    "recorder": {"compute", "trace", "workloads"},
}
FACADE = {"api", "run", "sweeps", "trace"}  # et_sim/__init__.py offers names of these rooms

Import = tuple[str, str]  # module that imports, dotted name that it imports


def _modules() -> Iterator[tuple[str, Path]]:
    for package in ("et_sim", "converters", "recorder"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), path


def _imports(module: str, path: Path) -> Iterator[Import]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((module, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                origin = ".".join([*above, *([origin] if origin else [])])
            yield from ((module, f"{origin}.{alias.name}") for alias in node.names)


def _room(dotted: str) -> str:
    """Return the room of a module: `plan` for `et_sim.plan.records.NODE`, "" for the facade.

    All of `converters.…` is one room.
    """
    parts = dotted.split(".")
    if parts[0] in ("converters", "recorder"):
        return parts[0]
    return parts[1] if len(parts) > 1 else ""


def _is_ours(dotted: str) -> bool:
    return dotted.split(".")[0] in ("et_sim", "converters", "recorder")


def _may_import(room: str, imported: str) -> bool:
    target = _room(imported)
    if target in COMMON or target == room or target.startswith("__"):
        return True
    inside = imported.removeprefix("et_sim.")
    return any(inside == name or inside.startswith(f"{name}.") for name in ALLOWED[room])


@cache
def every_import() -> tuple[Import, ...]:
    """Return the imports of all modules."""
    return tuple(pair for name, path in _modules() for pair in _imports(name, path))


def test_every_room_keeps_to_its_allowed_imports() -> None:
    forbidden = [
        f"{module} imports {imported}"
        for module, imported in every_import()
        if _is_ours(imported) and _room(module) in ALLOWED and not _may_import(_room(module), imported)
    ]
    assert forbidden == []


def test_every_module_lives_in_a_room() -> None:
    homeless = [name for name, _ in _modules() if name != "et_sim" and _room(name) not in ALLOWED]
    assert homeless == []


def test_the_package_itself_offers_only_public_names() -> None:
    rooms = {
        _room(imported) for module, imported in every_import() if module == "et_sim" and _is_ours(imported)
    }
    assert rooms <= COMMON | FACADE


def test_the_allowed_imports_have_no_circle() -> None:
    rest = {room: {name.partition(".")[0] for name in allowed} for room, allowed in ALLOWED.items()}
    rest["network"].discard("plan")  # record layouts only
    while rest:
        free = {room for room, allowed in rest.items() if not allowed & rest.keys()}
        assert free, f"these rooms import each other in a circle: {sorted(rest)}"
        rest = {room: allowed for room, allowed in rest.items() if room not in free}


@cache
def _imported_modules() -> nx.DiGraph:
    """Return a graph with an arrow from each module to each of our modules that it imports."""
    modules = {name for name, _ in _modules()}
    arrows = nx.DiGraph()
    for module, imported in every_import():
        if _is_ours(imported):
            target = imported if imported in modules else imported.rpartition(".")[0]
            arrows.add_edge(module, target)
    return arrows


def _packages() -> list[str]:
    return [name for name, path in _modules() if path.name == "__init__.py"]


def _child(package: str, module: str) -> str:
    """Return the direct child of a package that holds a module; a package is its own child."""
    below = module.removeprefix(f"{package}.").partition(".")[0]
    return package if module == package else f"{package}.{below}"


def _circles(arrows: nx.DiGraph) -> list[list[str]]:
    return [sorted(knot) for knot in nx.strongly_connected_components(arrows) if len(knot) > 1]


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert _circles(_imported_modules()) == []


@pytest.mark.parametrize("package", _packages())
def test_the_content_of_a_package_has_no_circle(package: str) -> None:
    inside = nx.DiGraph()
    for module, imported in _imported_modules().edges:
        if all(f"{name}.".startswith(f"{package}.") for name in (module, imported)):
            ends = _child(package, module), _child(package, imported)
            inside.add_edges_from([ends] if ends[0] != ends[1] else [])
    assert _circles(inside) == []


def test_only_observers_import_more_of_them_than_their_facade() -> None:
    observers, facade = "et_sim.engine.observe", "et_sim.engine.observe.facade"
    known = {
        f"{module} imports {imported}"
        for module, imported in every_import()
        if f"{imported}.".startswith(f"{observers}.") and imported != facade
    }
    assert {result for result in known if not result.startswith(f"{observers}.")} == set()


def test_the_simulator_never_imports_the_converters_or_the_recorder() -> None:
    assert [
        edge
        for edge in every_import()
        if edge[0].startswith("et_sim") and edge[1].startswith(("converters", "recorder"))
    ] == []


@pytest.mark.parametrize(
    ("room", "imported", "allowed"),
    [
        ("views", "et_sim.engine.driver.Outcome", False),
        ("views", "et_sim.basics.units.format_ns", True),
        ("trace", "et_sim.machine.read_machine", False),
        ("network", "et_sim.plan.records.STEP", True),
        ("network", "et_sim.plan.lowering.build_plan", False),
        ("layerfile", "converters.report.plural", False),
        ("converters", "et_sim.engine.run_plan", False),
    ],
)
def test_the_rule_itself(room: str, imported: str, allowed: bool) -> None:
    assert _may_import(room, imported) is allowed
