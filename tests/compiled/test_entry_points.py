"""Calls are interpreted or compiled: a short call never waits, and the results are the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import FOLDER, REPOSITORY, finish, run, start, wait_until_made

from et_sim.basics.errors import UsageError
from et_sim.compiled import compile_queue, worker
from et_sim.compiled.compile_queue import URGENT, WORKER, Order, failure
from et_sim.compiled.entry_points import SHORT_SECONDS, CompiledEntry, choice
from et_sim.compiled.signature import signature_of
from et_sim.compiled.store import read_code, write_whole

SHORT, LONG = "0.1", "1000"
RUN = CompiledEntry._run  # before `conftest` makes tests wait less


@pytest.mark.deep
def test_a_short_call_is_interpreted_and_compiled_for_the_next_process(tmp_path: Path) -> None:
    first = run(SHORT, ET_SIM_CACHE_DIR=str(tmp_path))
    assert (first.was_compiled, first.result) == (False, 12)
    assert first.errors.count("\n") == 1
    assert "small: not compiled yet: interpreted until it is compiled in the background" in first.errors
    [code] = wait_until_made(first.directory)
    second = run(SHORT, ET_SIM_CACHE_DIR=str(tmp_path))
    assert (second.was_compiled, second.result, second.is_compiled, second.errors) == (True, 12, True, "")
    assert code.parent.parent == tmp_path


@pytest.mark.deep
def test_the_background_does_not_need_the_directory_in_which_the_call_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, passing = tmp_path / "cache", tmp_path / "passing"
    passing.mkdir()
    monkeypatch.chdir(passing)
    first = run(SHORT, ET_SIM_CACHE_DIR="../cache")
    passing.rmdir()
    wait_until_made(cache / first.directory.name)


def place_order(code: Path, function: str) -> None:
    wanted = Order(code, "small_program", function, signature_of((np.array([1, 2]),)), (str(FOLDER),))
    write_whole(code.with_suffix(URGENT), wanted.as_bytes())


def work_off(folder: Path, *command: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-P", *command, str(folder)], env=environment, check=True)


@pytest.mark.deep
def test_a_worker_of_any_process_finds_the_module_of_an_order(tmp_path: Path) -> None:
    place_order(tmp_path / "sum.code", "quadrupled_sum")
    work_off(tmp_path, "-m", WORKER)
    assert read_code(tmp_path / "sum.code") is not None


@pytest.mark.deep
def test_the_worker_itself_never_loads_the_compiler(tmp_path: Path) -> None:
    """Check the memory of the worker: Numba would keep the memory of every compiled function."""
    for name in ("first", "second"):
        place_order(tmp_path / f"{name}.code", "quadrupled_sum")
    program = """if True:
        import sys
        from pathlib import Path
        from et_sim.compiled.worker import main

        main(Path(sys.argv[1]))
        sys.exit("numba" in sys.modules)
    """
    work_off(tmp_path, "-c", program)
    assert all(read_code(tmp_path / f"{name}.code") is not None for name in ("first", "second"))


@pytest.mark.deep
def test_the_end_of_the_process_that_compiles_is_reported_in_place_of_the_code(tmp_path: Path) -> None:
    place_order(tmp_path / "sum.code", "ends_the_process")
    work_off(tmp_path, "-m", WORKER)
    assert failure(tmp_path / "sum.code") == "the process that compiles ended with status 3"


def spoil(site: Path, package: str, content: str) -> Path:
    """Return a folder in which a package is half removed."""
    folder = site / package
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(content)
    return site


BROKEN = {
    "numba": "raise ModuleNotFoundError(\"No module named 'numpy.ma'\", name='numpy.ma')",
    "small_program": "def quadrupled_sum(",
    "et_sim": "raise ImportError('half removed')",
}


@pytest.mark.parametrize("package", BROKEN)
def test_a_package_that_is_being_removed_leaves_no_mark_and_the_order_stays(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "sum.code"
    place_order(code, "quadrupled_sum")
    place_order(tmp_path / "other.code", "quadrupled_sum")
    site = spoil(tmp_path / "site", package, BROKEN[package])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), str(REPOSITORY))))
    worker.main(tmp_path)
    assert not list(tmp_path.glob("*.failed"))
    assert sorted(path.name for path in tmp_path.glob("*.urgent")) == ["other.urgent", "sum.urgent"]
    with compile_queue.locked(tmp_path) as is_free:
        assert is_free


def test_a_python_that_is_gone_leaves_no_mark_and_the_order_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_order(tmp_path / "sum.code", "quadrupled_sum")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "removed" / "python"))
    worker.main(tmp_path)
    assert not list(tmp_path.glob("*.failed"))
    assert (tmp_path / "sum.urgent").exists()


def test_a_module_that_is_missing_while_it_is_compiled_is_no_failure_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(*_: Any) -> Any:
        try:
            raise ModuleNotFoundError("No module named 'numpy.ma'")
        except ImportError:
            raise TypeError("failed in nopython mode") from None

    monkeypatch.setattr("et_sim.compiled.build.build", built)
    monkeypatch.syspath_prepend(FOLDER)
    place_order(tmp_path / "sum.code", "quadrupled_sum")
    assert worker.make((tmp_path / "sum.urgent").read_bytes(), is_patient=False) == worker.ENVIRONMENT
    assert not list(tmp_path.glob("*.failed"))


@pytest.mark.deep
def test_a_module_that_is_gone_holds_no_other_order_up(tmp_path: Path) -> None:
    place_order(tmp_path / "gone.code", "quadrupled_sum")
    order = tmp_path / "gone.urgent"
    order.write_bytes(order.read_bytes().replace(b"small_program", b"no_such_module"))
    place_order(tmp_path / "sum.code", "quadrupled_sum")
    work_off(tmp_path, "-m", WORKER)
    assert read_code(tmp_path / "sum.code") is not None
    assert sorted(path.name for path in tmp_path.glob("*.urgent")) == ["gone.urgent"]


@pytest.mark.deep
def test_once_the_environment_is_whole_again_the_order_is_carried_out_at_once(tmp_path: Path) -> None:
    site = spoil(tmp_path / "site", "numba", BROKEN["numba"])
    paths = os.pathsep.join((str(site), str(REPOSITORY), str(FOLDER)))
    cache = tmp_path / "cache"
    broken = run(LONG, ET_SIM_CACHE_DIR=str(cache), PYTHONPATH=paths)
    assert (broken.result, broken.is_compiled) == (12, False)
    assert "which takes longer: ModuleNotFoundError: No module named 'numpy.ma' (see " in broken.errors
    whole = run(LONG, ET_SIM_CACHE_DIR=str(cache))
    assert (whole.result, whole.is_compiled) == (12, True)


@pytest.mark.deep
def test_a_long_call_waits_with_a_report(tmp_path: Path) -> None:
    output = run(LONG, ET_SIM_CACHE_DIR=str(tmp_path))
    assert (output.was_compiled, output.result, output.is_compiled) == (False, 12, True)
    assert output.errors.startswith("small: compiling the sum, once for this version and kind of run …\n")


@pytest.mark.deep
def test_with_now_a_short_call_waits_too(tmp_path: Path) -> None:
    assert run(SHORT, ET_SIM_CACHE_DIR=str(tmp_path), ET_SIM_COMPILE="now").is_compiled


@pytest.mark.deep
def test_with_background_a_long_call_does_not_wait(tmp_path: Path) -> None:
    output = run(LONG, ET_SIM_CACHE_DIR=str(tmp_path), ET_SIM_COMPILE="background")
    assert output.result == 12
    assert "small: not compiled yet: interpreted until it is compiled in the background" in output.errors
    wait_until_made(output.directory)


@pytest.mark.deep
@pytest.mark.parametrize("how", [{"ET_SIM_COMPILE": "never"}, {"NUMBA_DISABLE_JIT": "1"}])
def test_with_never_nothing_is_compiled_and_no_compiled_code_used(
    tmp_path: Path, how: dict[str, str]
) -> None:
    output = run(LONG, ET_SIM_CACHE_DIR=str(tmp_path), **how)
    assert (output.result, output.is_compiled, output.errors) == (12, False, "")
    assert not list(output.directory.iterdir())
    run(SHORT, ET_SIM_CACHE_DIR=str(tmp_path), ET_SIM_COMPILE="now")
    assert not run(SHORT, ET_SIM_CACHE_DIR=str(tmp_path), **how).was_compiled


def test_runs_of_one_form_that_follow_each_other_become_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "")
    lasts: list[float] = []
    monkeypatch.setattr(CompiledEntry, "_found", lambda *_: None)
    monkeypatch.setattr(CompiledEntry, "_made", lambda _self, _arguments, seconds, **_: lasts.append(seconds))
    entry, whole, real = CompiledEntry(lambda _: 0, "a run", lambda *_: 0.0), np.array([1]), np.array([1.0])
    for _ in range(3):
        run_on = entry.lasting(lambda: 0.4 * SHORT_SECONDS)
        run_on(whole)
        run_on(whole)  # the same one goes on
    assert [seconds > SHORT_SECONDS for seconds in lasts] == [False] * 4 + [True] * 2
    entry.lasting(lambda: 0.4 * SHORT_SECONDS)(real)
    assert lasts[-1] == 0.4 * SHORT_SECONDS


@pytest.mark.parametrize(
    ("chosen", "seconds", "goes_on", "is_urgent", "waits"),
    [
        ("", SHORT_SECONDS / 2, False, False, False),
        ("", SHORT_SECONDS * 2, False, True, True),
        ("", SHORT_SECONDS / 2, True, False, False),
        ("", SHORT_SECONDS * 2, True, True, False),
        ("", SHORT_SECONDS * 1000, True, True, False),
        ("now", 0.0, True, True, True),
        ("background", SHORT_SECONDS * 1000, True, False, False),
    ],
)
def test_a_lasting_call_waits_only_if_that_is_chosen(
    chosen: str, seconds: float, goes_on: bool, is_urgent: bool, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", chosen)
    seen: list[Any] = []
    monkeypatch.setattr(CompiledEntry, "_found", lambda *_, **__: None)
    monkeypatch.setattr(
        CompiledEntry, "ordered", lambda _self, _arguments, is_urgent: seen.append(is_urgent) or 1
    )
    monkeypatch.setattr(compile_queue, "wait_for", lambda *_: seen.append("waits"))
    entry: Any = CompiledEntry(lambda _: 7, "a run", lambda *_: seconds)
    call = entry.lasting(lambda: seconds) if goes_on else entry
    assert RUN(entry, call.args[0] if goes_on else None, np.array([1])) == 7
    assert seen == [is_urgent, "waits"][: 1 + waits]


def test_short_calls_never_wait_and_become_urgent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "")
    urgent: list[bool] = []
    monkeypatch.setattr(CompiledEntry, "_found", lambda *_, **__: None)
    monkeypatch.setattr(
        CompiledEntry, "ordered", lambda _self, _arguments, is_urgent: urgent.append(is_urgent) or 1
    )
    entry: Any = CompiledEntry(lambda _: 7, "a run", lambda *_: 0.4 * SHORT_SECONDS)
    assert [RUN(entry, None, np.array([1])) for _ in range(3)] == [7] * 3
    assert urgent == [False, False, True]


def test_an_interpreted_call_goes_on_with_machine_code_as_soon_as_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "")
    there: list[Any] = []
    monkeypatch.setattr(CompiledEntry, "_found", lambda *_, **__: there[0] if there else None)
    monkeypatch.setattr(CompiledEntry, "ordered", lambda *_: 1)
    entry: Any = CompiledEntry(lambda _: "interpreted", "a run", lambda *_: 0.0)
    go_on = entry.lasting(lambda: SHORT_SECONDS * 2)
    assert go_on(1) == "interpreted"
    there.append(lambda _: "compiled")
    assert go_on(1) == "compiled"


def test_an_unknown_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "nwo")
    with pytest.raises(UsageError, match="ET_SIM_COMPILE is 'nwo'") as caught:
        choice()
    assert "now" in str(caught.value.remedy)


@pytest.mark.deep
def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    started = [start(LONG, ET_SIM_CACHE_DIR=str(tmp_path)) for _ in range(3)]
    output = [finish(process) for process in started]
    assert [call.result for call in output] == [12] * 3
    assert all(call.is_compiled for call in output)
    assert len(list(output[0].directory.glob("*.code"))) == 1


@pytest.mark.deep
def test_code_that_cannot_be_compiled_is_interpreted_and_the_reason_reported(tmp_path: Path) -> None:
    output = run(LONG, "named", ET_SIM_CACHE_DIR=str(tmp_path))
    assert (output.result, output.is_compiled) == (1, False)
    assert "small: the impossible: interpreted, not compiled, which takes longer: " in output.errors
    assert "Traceback" not in output.errors
    again = run(SHORT, "named", ET_SIM_CACHE_DIR=str(tmp_path))
    assert again.result == 1
    assert again.errors.count("\n") == 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache with the code of one function."""
    cache = tmp_path_factory.mktemp("made")
    run(SHORT, ET_SIM_CACHE_DIR=str(cache), ET_SIM_COMPILE="now")
    return cache


@pytest.mark.deep
@pytest.mark.parametrize(
    "damage", ["cut", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("empty", "foreign"))]
)
def test_damaged_or_foreign_code_is_made_again(made: Path, tmp_path: Path, damage: str) -> None:
    from et_sim.compiled.store import write_code

    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    [code] = tmp_path.glob("*/*.code")
    whole = read_code(code)
    assert whole is not None
    if damage == "foreign":
        of_another_version = tmp_path / "another" / code.name
        of_another_version.parent.mkdir()
        write_code(of_another_version, whole[0], whole[1], b"code of another machine")
        of_another_version.replace(code)
    else:
        code.write_bytes(code.read_bytes()[: 60 if damage == "cut" else 0])
    again = run(SHORT, ET_SIM_CACHE_DIR=str(tmp_path), ET_SIM_COMPILE="now")
    assert (again.was_compiled, again.result, again.is_compiled) == (False, 12, True)
    assert read_code(code) == whole
