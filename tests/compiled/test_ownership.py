"""Code is loaded only from places that no other user can write, and files of a cache are never unpickled."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from et_sim.basics.errors import UsageError
from et_sim.compiled import store
from et_sim.compiled.compile_queue import PATIENT, URGENT, WORKER, orders
from et_sim.compiled.ownership import check_folder, distrust

REPOSITORY = Path(__file__).parents[2]
SOMEBODY = 4321
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")


class Planted:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._trace),)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ET_SIM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _opened() -> Path:
    return store.cache_directory.__wrapped__()


def test_a_new_cache_is_private_with_any_umask(root: Path) -> None:
    before = os.umask(0)
    try:
        directory = _opened()
    finally:
        os.umask(before)
    assert directory.parent == root
    assert [distrust(folder.stat()) for folder in (root, directory)] == ["", ""]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
@pytest.mark.parametrize("is_root", [True, False])
def test_a_cache_that_others_can_write_is_refused_in_a_sentence(root: Path, mode: int, is_root: bool) -> None:
    folder = root if is_root else _opened()
    folder.mkdir(exist_ok=True)
    folder.chmod(mode)
    with pytest.raises(UsageError) as caught:
        _opened()
    assert str(caught.value) == (
        f"{folder}: no machine code is loaded from here: its mode {mode:04o} lets other users write to it"
        " (remove the folder, or set ET_SIM_CACHE_DIR to one that only you can write)"
    )


@AS_ROOT
def test_a_cache_of_another_user_is_refused(root: Path) -> None:
    root.mkdir(mode=0o700)
    os.chown(root, SOMEBODY, SOMEBODY)
    with pytest.raises(UsageError, match=f"user {SOMEBODY} owns it"):
        _opened()


def test_files_that_only_the_user_and_root_can_write_are_trusted(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    check_folder(tmp_path)


@AS_ROOT
@pytest.mark.usefixtures("root")
def test_a_file_of_another_user_is_neither_code_nor_an_order() -> None:
    directory = _opened()
    code, order = directory / "simulate-0.code", directory / "simulate-0.urgent"
    store.write_code(code, "symbol", True, b"content")
    store.write_whole(order, b"{}")
    assert store.read_code(code) == ("symbol", True, b"content")
    for file in (code, order):
        os.chown(file, SOMEBODY, SOMEBODY)
    assert store.read_code(code) is None
    assert list(orders(directory)) == []


@pytest.mark.usefixtures("root")
def test_a_file_that_others_can_write_is_no_code() -> None:
    code = _opened() / "simulate-0.code"
    store.write_code(code, "symbol", True, b"content")
    code.chmod(0o666)
    assert store.read_code(code) is None


@pytest.mark.deep
@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("ending", [URGENT, PATIENT])
def test_a_planted_pickle_is_removed_and_not_loaded(tmp_path: Path, ending: str) -> None:
    trace, planted = tmp_path / "ran", (_opened() / "simulate-0").with_suffix(ending)
    store.write_whole(planted, pickle.dumps(Planted(trace)))
    command = [sys.executable, "-P", "-m", WORKER, str(planted.parent)]
    subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, check=True, capture_output=True
    )
    assert not trace.exists()
    assert not planted.exists()


def test_the_demo_reports_that_others_can_write_the_cache_and_runs_nothing_in_it(
    root: Path, tmp_path: Path
) -> None:
    planted = _opened() / "simulate-0.urgent"
    store.write_whole(planted, pickle.dumps(Planted(tmp_path / "ran")))
    root.chmod(0o777)
    environment = {**os.environ, "ET_SIM_COMPILE": "", "PYTHONPATH": str(REPOSITORY)}
    program = "import sys; from et_sim.cli import main; sys.exit(main(['demo']))"
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    [sentence] = [line for line in ended.stderr.splitlines() if "error" in line]
    assert sentence.startswith(f"et-sim: error: {root}: no machine code is loaded from here: ")
    assert not (tmp_path / "ran").exists()
