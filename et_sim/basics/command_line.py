"""Command lines: refusals of arguments, a Ctrl-C that reliably ends a command, and processors.

Python raises an interruption in the code that runs at that moment. Destructors drop exceptions, and so does
NumPy while it reads an attribute of an object: of a hundred interruptions of a sweep, one was lost. So the
interruption is raised again, unless an exception is being handled: then the command is ending or cleaning up.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NoReturn

from et_sim.basics.declared_options import Command, declare
from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.starting import end_start
from et_sim.basics.terminal import columns_of_terminal


class _Groups(argparse.HelpFormatter):
    """Help with commands under headings."""

    groups: Mapping[str, Sequence[str]]

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        self._indent()
        help_of = {
            subaction.dest: super(_Groups, self)._format_action(subaction)
            for subaction in action._get_subactions()
        }
        self._dedent()
        return "\n".join(
            f"  {title}\n{''.join(help_of.get(name, '') for name in names)}"
            for title, names in self.groups.items()
        )


class Parser(argparse.ArgumentParser):
    """The parser of a program, and of each of its commands."""

    groups: Mapping[str, Sequence[str]] = MappingProxyType({})  # names of commands by heading
    given: Sequence[str] = ()
    declared: type[Command] = Command

    def declare(self, declared: type[Command], run: Callable[[Any], Any] | None) -> None:
        """Declare the arguments of a class, and the function that runs the command."""
        self.declared, self.epilog = declared, declared.epilog
        self.allow_abbrev = False  # --micro-batch would set --micro-batches
        self.description = declared.description or declared.__doc__
        if declared.description:
            self.formatter_class = argparse.RawDescriptionHelpFormatter
        declare(self, declared)
        self.set_defaults(run=run, command_parser=self)
        if declared.commands:
            add_commands(self.add_subparsers(metavar="SUBJECT", required=True), declared.commands)

    def _get_formatter(self) -> argparse.HelpFormatter:
        kind: Any = _Groups if self.groups else self.formatter_class
        formatter: argparse.HelpFormatter = kind(prog=self.prog, width=columns_of_terminal() - 2)
        if isinstance(formatter, _Groups):
            formatter.groups = self.groups
        return formatter

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse like argparse, and keep the arguments."""
        self.given = list(args) if args is not None else self.given
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse like argparse, and refuse an unknown option with the nearest one."""
        parsed, unknown = self.parse_known_args(args, namespace)
        values = vars(parsed)
        chosen: Parser = values.pop("command_parser", self)
        free = chosen.declared.free
        if unknown and free:
            values[free] = [*values[free], *unknown]
        elif unknown and not chosen._takes_late(values, unknown):
            chosen._refuse_options(unknown)
            flag = chosen._switch_before(unknown[0])
            chosen._refuse(
                f"{unknown[0]!r} is one argument too many",
                f"{flag} has no value" if flag else "put a text with spaces in quotes",
            )
        return chosen.declared(values)

    def _takes_late(self, values: dict[str, Any], unknown: Sequence[str]) -> bool:
        """Return whether a single word is the last argument; argparse expects that before the options."""
        late, word = self.declared.late, unknown[0]
        if not late or values[late] is not None or len(unknown) > 1 or word.startswith("-"):
            return False
        self._check_value(next(action for action in self._actions if action.dest == late), word)
        values[late] = word
        return True

    def _switch_before(self, word: str) -> str:
        """Return the option without a value that precedes a word; empty if there is none."""
        before = self.given[: self.given.index(word)][-1:] if word in self.given else ()
        for option in before:
            action = self._option_string_actions.get(option)
            if action is not None and action.nargs == 0:
                return option
        return ""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments for argparse; a missing one may be misspelt."""
        if "required" in message:
            self._refuse_options(self.given)
        self._refuse(
            message.removeprefix("argument ").replace("expected one argument", "its value is missing")
        )

    def _refuse_options(self, words: Sequence[str]) -> None:
        """Refuse the first unknown option, if there is one."""
        known = tuple(self._option_string_actions)
        for word in words:
            name = word.partition("=")[0]
            if name.startswith("--") and len(name) > 2 and name not in known:
                self._refuse(f"there is no option {name}", did_you_mean(name, known))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        argument = "/".join(action.option_strings) or str(action.metavar or action.dest).lower()
        listed = f"there are {', '.join(choices)}"
        self._refuse(f"there is no {argument} {str(value)!r}", did_you_mean(str(value), choices) or listed)

    def _refuse(self, message: str, remedy: str = "") -> NoReturn:
        raise UsageError(message, remedy="; ".join(filter(None, (remedy, f"see {self.prog} --help"))))


def add_commands(parsers: Any, modules: Mapping[str, Any]) -> None:
    """Register commands; each has a module with `Options`, which declares it, and `run`.

    The list of commands shows the first line of the module's docstring.
    """
    for name, module in modules.items():
        parser = parsers.add_parser(name, help=module.__doc__.splitlines()[0].partition("`: ")[2].rstrip("."))
        parser.declare(module.Options, getattr(module, "run", None))


def options_of(program: Parser) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each option of each command: the command; name, help, default and allowed values."""
    of_program = (action for action in program._actions if isinstance(action, argparse._SubParsersAction))
    for command, parser in next(of_program).choices.items():
        for action in parser._actions:
            if action.option_strings and action.dest != "help" and action.help != argparse.SUPPRESS:
                default = "" if action.default in (None, True, False) else str(action.default)
                allowed = ", ".join(map(str, action.choices or ()))
                yield command, (action.option_strings[-1], action.help or "", default, allowed)


AGAIN_SECONDS = 0.1


@contextmanager
def interruptible() -> Iterator[None]:
    """Make Ctrl-C end the enclosed command; another handler of Ctrl-C is kept."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main:
        end_start()
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_main or not is_usual or not hasattr(signal, "setitimer"):  # Windows has no timers
        yield
        return
    was_pressed = False

    def press(*_: object) -> None:
        nonlocal was_pressed
        was_pressed = True
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
        raise KeyboardInterrupt

    def remind(*_: object) -> None:
        if sys.exc_info()[1] is None:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, remind)
    signal.signal(signal.SIGINT, press)
    try:
        yield
        if was_pressed:
            raise KeyboardInterrupt
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, before)


def processors() -> int:
    """Return how many processors this process may use, and so how many more it may start at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
