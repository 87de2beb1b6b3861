"""Numba, set up once for the whole simulator: `@compiled` helpers and `@entry` functions.

`compiled` marks a function that only other compiled functions call; `entry` marks one that Python
calls, and keeps its machine code on disk between runs. Numba notices an edit only in the file of
the entry function itself, not in the files of the functions it calls, so the disk cache lives in
a directory named after a digest of every source file that may hold compiled code.

Invariant: with NUMBA_DISABLE_JIT=1 both decorators return the function they were given.

Not here: any compiled function. Importing this module does not import Numba.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_PACKAGE = Path(__file__).parents[1]
_SOURCE_FOLDERS = ("compiled", "trace", "plan", "network", "engine")
_SOURCE_FILES = ("units.py",)
_DIGEST_LENGTH = 16
_UNUSED_SECONDS = 30 * 24 * 3600


@overload
def compiled(function: Callable[Parameters, Result], /) -> Callable[Parameters, Result]: ...
@overload
def compiled(
    **options: Any,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]: ...
def compiled(function: Any = None, /, **options: Any) -> Any:
    """Mark a helper that is compiled into its compiled callers; Python calls it uncompiled.

    Options: `forceinline=True`; `allocates=False` for a function that creates no array (nor
    anything else on the heap), which spares the counting of references to its arguments: in a
    hot loop over many arrays that is most of the time. Others go to Numba.
    """
    if function is None:
        return functools.partial(_helper, options=_for_numba(options))
    return _helper(function, options=options)


@overload
def entry(function: Callable[Parameters, Result], /) -> Callable[Parameters, Result]: ...
@overload
def entry(
    **options: Any,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]: ...
def entry(function: Any = None, /, **options: Any) -> Any:
    """Compile a function that Python calls, keeping its machine code on disk (options: see `compiled`)."""
    if function is None:
        return functools.partial(_entry, options=_for_numba(options))
    return _entry(function, options=options)


def is_cached(function: Any, variants: int = 1) -> bool:
    """Whether that many variants of an `entry` function, by types of arguments, need no compilation."""
    if not hasattr(function, "py_func") or len(function.signatures) >= variants:
        return True
    code = function.py_func.__code__
    pattern = f"*.{function.__name__}-{code.co_firstlineno}.*"
    stored = [path.suffix for path in Path(function.stats.cache_path).glob(pattern)]
    return ".nbi" in stored and stored.count(".nbc") >= variants


@contextmanager
def telling_compilation(tell: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile, `tell` is given the name of each `entry` function when its compilation begins.

    One that is in the cache is not compiled; nor is one that was compiled for arguments of the same types.
    """
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            dispatcher = event.data["dispatcher"]
            if dispatcher.stats.cache_path is not None:  # of helpers, nothing is kept
                tell(dispatcher.py_func.__name__)

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield


@functools.cache
def cache_directory() -> Path:
    """The writable directory that holds the machine code of exactly these sources."""
    name = source_digest()[:_DIGEST_LENGTH]
    for root in (_chosen_root(), _temporary_root()):
        directory = root / name
        try:
            is_new = not directory.is_dir()
            directory.mkdir(parents=True, exist_ok=True)
            os.utime(directory)
            tempfile.TemporaryFile(dir=directory).close()
        except OSError:
            continue
        if is_new:
            _forget_unused(root)
        return directory
    return Path(tempfile.mkdtemp(prefix="et-sim-"))


@functools.cache
def source_digest() -> str:
    """Hash of everything that decides the machine code: sources, Numba, Python, checking mode."""
    import numba

    digest = hashlib.sha256()
    settings = (numba.__version__, platform.python_version(), str(_settings().BOUNDSCHECK))
    digest.update("\0".join(settings).encode())
    files = [path for folder in _SOURCE_FOLDERS for path in sorted((_PACKAGE / folder).rglob("*.py"))]
    for path in (*(_PACKAGE / name for name in _SOURCE_FILES), *files):
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(_PACKAGE)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _for_numba(options: dict[str, Any]) -> dict[str, Any]:
    """Our options in Numba's words."""
    rest = dict(options)
    return rest if rest.pop("allocates", True) else {**rest, "_nrt": False}


def _helper(function: Callable[..., Any], *, options: dict[str, Any]) -> Callable[..., Any]:
    from numba.extending import register_jitable

    if _settings().DISABLE_JIT:
        return function
    from et_sim.compiled.compile_once import HelperCompiler

    lean = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": HelperCompiler, **options}
    result: Callable[..., Any] = register_jitable(**lean)(function)
    return result


def _entry(function: Callable[..., Any], *, options: dict[str, Any]) -> Callable[..., Any]:
    import numba

    settings = _settings()
    if settings.DISABLE_JIT:
        return function
    # Numba decides where a function's cache lives when it is decorated, from this setting.
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(cache_directory())
    try:
        lean: dict[str, Any] = {"cache": True, "no_cfunc_wrapper": True, **options}
        result: Callable[..., Any] = numba.njit(**lean)(function)
    finally:
        settings.CACHE_DIR = before
    if options.get("_nrt") is False:
        _load_without_typing_rules(result)
    return result


def _load_without_typing_rules(function: Any) -> None:
    """Spare a quarter of a second at every start.

    Numba imports all its typing and lowering rules before it looks into the cache. Machine code that is
    found there, and allocates nothing, needs none of them; if none is found, Numba goes its usual way.
    """
    cache: Any = getattr(function, "_cache", None)
    if not hasattr(cache, "_load_overload"):
        return
    usual = cache.load_overload

    def load(signature: Any, context: Any) -> Any:
        try:
            found = cache._load_overload(signature, context) if is_cached(function) else None
        except Exception:  # a damaged file fails in as many ways as there are: compile again
            cache.flush()
            found = None
        return usual(signature, context) if found is None else found

    cache.load_overload = load


def _settings() -> Any:
    from numba.core import config

    return config


def _chosen_root() -> Path:
    """Where the user wants caches."""
    own = os.environ.get("ET_SIM_CACHE_DIR")
    if own:
        return Path(own).absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path("~/.cache").expanduser()).absolute() / "et-sim"


def _temporary_root() -> Path:
    """A per-user directory for when the chosen one cannot be written.

    The cache is executed, so a directory that somebody else owns or may write is never used.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    root = Path(tempfile.gettempdir()) / f"et-sim-{user}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        status = root.lstat()
    except OSError:
        return root
    is_private = root.is_dir() and not root.is_symlink() and not status.st_mode & 0o022
    if hasattr(os, "getuid") and (status.st_uid != user or not is_private):
        return Path(tempfile.mkdtemp(prefix="et-sim-"))
    return root


def _forget_unused(root: Path) -> None:
    """Remove the machine code of other versions that nobody used for a month."""
    oldest = time.time() - _UNUSED_SECONDS
    try:
        siblings = list(root.iterdir())
    except OSError:
        return
    for path in siblings:
        is_digest = len(path.name) == _DIGEST_LENGTH and set(path.name) <= set("0123456789abcdef")
        try:
            if is_digest and path.is_dir() and path.stat().st_mtime < oldest:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue
