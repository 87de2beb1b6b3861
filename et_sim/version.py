"""The version of et-sim, and its commit."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"
ARCHIVED = "$Format:%h, %cs$"  # git archive fills it in
PACKAGE = Path(__file__).parent


def commit() -> str:
    """Return commit and date from the wheel, the archive or the checkout; empty if none has them."""
    kept = PACKAGE / "commit.txt"  # in wheels
    if kept.is_file():
        return kept.read_text(encoding="utf-8").strip()
    return ARCHIVED if "%" not in ARCHIVED else of_checkout(PACKAGE.parent)


def of_checkout(folder: Path) -> str:
    """Return the commit that is checked out in a folder; empty without git."""
    import subprocess

    if not (folder / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), "log", "-1", "--format=%h, %cs"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
