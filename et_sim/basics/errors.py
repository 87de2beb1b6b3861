"""Errors in one tree: every refusal states the cause, the place, and a remedy.

Raise the most specific class. `str(error)` is the sentence that the command line prints; `exit_status` is the
status of the process. Warnings about accepted input are kept in the machine and in the run's manifest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MOST_LONGER = 4  # choices that begin with a word, and are all suggested
LEAST_BEGINNING = 3  # letters of a name that suffice to identify it
LONGEST_QUOTE = 200  # characters of one quoted word
LONGEST_SENTENCE = 1_000
_FIELD = "`([a-z_]+)`"
_LONG_WORD = rf"\S{{{LONGEST_QUOTE + 1},}}"


def brief(text: str) -> str:
    """Return a sentence of limited length: long words are cut, and so is the whole."""
    text = re.sub(_LONG_WORD, lambda word: f"{word[0][: LONGEST_QUOTE - 20]}…{word[0][-10:]}", text)
    return text if len(text) <= LONGEST_SENTENCE else f"{text[: LONGEST_SENTENCE - 100]} … {text[-80:]}"


class EtSimError(Exception):
    """Base of all errors that et-sim raises on purpose."""

    exit_status = 2

    def __init__(self, cause: str, *, place: str = "", remedy: str = "") -> None:
        cause = brief(cause)
        super().__init__(cause)
        self.cause = cause
        self.place = brief(place)
        self.remedy = brief(remedy)

    def __str__(self) -> str:
        head = f"{self.place}: {self.cause}" if self.place else self.cause
        return f"{head} ({self.remedy})" if self.remedy else head


class UsageError(EtSimError):
    """The command or call itself is wrong: a missing option, a contradictory pair of options."""


class FieldError(UsageError):
    """Fields of an object contradict each other, or their limits.

    Backquotes mark the names of fields in the texts that are given, and are not printed: a command line
    replaces them by its options.
    """

    def __init__(self, cause: str, *, place: str = "", remedy: str = "") -> None:
        self._marked = cause, place, remedy
        super().__init__(cause.replace("`", ""), place=place.replace("`", ""), remedy=remedy.replace("`", ""))

    def with_names(self, names: Mapping[str, str]) -> UsageError:
        """Return the same refusal with other names of fields."""
        cause, place, remedy = (
            re.sub(_FIELD, lambda field: names.get(field[1], field[1]), text) for text in self._marked
        )
        return UsageError(cause, place=place, remedy=remedy)


class InputError(EtSimError):
    """A file or value handed in cannot be used."""


class TraceError(InputError):
    """An execution trace is unreadable or contradicts itself."""


class MachineError(InputError):
    """A system, network, memory or group description is unreadable or impossible."""


class _IncompleteError(EtSimError):
    """End of the simulation before all ranks had finished; `report` explains the reason."""

    exit_status = 1

    def __init__(self, cause: str, *, report: str = "", place: str = "", remedy: str = "") -> None:
        super().__init__(cause, place=place, remedy=remedy)
        self.report = report


class StallError(_IncompleteError):
    """End of the simulation while some rank waits; `report` explains the waits."""


class OutOfMemoryError(_IncompleteError):
    """End of the simulation because tensors need more memory than an NPU has; `report` lists them."""


def unreadable(error: Exception) -> str:
    """Return why a file could not be read or written, without the number of the error and the path."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is no UTF-8 text (byte {error.start})"
    return getattr(error, "strerror", None) or str(error)


def did_you_mean(word: str, choices: list[str] | tuple[str, ...]) -> str:
    """Return a question for choices that begin with a word, or with its first part, or resemble it; or ""."""
    import difflib

    if len(word) > LONGEST_QUOTE:
        return ""

    def longer(beginning: str) -> list[str]:
        found = [choice for choice in choices if choice.startswith(beginning)]
        return found if len(beginning) >= LEAST_BEGINNING else []

    from_beginning, first_word = longer(word), word[: word.find("-") + 1]
    near = (
        [word for choice in choices if choice == word]
        or from_beginning[: None if len(from_beginning) <= MOST_LONGER else 1]
        or difflib.get_close_matches(word, longer(first_word), n=1, cutoff=0.5)
        or difflib.get_close_matches(word, choices, n=1, cutoff=0.8)
        or [choice for choice in choices if word.endswith(f"-{choice}")]
        or difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    )
    shown = [repr(choice) for choice in near]
    return f"did you mean {' or '.join(filter(None, (', '.join(shown[:-1]), shown[-1])))}?" if shown else ""
