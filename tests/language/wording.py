"""Rules for docstrings, comments and messages; `python -m tests.language.wording FOLDER…` lists faults."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDERS = ("et_sim", "converters", "recorder", "tests")
VERBS = frozenset((HERE / "verbs.txt").read_text(encoding="utf-8").split())
QUESTION_WORDS = (
    "What|Whatever|Whether|How|Of|That|Those|Who|Whoever|Whom|Whose|Where|When|Why|Which|Whichever"
)
FRAGMENT = re.compile(
    r"(?:^|(?<=[.:;!] )|(?<=\n))(?:What|Whatever|Whether|How|Of|That|Those|Whom|Whose)\b(?![^.?]*\?)"
)
PHRASES = (
    *("says?", "said", "saying", "knows?", "knew", "hears?", "heard", "asks?", "asked", "asking", "minds?"),
    *("tells?", "told", "telling", "believes?", "gives? way", "lets? in"),
    *("nobody", "somebody", "everybody", "anybody", "whoever", "whomever"),
    *("stands? (?:in|at|before|behind|for itself)", "of (?:which|those) (?:one|ones)"),
    *("how-manieth", "less than (?:nothing)"),
)
PERSON = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
QUOTED = re.compile(r"`[^`]*`|\"[^\"\n]*\"")
SENTENCE_WORDS = 3  # fewer words are a name or a key
NOT_HERE = "Not here:"


class Fault(NamedTuple):
    """A place that breaks a rule."""

    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        """Return the fault as a line."""
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{self.line}: {self.rule}: {self.text}"


def _docstrings(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.Constant]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            constant = first.value if isinstance(first, ast.Expr) else None
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                yield node, constant


def _text_of(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.values)


def _messages(tree: ast.AST, docstrings: set[int]) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every other string that holds a sentence or a part of one."""
    pieces = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        if is_text and id(node) not in docstrings and id(node) not in pieces:
            text = _text_of(node)  # type: ignore[arg-type]
            if len(re.findall(r"[a-z]{2,}", text)) >= SENTENCE_WORDS and " " in text:
                yield node.lineno, text  # type: ignore[attr-defined]


def _comments(source: str) -> Iterator[tuple[int, str]]:
    if "#" in source:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and not re.match(r"#(:| noqa| type:| pragma)", token.string):
                yield token.start[0], token.string.lstrip("# ")


def _wording(text: str) -> Iterator[tuple[str, str]]:
    plain = QUOTED.sub("`x`", text)
    for found in FRAGMENT.finditer(plain):
        yield "fragment", plain[found.start() : found.start() + 60].partition("\n")[0]
    for found in PERSON.finditer(plain):
        around = plain[max(found.start() - 30, 0) : found.end() + 30]
        yield "treats code as a person", around.replace("\n", " ")


def _first_word(text: str) -> str:
    return re.split(r"[\s,:;.]", text.strip(), maxsplit=1)[0]


def faults_of_source(source: str, path: Path) -> Iterator[Fault]:
    """Yield the faults of a module."""
    tree = ast.parse(source)
    docstrings = list(_docstrings(tree))
    for node, constant in docstrings:
        text = str(constant.value)
        first = _first_word(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if first not in VERBS:
                yield Fault(
                    path, constant.lineno, "a function's docstring begins with a verb", text.split("\n")[0]
                )
        elif re.fullmatch(QUESTION_WORDS, first):
            yield Fault(path, constant.lineno, "a docstring begins with a noun", text.split("\n")[0])
        for rule, words in _wording(text):
            yield Fault(path, constant.lineno, rule, words)
    for line, text in (*_messages(tree, {id(each) for _, each in docstrings}), *_comments(source)):
        for rule, words in _wording(text):
            yield Fault(path, line, rule, words)


def modules(folder: str) -> list[Path]:
    """Return the modules in a folder of the project, or a module itself."""
    path = ROOT / folder
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def faults(folder: str) -> list[Fault]:
    """Return the faults of the modules in a folder."""
    return [each for path in modules(folder) for each in faults_of_source(path.read_text("utf-8"), path)]


if __name__ == "__main__":
    found = [each for folder in sys.argv[1:] or FOLDERS for each in faults(folder)]
    sys.stdout.write("".join(f"{each}\n" for each in found))
    sys.stderr.write(f"{len(found)} faults\n")
