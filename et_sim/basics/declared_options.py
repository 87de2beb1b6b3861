"""Declared options: arguments and options of a command are fields of a class, from which argparse is set up.

    class Options(Command):
        "The description of the command in --help."

        workload: Annotated[str, "no default: an argument"]
        svg: Annotated[Path | None, "an option, and the name of its value in --help", "FILE"] = None
        fold: Annotated[bool, "a flag; as it is True by default, it is called --no-fold"] = True

A sequence is an option that may be repeated, or an argument of several words. The given values are an
instance of the class. `command_line` refuses wrong command lines.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_origin, get_type_hints

from et_sim.basics.errors import UsageError
from et_sim.version import __version__, commit


class Option(NamedTuple):
    """A field that is an option; it is required if it has no default."""

    flags: str = ""  # replace the field's name, as in "-o --output"
    choices: Sequence[str] | None = None
    parse: Callable[[str], Any] | None = None  # replaces the field's type
    words: str | None = None  # of its value, in argparse's form; "?": without any, the value is "-"
    least: int | None = None  # limit of a number


class Argument(NamedTuple):
    """A field that is an argument; it is optional if it has a default."""

    choices: Sequence[str] | None = None
    words: str | None = None


class OptionGroup(NamedTuple):
    """Options below a title; those of the group without a title exclude each other."""

    title: str = ""


class Hidden(NamedTuple):
    """Another name of an option, which help does not show."""

    flag: str


EITHER = OptionGroup()
Count = Annotated[int | None, Option(least=1)]
MISSING = object()  # a default
PREFIX = "PREFIX"  # the beginning of file names


class Command:
    """Values given to a command; a derived class declares the command."""

    description: ClassVar[str] = ""  # preformatted; without it, the docstring
    epilog: ClassVar[str | None] = None
    late: ClassVar[str] = ""  # an optional argument that may follow options
    free: ClassVar[str] = ""  # a list for words that look like unknown options
    commands: ClassVar[Mapping[str, Any]] = {}  # modules of its subcommands
    run: Callable[[Any], Any]
    command: str

    def __init__(self, values: Mapping[str, Any]) -> None:
        vars(self).update(values)


def declare(parser: argparse.ArgumentParser, declared: type[Command]) -> None:
    """Add the fields of a class to a parser."""
    groups: dict[OptionGroup, Any] = {}
    for name, hint in sorted(fields_of(declared).items(), key=_has_title):
        target: Any = parser
        for group in _of_type(OptionGroup, hint):
            target = groups[group] = groups.get(group) or _group(parser, group)
        names, settings = _add_argument_settings(name, hint, getattr(declared, name, MISSING))
        target.add_argument(*names, **settings)
        for hidden in _of_type(Hidden, hint):
            unseen = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
            target.add_argument(hidden.flag, **settings | unseen)


def fields_of(declared: type[Command]) -> dict[str, Any]:
    """Return the types of fields by name, with their annotations in `__metadata__`."""
    hints = get_type_hints(declared, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}


def _has_title(field: tuple[str, Any]) -> bool:
    """Return whether an option has a titled group; these come last."""
    return any(group.title for group in _of_type(OptionGroup, field[1]))


def _of_type(kind: Any, hint: Any) -> list[Any]:
    return [entry for entry in hint.__metadata__ if isinstance(entry, kind)]


def _group(parser: argparse.ArgumentParser, group: OptionGroup) -> Any:
    return parser.add_argument_group(group.title) if group.title else parser.add_mutually_exclusive_group()


class Described(NamedTuple):
    """A field of a command: its option, the type of its value, and its help."""

    flag: str
    kind: Any
    is_several: bool
    form: Argument | Option
    text: str


def described(declared: type[Command], name: str, hint: Any) -> Described:
    """Return the description of a field for other programs."""
    default = getattr(declared, name, MISSING)
    kind, several = _kind(hint.__origin__)
    usual = Argument() if default is MISSING else Option()
    (form,) = (*_of_type((Argument, Option), hint), usual)[:1]
    flags = form.flags.split() if isinstance(form, Option) else []
    flag = flag_of(f"no-{name}" if kind is bool and default else name)
    text = (*_of_type(str, hint), "")[0]
    return Described(flags[-1] if flags else flag, kind, several, form, text)


def _add_argument_settings(name: str, hint: Any, default: Any) -> tuple[Sequence[str], dict[str, Any]]:
    """Return names and keywords of `add_argument`."""
    text, metavar = (*_of_type(str, hint), None)[:2]
    kind, several = _kind(hint.__origin__)
    if kind is bool:
        flag, action = (f"no-{name}", "store_false") if default else (name, "store_true")
        return [flag_of(flag)], {"dest": name, "action": action, "help": text}
    is_required = default is MISSING
    usual = Argument() if is_required else Option()
    (form,) = (*_of_type((Argument, Option), hint), usual)[:1]
    settings = {"help": _with_default(text, default), "metavar": metavar, "choices": form.choices}
    settings |= {"nargs": form.words, "default": None if is_required else default}
    if isinstance(form, Argument):
        words = ("+" if several else None) if is_required else ("*" if several else "?")
        value = partial(_read, Option(), kind, metavar == PREFIX, metavar or name)
        return [name], settings | {"nargs": form.words or words, "type": value}
    flags = form.flags.split() or [flag_of(name)]
    settings |= {
        "dest": name,
        "required": is_required,
        "type": partial(_read, form, kind, metavar == PREFIX, flags[-1]),
    }
    if form.words == "?":
        settings["const"] = "-"
    elif several:
        action = "extend" if form.words else "append"
        settings |= {"action": action, "default": None if default is None else list(default)}
        if not form.words:
            del settings["nargs"]
    return flags, settings


def _with_default(text: str | None, default: Any) -> str | None:
    """Return the help of a value, with its default unless the text states one."""
    is_value = isinstance(default, int | float | str | Path) and default != ""
    return f"{text} (default: {default})" if is_value and "default" not in (text or "") else text


def _read(option: Option, kind: Any, is_prefix: bool, name: str, text: str) -> Any:
    """Return a value; refusals name its option or argument."""
    if not text and (kind is Path or is_prefix):
        raise UsageError(f"{name} is empty", remedy="give the name of a file or directory")
    try:
        value = (option.parse or kind)(text)
        if not math.isfinite(value if kind is float else 0):
            raise ValueError
    except UsageError as error:
        raise UsageError(error.cause, place=name, remedy=error.remedy) from None
    except ValueError:
        remedy = f"give a {'whole ' * (kind is int)}number"
        raise UsageError(f"{name} is {text!r}", remedy=remedy) from None
    if option.least is not None and value < option.least:
        remedy = "give more than 0" if option.parse else f"give {option.least} or more"
        raise UsageError(f"{name} is {text}", remedy=remedy)
    return value


def flag_of(name: str) -> str:
    """Return the option for a value of this name."""
    return f"--{name.replace('_', '-')}"


def _kind(hint: Any) -> tuple[Any, bool]:
    """Return the type of a value, or of each of several."""
    kind = get_args(hint)[0] if isinstance(hint, UnionType) else hint  # of "int | None"
    return (get_args(kind)[0], True) if get_origin(kind) is Sequence else (kind, False)


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add the option --version to a program."""
    text = "show version, commit and date, and exit"
    parser.add_argument("--version", action=_Version, nargs=0, help=text)


class _Version(argparse.Action):
    """Action that prints version and commit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print version and commit, and exit."""
        revision = commit()
        made_of = f" ({revision})" if revision else ""
        sys.stdout.write(f"{parser.prog} {__version__}{made_of}\n")
        parser.exit()
