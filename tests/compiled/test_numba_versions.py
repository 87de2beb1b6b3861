"""Versions of Numba: the checked ones compile in our own way, and all others with public Numba alone.

`.ci/run` runs this file on the lowest version that is allowed, too; the main environment has the highest.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import FOLDER, REPOSITORY
from small_program import quadrupled_sum

from et_sim.basics.versions import is_within, version_of
from et_sim.compiled import build, numba_version, worker
from et_sim.compiled.compile_queue import Order
from et_sim.compiled.compile_status import CompileStatus
from et_sim.compiled.entry_points import CompiledEntry, watching_compilation
from et_sim.compiled.native import Native
from et_sim.compiled.numba_version import CHECKED, NOTE, note_public, public_reason
from et_sim.compiled.signature import signature_of
from et_sim.compiled.store import cache_directory
from et_sim.doctor import installation

VALUES = np.array([1, 2])
PUBLIC = ("numba", "numba.extending", "llvmlite", "llvmlite.ir", "llvmlite.binding")
OUTSIDE = "<0.1"


def _imports(path: Path) -> Iterator[str]:
    """Yield the imported modules of a file, and names that are private to Numba."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "numba" in text or "llvmlite" in text else ():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)
            if node.module in ("numba", "llvmlite"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name[0] == "_")


def test_one_module_imports_parts_of_numba_that_are_not_public() -> None:
    inner = {
        path.stem
        for folder in ("et_sim", "converters", "recorder")
        for path in (REPOSITORY / folder).rglob("*.py")
        for name in _imports(path)
        if name.partition(".")[0] in ("numba", "llvmlite") and name not in PUBLIC
    }
    assert inner == {"numba_adapter"}


def test_the_package_allows_exactly_the_checked_versions() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["compiler"] == f"numba{CHECKED}"
    assert is_within(version_of("numba"), CHECKED)


def _built() -> build.MachineCode:
    made = build.build(quadrupled_sum.function, signature_of((VALUES,)))
    native = Native(made.symbol, made.returns, made.content, signature_of((VALUES,)))
    assert native(VALUES) == 12
    return made


def test_a_checked_version_compiles_in_our_own_way() -> None:
    assert _built().public_reason == ""


def test_another_version_compiles_with_public_numba_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def used() -> Any:
        raise AssertionError("the inside is not touched")

    monkeypatch.setattr(numba_version, "CHECKED", OUTSIDE)
    monkeypatch.setattr(build, "_lean_compilers", used)
    reason = _built().public_reason
    assert f"checked with numba{OUTSIDE}, and {version_of('numba')} is installed" in reason


WITHOUT_A_PART = """
import numba.core.typed_passes
del numba.core.typed_passes.NativeLowering
from test_numba_versions import _built
print(_built().public_reason)
"""


def test_a_numba_without_a_part_of_its_inside_compiles_with_its_public_names() -> None:
    output = _python("-c", WITHOUT_A_PART)
    assert "own compiler fails: ImportError: cannot import name 'NativeLowering'" in output.stdout


def _python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = filter(None, [os.environ.get("PYTHONPATH"), str(REPOSITORY), str(FOLDER)])
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=variables, check=True, capture_output=True, text=True)


def test_a_replaced_method_that_numba_does_not_have_is_an_error() -> None:
    from et_sim.compiled.numba_adapter import replace_methods, replaced

    with pytest.raises(AttributeError, match="no_such"):
        replace_methods(CompileStatus("x"), no_such=print)
    with pytest.raises(AttributeError, match="no_such"), replaced(CompileStatus, "no_such", print):
        raise AssertionError


def test_the_reason_is_noted_beside_the_code_until_our_own_way_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quadrupled_sum-0.code"
    order = Order(path, "small_program", "quadrupled_sum", signature_of((VALUES,)), (str(FOLDER),))
    monkeypatch.setattr(numba_version, "CHECKED", OUTSIDE)
    assert worker.make(order.as_bytes(), is_patient=False) == 0
    assert OUTSIDE in (tmp_path / NOTE).read_text()
    path.unlink()
    monkeypatch.setattr(numba_version, "CHECKED", CHECKED)
    assert OUTSIDE in public_reason(tmp_path)
    assert worker.make(order.as_bytes(), is_patient=False) == 0
    assert (path.exists(), public_reason(tmp_path)) == (True, "")


def test_one_notice_and_the_doctor_report_public_numba(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("et_sim.compiled.store.cache_directory", lambda: tmp_path)
    monkeypatch.setattr("et_sim.compiled.compile_queue.order", lambda *_: None)
    monkeypatch.setenv("ET_SIM_COMPILE", "background")
    note_public(tmp_path, "a part is missing")
    with watching_compilation(CompileStatus("et-sim")):
        for values in (VALUES, VALUES.astype(np.int32)):
            assert CompiledEntry(quadrupled_sum.function, "the sum", lambda _: 0.0)(values) == 12
    notice = "public Numba alone, which takes several times as long: a part is missing"
    assert capsys.readouterr().err.count(notice) == 1
    finding = installation._compiler(tmp_path)
    assert finding.problem.endswith("takes several times as long: a part is missing")
    assert finding.remedy == f"pip install 'numba{CHECKED}'"


@pytest.mark.parametrize(
    "function",
    [
        "join_spans",
        pytest.param("decode_records", marks=pytest.mark.deep),
        pytest.param("simulate", marks=pytest.mark.exhaustive),  # takes minutes
    ],
)
def test_goldens_finish_equally_if_public_numba_compiles(function: str, tmp_path: Path) -> None:
    cases = ["3-point-to-point.json", "4-groups.json"]
    environment = {"ET_SIM_CACHE_DIR": str(tmp_path), "ET_SIM_COMPILE": "background"}
    output = _python(str(FOLDER / "public_goldens.py"), function, *cases, **environment)
    assert output.stdout.split() == ["True"] * 2 * len(cases)
    assert output.stderr.count("goldens: compiled by public Numba alone") == 1
    assert list(tmp_path.glob(f"*/{function}-*.code"))
    [note] = tmp_path.glob(f"*/{NOTE}")
    assert OUTSIDE in note.read_text()


def test_a_golden_finishes_equally_if_this_version_compiles_the_engine() -> None:
    case = json.loads((installation.CASES / "3-point-to-point.json").read_text())
    assert installation._judged_case(case).problem == ""
    assert public_reason(cache_directory()) == ""
