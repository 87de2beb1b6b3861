"""Commands are classes whose fields are arguments and options; the parser is built from the fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pytest

from et_sim.basics.command_line import Parser
from et_sim.basics.declared_options import EITHER, Argument, Command, Hidden, Option, OptionGroup
from et_sim.basics.errors import UsageError
from et_sim.basics.units import parse_bytes

REPOSITORY = Path(__file__).resolve().parents[2]
SIZES = OptionGroup("sizes")
TELLING = ["declared_options.py", "ship.py"]  # the second makes an archive, and is no command


class Options(Command):
    """Do something
    with a file.
    """

    file: Annotated[Path, "the file"]
    parts: Annotated[Sequence[int], "its parts", "PART", Argument()] = ()
    level: Annotated[int, "how much", "N", Option("-l --level")]
    kind: Annotated[str, "which", Option(choices=("a", "b"))] = "a"
    size: Annotated[int | None, "how large", Option(parse=parse_bytes, least=1), SIZES] = None
    name: Annotated[Sequence[str], "of it; repeatable", Hidden("--also-called")] = ()
    fold: Annotated[bool, "do not fold"] = True
    fast_one: Annotated[bool, "be fast", EITHER] = False
    csv: Annotated[Path | None, "as CSV", "FILE", Option(words="?"), EITHER] = None
    change: Annotated[Sequence[str] | None, "what changes", Option(words="*")] = None
    share: Annotated[float, "of all"] = 0.5
    output: Annotated[str, "where to (default: here)", "PREFIX"] = "x"
    not_an_option: int


class Derived(Options):
    """Do more."""

    kind: Annotated[str, "whatever"] = "c"


def parsed(*words: str, declared: type[Options] = Options) -> Options:
    parser = Parser(prog="it")
    parser.declare(declared, len)
    options = parser.parse_args(words)
    assert isinstance(options, declared)
    return options


def test_an_option_of_several_words_keeps_all_that_it_is_given() -> None:
    assert parsed("f", "-l1", "--change", "a", "b", "--change", "c").change == ["a", "b", "c"]
    assert parsed("f", "-l1", "--change").change == []


def test_options_left_out_have_the_default_of_the_field() -> None:
    options = parsed("f", "-l1")
    assert vars(options) == {
        "file": Path("f"),
        "parts": (),
        "level": 1,
        "kind": "a",
        "size": None,
        "change": None,
        "name": [],
        "fold": True,
        "fast_one": False,
        "csv": None,
        "share": 0.5,
        "output": "x",
        "run": len,
    }


def test_values_have_the_types_of_the_fields() -> None:
    options = parsed(
        "f", "1", "2", "--level=3", "--size=2KiB", "--no-fold", "--name=x", "--also-called=y", "--csv"
    )
    assert (options.parts, options.level, options.size, options.share) == ([1, 2], 3, 2048, 0.5)
    assert (options.fold, options.name, options.csv) == (False, ["x", "y"], Path("-"))


def test_fields_are_inherited_and_redeclared() -> None:
    assert parsed("f", "-l1", "--kind=d", declared=Derived).kind == "d"
    assert parsed("f", "-l1", declared=Derived).kind == "c"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["f"], "the following arguments are required: -l/--level"),
        (["f", "-l1", "--kind=c"], "there is no --kind 'c' (there are a, b"),
        (["f", "-l1", "--fast-one", "--csv=x"], "--csv: not allowed with argument --fast-one"),
        (["f", "-l"], "-l/--level: its value is missing"),
        (["f", "-l1", "--siez=1"], "there is no option --siez (did you mean '--size'?"),
    ],
)
def test_wrong_words_are_refused(words: list[str], answer: str) -> None:
    with pytest.raises(UsageError, match=re.escape(answer)):
        parsed(*words)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["f", "-l1", "--size=0"], "--size is 0 (give more than 0)"),
        (["f", "-l1", "--size=many"], "--size: size 'many' cannot be understood"),
        (["f", "-l", "x"], "--level is 'x' (give a whole number)"),
        (["f", "x", "-l1"], "PART is 'x' (give a whole number)"),
        (["f", "-l1", "--share=half"], "--share is 'half' (give a number)"),
        (["f", "-l1", "--share=nan"], "--share is 'nan' (give a number)"),
        (["f", "-l1", "--share=-inf"], "--share is '-inf' (give a number)"),
        (["", "-l1"], "file is empty (give the name of a file or directory)"),
        (["f", "-l1", "--csv="], "--csv is empty (give the name of a file or directory)"),
        (["f", "-l1", "--output="], "--output is empty (give the name of a file or directory)"),
    ],
)
def test_values_that_cannot_be_are_refused_as_elsewhere(words: list[str], answer: str) -> None:
    with pytest.raises(UsageError, match=re.escape(answer)):
        parsed(*words)


def test_help_shows_the_default_of_the_field_unless_it_is_explained() -> None:
    parser = Parser(prog="it")
    parser.declare(Options, len)
    shown = " ".join(parser.format_help().split())
    for part in ("which (default: a)", "of all (default: 0.5)", "where to (default: here)"):
        assert part in shown
    assert "None" not in shown


def test_help_has_the_docstring_the_groups_and_no_hidden_names() -> None:
    parser = Parser(prog="it")
    parser.declare(Options, len)
    shown = parser.format_help()
    assert "\nDo something with a file.\n" in shown
    assert "\nsizes:\n  --size SIZE" in shown
    assert "--also-called" not in shown
    assert "not" not in shown.replace("do not fold", "")


def test_options_are_passed_to_argparse_in_one_place() -> None:
    files = [
        path for room in ("et_sim", "converters", "recorder") for path in (REPOSITORY / room).rglob("*.py")
    ]
    for word, names in (("import argparse", ["command_line.py", *TELLING]), (".add_argument(", TELLING)):
        assert sorted(path.name for path in files if word in path.read_text(encoding="utf-8")) == names
