"""The version of et-sim, and the commit that it is made of."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"
ARCHIVED = "$Format:%h, %cs$"  # which git archive fills in
PACKAGE = Path(__file__).parent


def commit() -> str:
    """Commit and date, as the wheel, the archive or the checkout says; empty if none does."""
    kept = PACKAGE / "commit.txt"  # in wheels
    if kept.is_file():
        return kept.read_text(encoding="utf-8").strip()
    return ARCHIVED if "%" not in ARCHIVED else of_checkout(PACKAGE.parent)


def of_checkout(folder: Path) -> str:
    """Of the commit that is checked out there, if git knows."""
    import subprocess

    if not (folder / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), "log", "-1", "--format=%h, %cs"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
