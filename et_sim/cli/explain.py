"""`et-sim explain`: what a key, a correction, a column, a part of a rank's time or an option means."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from et_sim.explain import Meaning, Option


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "explain",
        description="Say what a key of an input file, a correction, a table or column of a run, a part of a "
        "rank's time, or an option means, each of its meanings if it has several. Without KEY: list all.",
    )
    parser.add_argument("key", nargs="*", metavar="KEY", help="such as endpoint-delay or timeline.ready_ns")
    parser.add_argument("--json", action="store_true", help="print data instead of text")
    parser.words = "key"  # the name of an option is one
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what it means, or everything that has a meaning."""
    from msgspec import to_builtins

    from et_sim.explain import all_meanings, find

    meanings = all_meanings(_options(options.commands))
    if options.key:
        meanings = find(" ".join(options.key), meanings)
    if options.json:
        data = [to_builtins(meaning) for meaning in meanings]
        print(json.dumps(data, indent=2, ensure_ascii=False))
    elif options.key:
        print("\n\n".join(_told(meaning) for meaning in meanings))
    else:
        print("\n\n".join(_lists(meanings)))
        print("\net-sim explain NAME says what one of them means")
    return 0


def _told(meaning: Meaning) -> str:
    """One meaning as text."""
    lines = [f"{meaning.name}: {meaning.kind} ({meaning.place})", _indented(meaning.text)]
    wide = max(map(len, meaning.facts), default=0)
    lines += [_indented(fact, f"{name:<{wide}}  ") for name, fact in meaning.facts.items()]
    return "\n".join(lines)


def _lists(meanings: list[Meaning]) -> Iterator[str]:
    """The names, by what they are and where they stand; values are found by name only."""
    listed = [meaning for meaning in meanings if not meaning.kind.startswith("value of ")]
    for (kind, place), of_place in groupby(listed, lambda key: (key.kind, key.place)):
        names = ", ".join(dict.fromkeys(meaning.name for meaning in of_place))
        yield f"{kind} ({place})\n{_indented(names)}"


def _indented(text: str, begin: str = "") -> str:
    """A text below a heading, as wide as the terminal."""
    from et_sim.views.text import terminal_width

    begin = f"  {begin}"
    return textwrap.fill(
        text,
        terminal_width(),
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_on_hyphens=False,
    )


def _options(modules: Iterable[Any]) -> list[Option]:
    """Every option of every command; one that means the same for several stands once."""
    from et_sim.basics.command_line import Parser
    from et_sim.explain import Option

    commands: dict[tuple[str, str, str, str], list[str]] = {}
    parser = Parser(prog="et-sim")
    registered = parser.add_subparsers()
    for module in modules:
        module.add_parser(registered)
    for command, of_command in registered.choices.items():
        for action in of_command._actions:
            if action.option_strings and action.dest != "help":
                default = "" if action.default in (None, True, False) else str(action.default)
                allowed = ", ".join(map(str, action.choices or ()))
                known = (action.option_strings[-1], action.help or "", default, allowed)
                commands.setdefault(known, []).append(command)
    return [
        Option(name, tuple(where), text, default, allowed)
        for (name, text, default, allowed), where in commands.items()
    ]
