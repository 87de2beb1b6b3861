"""`et-sim doctor`: sound installations pass, and each problem is named with a remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from doctor_cases import doctor_cases

from et_sim.basics.versions import is_within
from et_sim.cli import main
from et_sim.compiled import store
from et_sim.doctor import installation
from et_sim.doctor.installation import examine_cache, examine_compiling, examine_host, examine_packages


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield an empty cache, without processes that compile."""
    monkeypatch.setenv("ET_SIM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    store.cache_directory.cache_clear()
    yield tmp_path / "cache"
    store.cache_directory.cache_clear()


def test_a_well_installation_passes_with_five_known_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["is_well"]
    tested = [
        finding for finding in document["findings"] if finding["topic"] == "self-test" and finding["expected"]
    ]
    assert len(tested) == 5
    assert all(finding["found"] == finding["expected"] for finding in tested)


def test_the_cases_are_the_golden_ones() -> None:
    shipped = {path.name: json.loads(path.read_text()) for path in installation.CASES.iterdir()}
    assert shipped == doctor_cases()


def test_a_wrong_result_is_a_problem_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = doctor_cases()["3-point-to-point.json"]
    case["finish_ns"][1] += 1
    (tmp_path / "wrong.json").write_text(json.dumps(case))
    monkeypatch.setattr(installation, "CASES", tmp_path)
    assert main(["doctor"]) == 1
    assert "PROBLEM: in the case point-to-point, rank 1 finishes at 1,232 ns in place of 1,233 ns" in (
        capsys.readouterr().out
    )


def test_a_case_that_cannot_be_run_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = doctor_cases()["3-point-to-point.json"]
    (tmp_path / "refused.json").write_text(json.dumps({**case, "model": "none"}))
    monkeypatch.setattr(installation, "CASES", tmp_path)
    assert "is refused" in next(installation.examine_results()).problem


def test_a_package_that_is_missing_or_untested_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        installation, "version_of", lambda name: {"numpy": "", "numba": "0.99"}.get(name, "999")
    )
    problems = {
        package.name: (package.problem, package.remedy) for package in examine_packages() if package.problem
    }
    assert problems["numpy"][0] == "numpy is missing"
    assert "numba 0.99 is outside" in problems["numba"][0]
    assert problems["numba"][1].startswith("pip install 'numba")


@pytest.mark.parametrize(
    ("found", "range_", "is_in"),
    [
        ("0.61.2", ">=0.61,<0.69", True),
        ("0.69.0rc1", "<0.69,>=0.61", False),
        ("26.0", ">=5.26", True),
        ("3.9", ">=3.11", False),
        ("0.50.0", "<0.51,>=0.50.0dev0", True),
        ("1.4.9", "~=1.4", True),
        ("2.0", "~=1.4", False),
        ("2.0", "!=2.0", False),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(found: str, range_: str, is_in: bool) -> None:
    assert is_within(found, range_) == is_in


def test_a_cache_that_cannot_be_written_is_a_problem(own_cache: Path) -> None:
    own_cache.write_text("a file is in the way")
    [place] = [finding for finding in examine_cache() if finding.name == "place"]
    assert "cannot be written" in place.problem
    assert "ET_SIM_CACHE_DIR" in place.remedy


def test_a_failed_compilation_is_a_problem(own_cache: Path) -> None:
    store.cache_directory()
    (store.cache_directory() / "simulate-0123.failed").write_text("out of memory")
    (store.cache_directory() / "simulate-4567.code").write_text("")
    results = {finding.name: finding for finding in examine_cache()}
    assert "out of memory" in results["failed"].problem
    assert results["failed"].found == "simulate"
    assert results["compiled"].found == "simulate (1 kind)"
    assert own_cache.exists()


def test_a_misspelt_mode_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "nwo")
    [mode] = examine_compiling()
    assert (mode.problem, mode.remedy) == ("ET_SIM_COMPILE is 'nwo'", "did you mean 'now'?")


@pytest.mark.parametrize(
    ("free_kib", "problem"),
    [
        (512 << 10, ""),
        ((512 << 10) - 1, "only 512 MiB of memory are free, and compiling may fail"),
    ],
)
def test_less_than_512_mib_of_free_memory_are_a_problem(
    free_kib: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"MemTotal: 104857600 kB\nMemFree: 1 kB\nMemAvailable: {free_kib} kB\nHugePages_Free: 0\n"
    file = SimpleNamespace(read_text=lambda encoding: text)  # noqa: ARG005
    monkeypatch.setattr(installation, "Path", {"/proc/meminfo": file}.__getitem__)
    (found,) = (finding for finding in examine_host() if finding.name == "memory")
    assert found.found == "100 GiB, 512 MiB of them free"
    assert (found.problem, found.remedy) == (problem, "end other programs" if problem else "")


@pytest.mark.parametrize(("free", "is_problem"), [(200_000_000, False), (199_999_999, True)])
def test_less_than_200_mb_of_free_disk_are_a_problem(
    free: int, is_problem: bool, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    findings = [*examine_cache()]
    assert findings[0].found == f"{store.cache_directory()}, writable"
    assert findings[0].found.startswith(f"{own_cache}/")
    assert findings[-1].found == "190.73 MiB free"
    assert bool(findings[-1].problem) == is_problem


def test_forms_and_failures_are_named_by_their_function(own_cache: Path) -> None:
    folder = store.cache_directory()
    assert folder.is_relative_to(own_cache)
    for name in ("a-loop-0", "a-loop-1", "paths-2"):
        (folder / f"{name}{store.ENDING}").touch()
    found = {finding.name: finding.found for finding in examine_cache()}
    assert found["compiled"] == "a-loop (2 kinds), paths (1 kind)"


def test_the_version_of_llvm_that_numba_requires_is_examined_after_it() -> None:
    names = [finding.name for finding in examine_packages()]
    assert names[names.index("numba") + 1] == "llvmlite"
    assert names.count("llvmlite") == 1
