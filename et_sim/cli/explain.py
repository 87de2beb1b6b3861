"""`et-sim explain`: explain a key, a correction, a column, a part of a rank's time or an option."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

from et_sim.basics.command_line import options_of
from et_sim.basics.declared_options import Argument, Command
from et_sim.cli.options import Json

if TYPE_CHECKING:
    from et_sim.explain import CommandOption, Meaning


class Options(Command):
    """Explain a key of an input file, a correction, a table or column of a run, a part of a rank's time, or
    an option, with each of its meanings if it has several. Without KEY: list all.
    """

    free = "key"  # the name of an option may follow

    key: Annotated[Sequence[str], "such as endpoint-delay or timeline.ready_ns", "KEY", Argument()] = ()
    json: Json = False


def run(options: Options) -> int:
    """Print the meaning of a name, or everything that has one."""
    from msgspec import to_builtins

    from et_sim.explain import all_meanings, find

    meanings = all_meanings(all_options())
    if options.key:
        meanings = find(" ".join(options.key), meanings)
    if options.json:
        data = [to_builtins(meaning) for meaning in meanings]
        print(json.dumps(data, indent=2, ensure_ascii=False))
    elif options.key:
        print("\n\n".join(_as_text(meaning) for meaning in meanings))
    else:
        print("\n\n".join(_lists(meanings)))
        print("\net-sim explain NAME explains one of them")
    return 0


def _as_text(meaning: Meaning) -> str:
    """Return one meaning as text."""
    lines = [f"{meaning.name}: {meaning.kind} ({meaning.place})", _indented(meaning.text)]
    wide = max(map(len, meaning.facts), default=0)
    lines += [_indented(fact, f"{name:<{wide}}  ") for name, fact in meaning.facts.items()]
    return "\n".join(lines)


def _lists(meanings: list[Meaning]) -> Iterator[str]:
    """Yield the names by kind and place; values are found by name only."""
    listed = [meaning for meaning in meanings if not meaning.kind.startswith("value of ")]
    for (kind, place), of_place in groupby(listed, lambda key: (key.kind, key.place)):
        names = ", ".join(dict.fromkeys(meaning.name for meaning in of_place))
        yield f"{kind} ({place})\n{_indented(names)}"


def _indented(text: str, begin: str = "") -> str:
    """Return a text below a heading, as wide as the terminal."""
    from et_sim.views.text import terminal_width

    begin = f"  {begin}"
    return textwrap.fill(
        text,
        terminal_width(),
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_on_hyphens=False,
    )


def all_options() -> list[CommandOption]:
    """Return every option of every command; an option with one meaning in several commands is listed once."""
    from et_sim.cli import COMMANDS, parser_of
    from et_sim.explain import CommandOption

    commands: dict[tuple[str, ...], list[str]] = {}
    for command, known in options_of(parser_of([name for group in COMMANDS.values() for name in group])):
        commands.setdefault(known, []).append(command)
    return [
        CommandOption(name, tuple(where), text, default, allowed)
        for (name, text, default, allowed), where in commands.items()
    ]
