"""The disk cache of compiled code: where it is, when it is stale, and that nothing breaks without it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from et_sim.compiled import decorators

SCRIPT = """
from et_sim.compiled.decorators import cache_directory, compiled, entry, is_cached

@compiled(forceinline=True, allocates=False)
def doubled(value):
    return 2 * value

@entry
def quadrupled(value):
    return doubled(doubled(value))

print(is_cached(quadrupled), quadrupled(3), is_cached(quadrupled), doubled(1), cache_directory())
"""


def run(tmp_path: Path, **environment: str) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script)]
    root = str(Path(decorators.__file__).parents[2])
    variables = {**os.environ, "PYTHONPATH": root, **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.split()


def test_the_first_call_compiles_and_the_next_process_finds_it_done(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = run(tmp_path, ET_SIM_CACHE_DIR=str(cache))
    assert first[:4] == ["False", "12", "True", "2"]
    assert Path(first[4]).parent == cache
    assert run(tmp_path, ET_SIM_CACHE_DIR=str(cache))[:3] == ["True", "12", "True"]


def test_the_cache_is_below_the_users_cache_directory(tmp_path: Path) -> None:
    place = run(tmp_path, ET_SIM_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path / "xdg"))[4]
    assert Path(place).parent == tmp_path / "xdg" / "et-sim"


def test_an_unwritable_cache_directory_falls_back_to_a_private_temporary_one(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a directory")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    result = run(tmp_path, ET_SIM_CACHE_DIR=str(blocked), TMPDIR=str(temporary))
    assert result[1] == "12"
    place = Path(result[4])
    assert temporary in place.parents
    assert place.parent.stat().st_mode & 0o077 == 0


def test_without_compilation_functions_are_plain_python(tmp_path: Path) -> None:
    assert run(tmp_path, NUMBA_DISABLE_JIT="1")[:3] == ["True", "12", "True"]


def test_the_digest_follows_every_source_of_compiled_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "network" / "helper.py"
    helper.parent.mkdir()
    units = tmp_path / "units.py"
    units.write_text("")
    digests = set()
    monkeypatch.setattr(decorators, "_PACKAGE", tmp_path)
    for text in ("a = 1", "a = 2"):
        helper.write_text(text)
        digests.add(decorators.source_digest.__wrapped__())
    units.write_text("changed = True")
    digests.add(decorators.source_digest.__wrapped__())
    assert len(digests) == 3


def test_only_code_unused_for_a_month_is_forgotten(tmp_path: Path) -> None:
    old, new, other = tmp_path / ("0" * 16), tmp_path / ("a" * 16), tmp_path / "somebody-elses"
    for path in (old, new, other):
        path.mkdir()
        (path / "code").write_text("")
    long_ago = time.time() - 40 * 24 * 3600
    for path in (old, other):
        os.utime(path, (long_ago, long_ago))
    decorators._forget_unused(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([new.name, other.name])
