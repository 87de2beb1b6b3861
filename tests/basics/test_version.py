"""`et-sim --version` names the commit and its date; `et-sim --help` shows every command under one heading."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from et_sim import version
from et_sim.cli import COMMANDS, main


def _printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_a_checkout_states_commit_and_date(tmp_path: Path) -> None:
    git = [
        "git",
        "-C",
        str(tmp_path),
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "init.defaultBranch=m",
    ]
    assert version.of_checkout(tmp_path) == ""
    for words in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "x", "--date", "2026-01-02T03:04:05Z"],
    ):
        subprocess.run(
            [*git, *words],
            check=True,
            env={"GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z", "PATH": "/usr/bin:/bin"},
        )
    assert version.of_checkout(tmp_path).endswith(", 2026-01-02")


def test_a_wheel_and_an_archive_state_their_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(version, "PACKAGE", tmp_path / "et_sim")
    monkeypatch.setattr(version, "ARCHIVED", "$Format" + ":%h, %cs$")
    assert _printed(["--version"], capsys) == f"et-sim {version.__version__}\n"
    monkeypatch.setattr(version, "ARCHIVED", "abc1234, 2026-01-02")
    assert _printed(["--version"], capsys) == f"et-sim {version.__version__} (abc1234, 2026-01-02)\n"
    (tmp_path / "et_sim").mkdir()
    (tmp_path / "et_sim" / "commit.txt").write_text("def5678, 2026-02-03\n", encoding="utf-8")
    assert _printed(["--version"], capsys) == f"et-sim {version.__version__} (def5678, 2026-02-03)\n"


def test_help_shows_every_command_under_one_heading(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _printed(["--help"], capsys).splitlines()
    shown = [line.split()[0] for line in lines if line.startswith("    ") and not line.startswith("     ")]
    assert shown == [name for group in COMMANDS.values() for name in group]
    assert [line.strip() for line in lines if line.strip() in COMMANDS] == list(COMMANDS)
