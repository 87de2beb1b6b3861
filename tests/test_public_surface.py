"""The public interface is small, explicit, and complete."""

from __future__ import annotations

import inspect
import pydoc
import re
import typing
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import et_sim
from et_sim.basics.errors import did_you_mean
from et_sim.run.options import RunOptions

REPOSITORY = Path(__file__).resolve().parents[1]
PUBLIC = [
    "EtSimError",
    "InputError",
    "MachineError",
    "OutOfMemoryError",
    "Result",
    "StallError",
    "Trace",
    "TraceBuilder",
    "TraceError",
    "UsageError",
    "Workload",
    "__version__",
    "read_workload",
    "simulate",
    "sweep",
    "write_workload",
]
TOP_LEVEL = {
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "benchmarks",
    "converters",
    "docs",
    "et_sim",
    "proto",
    "hatch_build.py",
    "mkdocs.yml",
    "pyproject.toml",
    "recorder",
    "tests",
    "traces",
}
MADE_BY_TOOLS = {"__pycache__", "build", "dist", "et-sim-demo"}


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(et_sim.__all__) == PUBLIC


def test_every_public_name_can_be_imported() -> None:
    for name in et_sim.__all__:
        assert getattr(et_sim, name) is not None


def _documented_modules() -> list[ModuleType]:
    """Return `et_sim` and the modules from which examples of the docs import names."""
    pages = (path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs").glob("*.md"))
    imported = {name for page in pages for name in re.findall(r"^(?:> )?from (et_sim\S*) import", page, re.M)}
    assert {"et_sim", "et_sim.trace", "et_sim.workloads"} <= imported
    return [import_module(name) for name in sorted(imported)]


def test_signature_and_type_hints_work_for_every_documented_name() -> None:
    for module in _documented_modules():
        own = [name for name, value in vars(module).items() if _is_public_part(module, name, value)]
        for name in getattr(module, "__all__", own):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert typing.get_type_hints(value) is not None
                assert inspect.signature(value) is not None


def test_help_works_for_every_public_class() -> None:
    for name in et_sim.__all__:
        value = getattr(et_sim, name)
        if inspect.isclass(value):
            assert name in pydoc.render_doc(value)


def _is_public_part(module: ModuleType, name: str, value: object) -> bool:
    return getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")


def test_dir_lists_the_public_names_and_nothing_else_is_offered() -> None:
    assert dir(et_sim) == PUBLIC
    assert not hasattr(et_sim, "numpy")


def test_the_version_is_that_of_the_project_file() -> None:
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{et_sim.__version__}"' in project


def test_the_package_is_typed() -> None:
    assert (REPOSITORY / "et_sim" / "py.typed").exists()
    assert (REPOSITORY / "converters" / "py.typed").exists()
    assert (REPOSITORY / "recorder" / "py.typed").exists()


def test_the_top_level_of_the_repository_is_exactly_this() -> None:
    results = {path.name for path in REPOSITORY.iterdir() if not path.name.startswith(".")}
    assert {name for name in results if not name.endswith(".egg-info")} - MADE_BY_TOOLS == TOP_LEVEL


def test_help_of_simulate_describes_every_option_with_its_type_and_default() -> None:
    help_text = et_sim.simulate.__doc__ or ""
    for name in RunOptions.__struct_fields__:
        assert f"\n{name}: " in help_text
    assert "\nfold: bool, default True\n    simulate ranks that behave identically as one" in help_text
    assert max(map(len, help_text.splitlines())) <= 110
    assert "netwrk" not in help_text


def test_a_misspelt_option_of_simulate_is_answered_as_on_the_command_line() -> None:
    with pytest.raises(et_sim.UsageError, match=r"no option 'netwrk' \(did you mean 'network'\?\)"):
        et_sim.simulate("traces/ring", netwrk="network.yml")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("gpt3", "did you mean 'gpt3-1.3b', 'gpt3-175b' or 'gpt3-6.7b'?"),
        ("llama3-7b", "did you mean 'llama3-70b'?"),
        ("big-llama3-70b", "did you mean 'llama3-70b'?"),
        ("zzz", ""),
    ],
)
def test_names_that_begin_with_the_word_or_end_it_are_suggested(word: str, answer: str) -> None:
    assert did_you_mean(word, ["gpt3-1.3b", "gpt3-175b", "gpt3-6.7b", "llama3-70b"]) == answer
