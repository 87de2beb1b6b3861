"""The command line: `et-sim <command> …`; one file per command.

Results go to stdout, everything else to stderr. Exit status: 0 success, 1 the simulation could not
complete, 2 bad input or usage. Commands import their rooms when they run, so that `--help` is instant.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

from et_sim.cli import check, collective, compare, demo, export, inspect, make, report, run, sql
from et_sim.compiled.entry_points import telling_compilation
from et_sim.compiled.telling import Lines
from et_sim.errors import EtSimError
from et_sim.version import __version__

COMMANDS = (run, check, inspect, sql, compare, export, report, collective, make, demo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the process's exit status."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a character shows another
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    options = _parser().parse_args(arguments)
    try:
        with telling_compilation(Lines("et-sim")):
            status: int = options.run(options)
        sys.stdout.flush()
    except EtSimError as error:
        print(f"et-sim: error: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:  # the reader of our output has gone: nobody is left to tell
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("et-sim: interrupted", file=sys.stderr)
        return 130
    except MemoryError as error:
        reason = str(error).partition(" for an array")[0]  # what numpy adds is about its arrays
        reason = f" ({reason})" if reason else ""
        print(f"et-sim: error: this needs more memory than there is{reason}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk behind stdout, for one; files name their own errors
        print(f"et-sim: error: {error}", file=sys.stderr)
        return 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="et-sim",
        description="Simulate distributed machine-learning training from execution traces.",
    )
    parser.add_argument("--version", action="version", version=f"et-sim {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
