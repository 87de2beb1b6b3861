"""The command line: `et-sim <command> …`; one file per command.

Results go to stdout, everything else to stderr. Exit status: 0 success, 1 the simulation could not
complete, 2 bad input or usage. Commands import their rooms when they run, so that `--help` is instant.
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
from et_sim.documents.recognise import SIMULATOR, Kind, kind_of, refuse_misplaced

# Of each heading: the commands, and what they are for.
COMMANDS = {
    "make workloads": {
        "make": "write the traces of a microbenchmark, a training job or inference",
        "show": "draw the schedule of a workload or a run: which micro-batch a rank works on when",
        "plan": "what a training job needs: memory, operations, traffic, bubble",
    },
    "run": {
        "run": "simulate a workload on a machine",
        "check": "find what would go wrong, without running",
        "serve": "serve requests that arrive over time: time to first token, time per token, throughput",
        "demo": "simulate a bundled example",
    },
    "look at results": {
        "inspect": "look at a run or a sweep",
        "report": "write a run or a sweep as an HTML page",
        "compare": "what got slower or faster from one run or sweep to another, or what a workload does more",
        "sql": "ask a run's tables a question in SQL",
        "export": "write a run's timeline for other viewers",
    },
    "many runs": {
        "sweep": "vary fields of a run's inputs, and compare the runs",
        "search": "find the best points of a sweep without trying all",
    },
    "machines and models": {
        "machine": "list preset machines, or write their files",
        "network": "what a network is: devices, links, ways, and a picture",
        "collective": "show the messages of a collective algorithm, or what a library chooses",
        "systolic": "time layers on a systolic array",
        "calibrate": "fit a machine to measurements",
        "validate": "hold predictions against measured kernels, collectives and iterations",
        "check-model": "does a network model of yours fold exactly",
    },
    "help": {
        "explain": "what a key, column or option means",
        "doctor": "is this installation well",
    },
}

OBJECTS_BETWEEN_COLLECTIONS = 500_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the process's exit status."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a character shows another
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    atexit.register(_freeze)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # or numpy starts a thread for each processor
    with _rare_collections(), visible_streams():
        return _obey(arguments)


def _obey(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
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
    except BrokenPipeError as gone:  # the reader of the output has gone, and nobody would see a message
        sys.stderr.close()
        return gone.status if isinstance(gone, UnreadError) else status
    except KeyboardInterrupt:
        print("et-sim: interrupted", file=sys.stderr)
        return 130
    except MemoryError as error:
        reason = str(error).partition(" for an array")[0]  # what numpy adds is about its arrays
        reason = f" ({reason})" if reason else ""
        print(f"et-sim: error: this needs more memory than there is{reason}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk behind stdout, for one; files name their own errors
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
    """Return the place in a network model of the user's that an exception comes from; empty: it comes from
    none.
    """
    from et_sim.network.registry import mistake_in

    given = (vars(options).get(name) for name in ("model", "models", "network_model"))
    for name in ",".join(filter(None, given)).split(","):
        file = name if name.endswith(".py") else getattr(sys.modules.get(name), "__file__", None)
        if file is not None and (place := mistake_in(Path(file), error)):
            return place
    return ""


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Python looks for cycles at every 700th object, which takes a tenth of a short run; here, rarely."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.freeze()  # and back: all that is there counts as old, or it would be looked through now
        gc.unfreeze()
        gc.set_threshold(*before)


def _freeze() -> None:
    """Python would look for cycles among all that is freed with the process; DuckDB asks for that."""
    if "duckdb" not in sys.modules:
        gc.freeze()


def carry_out(options: Any) -> int:
    """Run the command; where it fails over the files of a run, say what is wrong with these."""
    refuse_misplaced(vars(options), SIMULATOR)
    given = [vars(options)[name] for name in ("directory", "a", "b") if name in vars(options)]
    runs = [path for path in given if kind_of(Path(path)) is Kind.RUN]
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
    """What numpy would warn of and go on: figures of a run that make no number together."""
    import numpy as np

    return np.errstate(invalid="raise", over="raise")


def parser_of(asked: Sequence[str]) -> Parser:
    """Of the commands that are asked for, or what all are called if there are none of these."""
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
    known = [name for name in asked if name in about]
    modules = {name: import_module(f"et_sim.cli.{name.replace('-', '_')}") for name in known}
    add_commands(commands, modules)
    for name in () if known else about:
        commands.add_parser(name, help=about[name])
    return parser
