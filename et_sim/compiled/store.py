"""Machine code on disk, shared by all installs of the same version: found by content, never by path.

Everything that determines the code of a version is in the name of its directory: sources, Numba, LLVM,
Python, processor and settings of Numba. A file in it holds one entry function, compiled for one signature.
Files are written elsewhere and then moved into place; a damaged one counts as missing and is made again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from et_sim.basics.files import remove_folder
from et_sim.compiled.ownership import check_folder, distrust, read_own
from et_sim.compiled.signature import modules_of
from et_sim.compiled.sources import PACKAGE, is_covered, source_digest, source_stamp

CPU_INFO = Path("/proc/cpuinfo")
FIRST_BYTES = 8192  # more than one processor's entry; hundreds of entries are slow to generate
DECISIVE = (
    *("vendor_id", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)


def processor(told: Path = CPU_INFO) -> str:
    """Return the features that the machine code of this host may use."""
    try:
        with told.open("rb", buffering=0) as file:
            text = file.read(FIRST_BYTES).decode(errors="replace")
    except OSError:
        text = ""
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    found = {key.strip(): value.strip() for key, _, value in pairs}
    if not ("flags" in found or "Features" in found):
        from et_sim.compiled.llvm import processor as processor_by_llvm

        return processor_by_llvm()
    return "\n".join(f"{key} {found[key]}" for key in DECISIVE if key in found)


SETTINGS = ("NUMBA_BOUNDSCHECK", "NUMBA_OPT", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
ENDING = ".code"
_DIGEST_LENGTH = 16
_UNUSED_SECONDS = 30 * 24 * 3600
_KEPT_BYTES = 500_000_000
_PRIVATE = 0o700  # for any umask


def code_path(function: Callable[..., Any], signature: tuple[Any, ...]) -> Path:
    """Return the path of the machine code of a function for a signature, which may not exist."""
    digest = hashlib.sha256(f"{function.__module__}\0{function.__qualname__}\0".encode())
    for module in sorted({function.__module__, *modules_of(signature)}):
        source = _source_of(module)
        if source is not None and not is_covered(Path(source)):
            digest.update(Path(source).read_bytes())
    digest.update(_text_of(signature).encode())
    return cache_directory() / f"{function.__name__}-{digest.hexdigest()[:_DIGEST_LENGTH]}{ENDING}"


def _source_of(module: str) -> str | None:
    """Return the file of a module, imported or not."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    found = find_spec(module)
    return None if found is None else found.origin


def write_code(path: Path, symbol: str, returns: bool, content: bytes) -> None:
    """Write machine code, so that concurrent readers find all of it or none."""
    head = {"for": _own_name(path), "symbol": symbol, "returns": returns, "check": zlib.crc32(content)}
    write_whole(path, json.dumps(head).encode() + b"\n" + content)


def read_code(path: Path) -> tuple[str, bool, bytes] | None:
    """Return symbol, whether it returns a number, and object file; or None.

    A file that is damaged, or was made for something else, is removed; one that others can write is not read.
    """
    try:
        head, _, content = read_own(path).partition(b"\n")
        about = json.loads(head)
        if about["for"] == _own_name(path) and about["check"] == zlib.crc32(content):
            return about["symbol"], about["returns"], content
    except OSError:
        return None
    except (ValueError, KeyError, TypeError):
        pass
    path.unlink(missing_ok=True)
    return None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it never exists in part."""
    from tempfile import mkstemp

    handle, name = mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@functools.cache
def cache_directory() -> Path:
    """Return the writable directory that holds the machine code of exactly this version.

    Its files are executed: one that others can write, or whose root they can write, is refused.
    """
    name = version_digest()[:_DIGEST_LENGTH]
    for root_of in (chosen_root, _temporary_root):
        root = root_of()
        directory = (root / name).resolve()
        try:
            is_new = not directory.is_dir()
            root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            directory.mkdir(mode=_PRIVATE, exist_ok=True)
            for folder in (directory.parent, directory):
                check_folder(folder)
            os.utime(directory)
        except OSError:
            continue
        if not os.access(directory, os.W_OK | os.X_OK):
            continue
        if is_new:
            _forget_unused(root)
        return directory
    return _new_folder()


def _new_folder() -> Path:
    from tempfile import mkdtemp

    return Path(mkdtemp(prefix="et-sim-"))


@functools.cache
def version_digest() -> str:
    """Return a hash of everything that determines the machine code of all functions."""
    digest = hashlib.sha256()
    versions = (platform.python_version(), sys.platform, processor(), *map(_version, ("numba", "llvmlite")))
    settings = (os.environ.get(name, "") for name in SETTINGS)
    digest.update("\0".join((*versions, *settings, kept_digest(chosen_root()))).encode())
    return digest.hexdigest()


def kept_digest(root: Path, package: Path = PACKAGE) -> str:
    """Return the hash of all sources of a package; a file keeps it until one of them is written."""
    kept = root / f"sources-{hashlib.sha256(str(package).encode()).hexdigest()[:_DIGEST_LENGTH]}"
    stamp = source_stamp(package)
    with suppress(OSError, ValueError):
        of, digest = read_own(kept).decode().split()
        if of == stamp:
            return digest
    digest = source_digest(package)
    with suppress(OSError):
        root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        write_whole(kept, f"{stamp} {digest}".encode())
    return digest


def _version(package: str) -> str:
    """Return the version of a package without importing it, as the text of its version file."""
    found = find_spec(package)
    if found is None or found.origin is None:
        return "missing"
    told = Path(found.origin).with_name("_version.py")
    if told.exists():
        return told.read_text(encoding="utf-8")
    from importlib.metadata import version

    return version(package)


def _own_name(path: Path) -> str:
    """Return the name of a file among the files of all versions."""
    return f"{path.parent.name}/{path.name}"


@functools.cache
def _text_of(signature: tuple[Any, ...]) -> str:
    """Return a signature as text that is the same in every process."""
    return _described(signature)


def _described(kind: Any) -> str:
    return f"({','.join(map(_described, kind))})" if isinstance(kind, tuple) else _named(kind)


@functools.lru_cache(maxsize=None, typed=True)
def _named(kind: Any) -> str:
    if isinstance(kind, type):
        return f"{kind.__module__}.{kind.__qualname__}"
    return str(kind) if getattr(kind, "fields", None) is None else _record_text(kind)


def _record_text(dtype: Any) -> str:
    """Return the fields of a record, their types and places; the text of NumPy takes ten times as long."""
    fields = (f"{name} {_named(part)} {at}" for name, (part, at, *_) in dtype.fields.items())
    return f"{{{','.join(fields)} {dtype.itemsize} {dtype.isalignedstruct}}}"


def chosen_root() -> Path:
    """Return the directory for caches that the user has chosen."""
    own = os.environ.get("ET_SIM_CACHE_DIR")
    if own:
        return Path(own).absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path("~/.cache").expanduser()).absolute() / "et-sim"


def _temporary_root() -> Path:
    """Return a directory of the user for when the chosen one cannot be written.

    In a directory that all users can write, another user may have created it: then it is a new one each time.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    from tempfile import gettempdir

    root = Path(gettempdir()) / f"et-sim-{user}"
    try:
        root.mkdir(mode=_PRIVATE, exist_ok=True)
        is_own = root.is_dir() and not root.is_symlink() and not distrust(root.lstat())
    except OSError:
        return root
    return root if is_own else _new_folder()


def _forget_unused(root: Path, most_bytes: int = _KEPT_BYTES) -> None:
    """Remove the machine code of other versions that was not used for a month, or exceeds the limit.

    The last used are kept, and the version in use always is.
    """
    oldest = time.time() - _UNUSED_SECONDS
    kept = 0
    for used, directory in sorted(versions_in(root), reverse=True):
        kept += size_of(directory)
        if used < oldest or (kept > most_bytes and directory.name != version_digest()[:_DIGEST_LENGTH]):
            remove_folder(directory)


def versions_in(root: Path) -> list[tuple[float, Path]]:
    """Return when each version's directory was used last."""
    found = []
    with suppress(OSError):
        for path in root.iterdir():
            is_digest = len(path.name) == _DIGEST_LENGTH and set(path.name) <= set("0123456789abcdef")
            with suppress(OSError):
                if is_digest and path.is_dir():
                    found.append((path.stat().st_mtime, path))
    return found


def size_of(directory: Path) -> int:
    """Return bytes of all files in a directory."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total
