"""The command line `et-convert <command> …`, with one file per command in `converters.commands`.

A command module declares its options in `Options` and yields the lines to print in `run(options)`. Modules
are found by name, so a new command is a new file. Results go to stdout, everything else to stderr. Exit
status: 0 success, 2 bad input or usage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from converters import commands
from et_sim.basics.command_line import Parser, add_commands, interruptible
from et_sim.basics.declared_options import add_version
from et_sim.basics.errors import EtSimError, brief
from et_sim.basics.terminal import visible_streams
from et_sim.compiled.compile_status import CompileStatus
from et_sim.compiled.entry_points import watching_compilation
from et_sim.documents.recognise import CONVERTER, refuse_misplaced


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status of the process."""
    with visible_streams():
        try:
            options = _parser().parse_args(arguments)
            with interruptible(), watching_compilation(CompileStatus("et-convert")):
                refuse_misplaced(vars(options), CONVERTER.get(options.command, {}))
                for line in options.run(options):
                    print(line)
            sys.stdout.flush()
        except EtSimError as error:
            sys.stdout.flush()
            print(f"et-convert: error: {error}", file=sys.stderr)
            return error.exit_status
        except BrokenPipeError:  # the reader of stdout is gone, so a message would reach no reader
            sys.stderr.close()
            return 0
        except KeyboardInterrupt:
            print("et-convert: interrupted", file=sys.stderr)
            return 130
        except MemoryError:
            print("et-convert: error: not enough memory", file=sys.stderr)
            return 2
        except OSError as error:  # such as a full disk behind stdout; errors of files name the file
            print(f"et-convert: error: {brief(str(error))}", file=sys.stderr)
            return 2
        return 0


def _parser() -> Parser:
    parser = Parser(
        prog="et-convert",
        description="Convert workloads of other tools into execution traces, show traces, repair them.",
    )
    add_version(parser)
    registered = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    names = sorted(module.name for module in iter_modules(commands.__path__))
    modules = {name: import_module(f"{commands.__name__}.{name}") for name in names}
    add_commands(registered, {name.removeprefix("from_"): module for name, module in modules.items()})
    return parser
