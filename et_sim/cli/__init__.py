"""Command line: `et-sim <command> …`, one file per command.

Results go to stdout, everything else to stderr. Exit status: 0 success, 1 the simulation could not complete,
2 bad input or usage. Commands import their rooms when they run, so `--help` is fast.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from et_sim.basics.command_line import Parser, add_commands, interruptible
from et_sim.basics.declared_options import Command, add_version
from et_sim.basics.errors import EtSimError, brief
from et_sim.basics.terminal import visible_streams
from et_sim.cli.progress import UnreadError
from et_sim.compiled.compile_status import CompileStatus
from et_sim.compiled.entry_points import watching_compilation
from et_sim.documents.recognise import SIMULATOR, FileKind, kind_of, refuse_misplaced

# Commands and their purpose, by heading.
COMMANDS = {
    "make workloads": {
        "make": "write the traces of a microbenchmark, a training job or inference",
        "show": "draw the schedule of a workload or a run: the micro-batches of each rank over time",
        "plan": "compute the needs of a training job: memory, operations, traffic, bubble",
    },
    "run": {
        "run": "simulate a workload on a machine",
        "check": "find what would go wrong, without running",
        "serve": "serve requests that arrive over time: time to first token, time per token, throughput",
        "goodput": "follow a long job through failures: tokens, lost time, checkpoints, spares",
        "demo": "simulate a bundled example",
    },
    "look at results": {
        "inspect": "look at a run or a sweep",
        "report": "write a run or a sweep as an HTML page",
        "compare": "compare two runs, sweeps or workloads",
        "sql": "query the tables of a run in SQL",
        "export": "write a run's timeline for other viewers",
    },
    "many runs": {
        "sweep": "vary fields of a run's inputs, and compare the runs",
        "search": "find the best points of a sweep without trying all",
    },
    "machines and models": {
        "machine": "list preset machines, or write their files",
        "network": "describe or draw a network: devices, links, paths",
        "collective": "show the messages of a collective algorithm, or what a library chooses",
        "systolic": "time layers on a systolic array",
        "calibrate": "fit a machine to measurements",
        "validate": "compare predictions with measured kernels, collectives and iterations",
        "check-model": "test whether your own network model folds exactly",
    },
    "help": {
        "explain": "explain a key, column or option",
        "doctor": "test this installation",
        "serve-tools": "offer commands as tools to assistants (Model Context Protocol)",
    },
}

OBJECTS_BETWEEN_COLLECTIONS = 500_000
_HELP = {"-h", "--help"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit status of the process."""
    for stream in (sys.stdout, sys.stderr):  # terminals may lack characters
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    atexit.register(_freeze)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # or numpy starts a thread for each processor
    with _rare_collections(), visible_streams():
        return _run_command(arguments)


def _run_command(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["run"] and not _HELP.intersection(words):
        import numpy  # noqa: F401  # before msgspec, whose `typing_extensions` slows down this import
    options: Any = Command({})
    status = 0
    try:
        options = parser_of(words[:1]).parse_args(words)
        with interruptible(), watching_compilation(CompileStatus("et-sim")):
            status = carry_out(options)
        sys.stdout.flush()
    except EtSimError as error:
        print(f"et-sim: error: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError as gone:  # the reader of the output is gone, so a message would not be seen
        sys.stderr.close()
        return gone.status if isinstance(gone, UnreadError) else status
    except KeyboardInterrupt:
        print("et-sim: interrupted", file=sys.stderr)
        return 130
    except MemoryError as error:
        reason = str(error).partition(" for an array")[0]  # numpy adds details of its arrays
        reason = f" ({reason})" if reason else ""
        print(f"et-sim: error: this needs more memory than there is{reason}", file=sys.stderr)
        return 2
    except OSError as error:  # for example a full disk behind stdout; files name their own errors
        print(f"et-sim: error: {brief(str(error))}", file=sys.stderr)
        return 2
    except Exception as error:
        place = _mistake_in_model(options, error)
        if not place:
            raise
        print(f"et-sim: error: {place}: {type(error).__name__}: {brief(str(error))}", file=sys.stderr)
        return 2
    return status


def _mistake_in_model(options: Any, error: Exception) -> str:
    """Return the place in a user's network model that raised an exception; empty if another module did."""
    from et_sim.basics.own_modules import mistake_in

    given = (vars(options).get(name) for name in ("model", "models", "network_model", "compute_model"))
    for name in ",".join(filter(None, given)).split(","):
        file = name if name.endswith(".py") else getattr(sys.modules.get(name), "__file__", None)
        if file is not None and (place := mistake_in(Path(file), error)):
            return place
    return ""


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage rarely: Python's default takes a tenth of a short run."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.freeze()  # existing objects count as old, so the next collection skips them
        gc.unfreeze()
        gc.set_threshold(*before)


def _freeze() -> None:
    """Freeze all objects, so that no garbage is collected at exit; DuckDB requires the collection."""
    if "duckdb" not in sys.modules:
        gc.freeze()


def carry_out(options: Any) -> int:
    """Run the command; if it fails on the files of a run, report their damage."""
    refuse_misplaced(vars(options), SIMULATOR)
    given = [vars(options)[name] for name in ("directory", "a", "b") if name in vars(options)]
    runs = [path for path in given if kind_of(Path(path)) is FileKind.RUN]
    try:
        with _wrong_figures_refused() if runs else nullcontext():
            status: int = options.run(options)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError):
        from et_sim.views.run.directory import is_serving
        from et_sim.views.run.soundness import explain_damage

        for damage in filter(None, (explain_damage(path) for path in runs if not is_serving(path))):
            raise damage from None
        raise
    return status


def _wrong_figures_refused() -> AbstractContextManager[None]:
    """Raise on invalid values and overflow, which numpy would only warn about."""
    import numpy as np

    return np.errstate(invalid="raise", over="raise")


def parser_of(requested: Sequence[str]) -> Parser:
    """Return the parser of the named commands, or of all commands without their options."""
    parser = Parser(
        prog="et-sim",
        description="Simulate distributed machine-learning training from execution traces.",
    )
    add_version(parser)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", prog="et-sim", title="commands"
    )
    about = {name: text for group in COMMANDS.values() for name, text in group.items()}
    parser.groups = {heading: tuple(of) for heading, of in COMMANDS.items()}
    known = [name for name in requested if name in about]
    modules = {name: import_module(f"et_sim.cli.{name.replace('-', '_')}") for name in known}
    add_commands(commands, modules)
    for name in () if known else about:
        commands.add_parser(name, help=about[name])
    return parser
