"""Words of a text one after the other, each with its line and column, and refusals that name them.

Not here: what the words mean (`reading`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from et_sim.basics.errors import TraceError, did_you_mean

# White space as C++ streams know it; other characters belong to words.
_WORD = re.compile(r"[^ \t\n\v\f\r]+")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LONGEST_SHOWN = 40


class Token(NamedTuple):
    """A word and where it stands; lines and columns count from 1."""

    text: str
    line: int
    column: int


def tokens_of(text: str) -> list[Token]:
    """All words, in order."""
    return [
        Token(match[0], number, match.start() + 1)
        for number, line in enumerate(text.split("\n"), start=1)
        for match in _WORD.finditer(line)
    ]


def shown(text: str) -> str:
    """A word as messages quote it."""
    return f'"{text}"' if len(text) <= _LONGEST_SHOWN else f'"{text[: _LONGEST_SHOWN - 3]}..."'


@dataclass(slots=True)
class TokenReader:
    """Hands out tokens in turn; what does not fit is refused where it stands."""

    tokens: Sequence[Token]
    source: str
    at: int = 0

    def peek(self, ahead: int = 0) -> Token | None:
        """A token to come."""
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def word(self, what: str, remedy: str) -> Token:
        """The next token, whatever it is."""
        token = self.peek()
        if token is None:
            last = self.tokens[-1].line
            raise TraceError(
                f"the file ends where {what} should stand", place=f"{self.source}, line {last}", remedy=remedy
            )
        self.at += 1
        return token

    def integer(self, what: str, remedy: str, *, least: int = 0, most: int) -> int:
        """The next token as an integer."""
        token = self.word(what, remedy)
        if not _INTEGER.fullmatch(token.text):
            cause = f"{what} should stand here, an integer; found {shown(token.text)}"
            raise self.refused(token, cause, remedy)
        value = int(token.text) if len(token.text) <= _LONGEST_SHOWN else most + 1
        if not least <= value <= most:
            limits = f"from {least} to {most:,}" if least > -most else f"within {most:,} of zero"
            raise self.refused(token, f"{what} is {shown(token.text)[1:-1]}", f"it must be {limits}")
        return value

    def choice(self, what: str, choices: Sequence[str], remedy: str = "") -> str:
        """The next token as one of some words."""
        token = self.word(what, remedy or f"one of {', '.join(choices)}")
        if token.text in choices:
            return token.text
        near = did_you_mean(token.text, list(choices)) or did_you_mean(token.text.upper(), list(choices))
        advice = " ".join(part for part in (near, remedy or f"known: {', '.join(choices)}") if part)
        raise self.refused(token, f"{what} should stand here; found {shown(token.text)}", advice)

    def refused(self, token: Token, cause: str, remedy: str) -> TraceError:
        """The error that names a token's place."""
        place = f"{self.source}, line {token.line}, column {token.column}"
        return TraceError(cause, place=place, remedy=remedy)
