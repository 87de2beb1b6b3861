"""Code that comes with a wheel is used without Numba, and only if it is complete and of the same sources."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import llvmlite
import llvmlite.binding
import pytest
from programs import FOLDER, REPOSITORY, Said, run, wait_until_made

from et_sim.compiled import ship, shipped
from et_sim.compiled.entry_points import SHIPPED_SECONDS
from et_sim.compiled.llvm import bitcode, object_code
from et_sim.compiled.sources import PACKAGE
from et_sim.machine.congestion import ROCE, TCP
from et_sim.machine.protocol_presets import PRESETS
from et_sim.network import registry

NO_NUMBA = "raise ModuleNotFoundError('there is no Numba here', name='numba')\n"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive with one of the two functions of the small program that can be compiled."""
    folder = tmp_path_factory.mktemp("shipped")
    program = [sys.executable, str(FOLDER / "small_program.py"), "0"]
    paths = os.pathsep.join([str(PACKAGE.parent), str(FOLDER)])
    command = [sys.executable, "-m", "et_sim.compiled.ship", str(folder), *program]
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True)
    return folder / shipped.ARCHIVE


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder with the package as a wheel installs it, beside a Numba that cannot be imported."""
    site = tmp_path / "site"
    shutil.copytree(PACKAGE, site / "et_sim", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "numba").mkdir()
    (site / "numba" / "__init__.py").write_text(NO_NUMBA)
    (site / "numba" / "_version.py").write_text("")
    return site


def _bring(archive: Path, site: Path) -> Path:
    return Path(shutil.copy(archive, site / "et_sim" / "compiled"))


def _run_in(site: Path, seconds: float = SHIPPED_SECONDS + 1, **environment: str) -> Said:
    paths = os.pathsep.join([str(site), str(FOLDER)])
    return run(str(seconds), PYTHONPATH=paths, ET_SIM_CACHE_DIR=str(site.parent / "cache"), **environment)


@pytest.mark.deep
def test_a_first_run_uses_shipped_code_without_numba(archive: Path, installed: Path) -> None:
    _bring(archive, installed)
    output = _run_in(installed)
    assert (output.was_compiled, output.result, output.is_compiled, output.errors) == (False, 12, True, "")
    assert [path.suffix for path in output.directory.iterdir()] == [".code"]


@pytest.mark.deep
def test_a_very_short_first_run_is_interpreted_and_the_next_one_uses_shipped_code(
    archive: Path, installed: Path
) -> None:
    _bring(archive, installed)
    output = _run_in(installed, seconds=0)
    assert (output.was_compiled, output.result) == (False, 12)
    wait_until_made(output.directory)
    assert _run_in(installed, seconds=0).was_compiled


@pytest.mark.deep
def test_code_made_of_it_is_kept(archive: Path, installed: Path) -> None:
    brought = _bring(archive, installed)
    assert _run_in(installed).is_compiled
    brought.unlink()
    assert _run_in(installed).was_compiled


@pytest.mark.deep
def test_an_archive_has_only_code_that_the_program_lacked(archive: Path) -> None:
    with ZipFile(archive) as file:
        [name] = file.namelist()
    assert name.startswith("quadrupled_sum-")


FORMS = 25
NAME_WHAT_IS_ORDERED = """
import sys
from pathlib import Path
from et_sim.compiled import ship
print(*(order.function for order in ship._ordered_by(ship._all_kinds(Path(sys.argv[1])))))
"""


def test_all_network_models_are_shipped() -> None:
    assert set(ship.NETWORKS) == set(registry.MODELS)


def test_all_congestion_controls_are_shipped() -> None:
    chosen = [re.search(r"preset: (\w+).*control: (\w+)", network) for network in ship.CONTROLS]
    names = [(found[1], found[2]) for found in chosen if found]
    roce, tcp = PRESETS["datacenter"].packets.control, PRESETS["tcp"].packets.tcp
    assert tcp is not None
    assert names == [
        *(("datacenter", name) for name in ROCE if name != roce.algorithm),
        *(("tcp", name) for name in TCP if name != tcp.control),
    ]


@pytest.mark.exhaustive
def test_the_engine_is_shipped_in_all_its_forms_and_there_are_not_more(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    variables = {
        "PYTHONPATH": str(REPOSITORY),
        "ET_SIM_CACHE_DIR": str(tmp_path / "cache"),
        "ET_SIM_COMPILE": "background",
    }
    command = [sys.executable, "-c", NAME_WHAT_IS_ORDERED, str(tmp_path)]
    ended = subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True)
    wanted = Counter(ended.stdout.decode().split())
    assert wanted["simulate"] == FORMS
    assert wanted.keys() >= {"decode_records", "join_spans", "connect", "replay_times", "write_rows"}


AARCH64 = 183  # the number of the family in an ELF file


@pytest.mark.deep
def test_the_same_archive_is_for_another_family_of_processors(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    target = llvmlite.binding.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(jit=True)
    monkeypatch.setattr("et_sim.compiled.llvm._target", lambda: target)
    with ZipFile(archive) as file:
        [made] = (object_code(file.read(name).partition(b"\n")[2]) for name in file.namelist())
    assert (made[:4], made[18]) == (b"\x7fELF", AARCH64)


def test_bitcode_of_one_family_is_refused() -> None:
    call = "call void @llvm.x86.sse2.pause()"
    code = bitcode(f"declare void @llvm.x86.sse2.pause() define void @wait() {{ {call} ret void }}")
    with pytest.raises(ValueError, match=r"llvm\.x86\.sse2\.pause"):
        object_code(code)


def test_code_that_was_not_shipped_is_interpreted_without_numba_and_the_package_is_named(
    installed: Path,
) -> None:
    output = _run_in(installed, ET_SIM_COMPILE="now")
    assert (output.was_compiled, output.result) == (False, 12)
    assert "takes longer: numba is not installed (pip install 'et-sim[compile]')" in output.errors


@pytest.mark.deep
def test_nothing_is_taken_while_numbas_settings_are_changed(archive: Path, installed: Path) -> None:
    _bring(archive, installed)
    assert not _run_in(installed, NUMBA_BOUNDSCHECK="1", ET_SIM_COMPILE="never").was_compiled
    output = _run_in(installed, NUMBA_BOUNDSCHECK="1", ET_SIM_COMPILE="background")
    assert (output.was_compiled, output.result) == (False, 12)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _spoil_a_member(path: Path) -> None:
    with ZipFile(path) as file:
        [info] = file.infolist()
    content = bytearray(path.read_bytes())
    middle = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
    content[middle : middle + 8] = bytes(byte ^ 0xFF for byte in content[middle : middle + 8])
    path.write_bytes(content)


def _set_other_sources(path: Path) -> None:
    with ZipFile(path, "a") as file:
        file.comment = b"0" * 64


@pytest.mark.deep
@pytest.mark.parametrize("spoil", [_cut, _spoil_a_member, _set_other_sources])
def test_an_archive_that_is_damaged_or_of_other_sources_is_ignored(
    spoil: Any, archive: Path, installed: Path
) -> None:
    spoil(_bring(archive, installed))
    output = _run_in(installed, ET_SIM_COMPILE="background")
    assert (output.was_compiled, output.result) == (False, 12)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("spoil", "why"),
    [(_cut, shipped.DAMAGED), (_set_other_sources, shipped.OF_OTHER_SOURCES), (Path.unlink, shipped.NONE)],
)
def test_an_unusable_archive_is_reported(spoil: Any, why: str, archive: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(archive, tmp_path))
    assert shipped.fault(copy) == ""
    spoil(copy)
    assert shipped.fault(copy) == why
    assert not shipped.names_in(copy)


def test_the_report_on_shipped_code_names_its_number_or_why_it_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / shipped.ARCHIVE
    monkeypatch.setattr(shipped, "_archive", lambda: path)
    assert shipped.shipped_code_text() == "nothing; code is compiled on this machine"
    shipped.write_archive(path, {"one": b"1", "two": b"2"})
    assert shipped.shipped_code_text() == "2 kinds of code"
    for spoil, why in ((_set_other_sources, "of other sources"), (_cut, "damaged")):
        spoil(path)
        assert shipped.shipped_code_text() == f"{shipped.ARCHIVE}, {why}: ignored"


def _hook(name: str, folder: Path | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a hook of the build, with stand-ins for the modules of Hatchling."""
    if folder is None:
        monkeypatch.delenv("ET_SIM_SHIPPED", raising=False)
    else:
        monkeypatch.setenv("ET_SIM_SHIPPED", str(folder))
    interface: Any = ModuleType("interface")
    interface.BuildHookInterface, interface.MetadataHookInterface = {Any: object}, object
    for module in ("hatchling.builders.hooks.plugin.interface", "hatchling.metadata.plugin.interface"):
        monkeypatch.setitem(sys.modules, module, interface)
    hook = runpy.run_path(str(REPOSITORY / "hatch_build.py"))[name]()
    hook.root = str(PACKAGE.parent)
    return hook


def _forced_into_the_wheel(folder: Path | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files that the build hook adds, without the commit."""
    hook = _hook("Hook", folder, monkeypatch)
    data: dict[str, Any] = {"force_include": {}}
    hook.initialize("standard", data)
    hook.finalize("standard", data, "")
    return sorted(set(data["force_include"].values()) - {"et_sim/commit.txt"})


@pytest.mark.deep
def test_a_release_wheel_has_the_archive_and_nothing_else_of_its_folder(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(archive, tmp_path)
    (tmp_path / "quadrupled_sum-0123.code").write_text("of a cache")
    result = _forced_into_the_wheel(tmp_path, monkeypatch)
    assert result == [f"et_sim/compiled/{shipped.ARCHIVE}"]


@pytest.mark.deep
def test_a_release_wheel_needs_the_reader_of_its_code_and_any_other_the_compiler(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, needed in ((archive.parent, f"llvmlite>={llvmlite.__version__}"), (None, "numba>=1")):
        hook, metadata = _hook("Needs", folder, monkeypatch), {"optional-dependencies": {"dev": ["pytest"]}}
        hook.config = {"compiler": "numba>=1", "dependencies": ["numpy"]}
        hook.update(metadata)
        extras = {"dev": ["pytest"], "compile": ["numba>=1"]}
        assert metadata == {"dependencies": ["numpy", needed], "optional-dependencies": extras}


def test_any_other_wheel_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _forced_into_the_wheel(None, monkeypatch) == []


@pytest.mark.deep
def test_a_release_wheel_without_archive_or_with_one_of_other_sources_is_not_built(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="no archive"):
        _forced_into_the_wheel(tmp_path, monkeypatch)
    _set_other_sources(Path(shutil.copy(archive, tmp_path)))
    with pytest.raises(ValueError, match="of other sources"):
        _forced_into_the_wheel(tmp_path, monkeypatch)
