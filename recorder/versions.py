"""Which versions of PyTorch can be recorded: the device and the modes use its inside, which changes.

Asked without importing PyTorch. Not here: what uses it (`recorder.process`).
"""

from __future__ import annotations

from importlib import metadata

from et_sim.basics.errors import UsageError

LEAST, BELOW = (2, 13), (2, 16)


def check_torch(*, force: bool) -> str:
    """The version that is installed; refuses none, and ones that nobody tried unless forced."""
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise UsageError(
            "PyTorch is not installed",
            remedy="install the extra: pip install 'et-sim[record]'; the wheel for CPUs is enough",
        ) from None
    if not is_supported(found) and not force:
        raise UsageError(
            f"PyTorch {found} is installed, and {_text(LEAST)} to below {_text(BELOW)} are supported",
            remedy="install one of these, or try with --force",
        )
    return found


def is_supported(version: str) -> bool:
    """Whether a version is one of those that recordings are tested with."""
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    return LEAST <= numbers < BELOW


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
