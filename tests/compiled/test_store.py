"""The store of machine code: its place, its name, and its removal."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from programs import run

from et_sim.compiled import store
from et_sim.compiled.sources import SOURCE_FILES, source_digest


def test_the_cache_is_below_the_users_cache_directory(tmp_path: Path) -> None:
    output = run("0", ET_SIM_COMPILE="never", ET_SIM_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert output.directory.parent == tmp_path / "xdg" / "et-sim"


def test_an_unwritable_cache_directory_falls_back_to_a_private_temporary_one(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a directory")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    output = run("0", ET_SIM_COMPILE="never", ET_SIM_CACHE_DIR=str(blocked), TMPDIR=str(temporary))
    assert output.result == 12
    assert temporary in output.directory.parents
    assert output.directory.parent.stat().st_mode & 0o077 == 0


def _package(folder: Path, helper: str = "a = 1", units: str = "") -> Path:
    (folder / "network").mkdir(parents=True)
    (folder / "network" / "helper.py").write_text(helper)
    (folder / "compiled").mkdir()
    (folder / "basics").mkdir()
    for name in SOURCE_FILES:
        (folder / name).write_text("")
    (folder / "basics" / "units.py").write_text(units)
    return folder


def test_the_digest_follows_every_source_of_compiled_code(tmp_path: Path) -> None:
    packages = [
        _package(tmp_path / "one"),
        _package(tmp_path / "two", helper="a = 2"),
        _package(tmp_path / "three", units="changed = True"),
    ]
    assert len(set(map(source_digest, packages))) == 3


def test_the_kept_digest_follows_every_source_even_with_its_size_and_time(tmp_path: Path) -> None:
    package, root = _package(tmp_path / "package"), tmp_path / "cache"
    helper = package / "network" / "helper.py"
    found = [store.kept_digest(root, package)]
    times = helper.stat().st_atime_ns, helper.stat().st_mtime_ns
    helper.write_text("a = 3")
    os.utime(helper, ns=times)
    source_digest.cache_clear()
    found.append(store.kept_digest(root, package))
    (package / "network" / "another.py").write_text("")
    source_digest.cache_clear()
    found.append(store.kept_digest(root, package))
    assert len(set(found)) == 3
    assert found[-1] == source_digest(package)


def test_the_digest_is_kept_for_unchanged_sources_and_made_again_from_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, root = _package(tmp_path / "package"), tmp_path / "cache"
    digest = store.kept_digest(root, package)
    [kept] = root.iterdir()
    kept.write_text("damaged")
    assert store.kept_digest(root, package) == digest
    monkeypatch.setattr(store, "source_digest", None)  # not read again
    assert store.kept_digest(root, package) == digest


def test_installs_of_the_same_version_share_the_cache(tmp_path: Path) -> None:
    here, there = _package(tmp_path / "here"), _package(tmp_path / "there" / "deeper")
    assert source_digest(here) == source_digest(there)


def test_other_sources_another_processor_or_numba_have_a_cache_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digests = [store.version_digest.__wrapped__()]
    monkeypatch.setattr(store, "kept_digest", lambda _: "other sources")
    digests.append(store.version_digest.__wrapped__())
    monkeypatch.setattr("et_sim.compiled.store.processor", lambda: "another +avx1024")
    digests.append(store.version_digest.__wrapped__())
    monkeypatch.setattr(store, "_version", lambda name: f"{name} 99")
    digests.append(store.version_digest.__wrapped__())
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    digests.append(store.version_digest.__wrapped__())
    assert len(set(digests)) == 5


def test_only_code_unused_for_a_month_is_forgotten(tmp_path: Path) -> None:
    old, new, other = tmp_path / ("0" * 16), tmp_path / ("a" * 16), tmp_path / "somebody-elses"
    for path in (old, new, other):
        path.mkdir()
        (path / "code").write_text("")
    long_ago = time.time() - 40 * 24 * 3600
    for path in (old, other):
        os.utime(path, (long_ago, long_ago))
    store._forget_unused(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([new.name, other.name])


def test_the_last_used_code_is_kept_if_there_is_too_much(tmp_path: Path) -> None:
    in_use = tmp_path / store.version_digest()[:16]
    used_long_ago = [in_use, *(tmp_path / (digit * 16) for digit in "0123")]
    for hours, path in enumerate(used_long_ago):
        path.mkdir()
        (path / "code").write_bytes(bytes(100))
        when = time.time() - 3600 * (10 - hours)
        os.utime(path, (when, when))
    store._forget_unused(tmp_path, most_bytes=250)
    assert sorted(tmp_path.iterdir()) == sorted([in_use, *used_long_ago[-2:]])
