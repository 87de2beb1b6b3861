"""The statements of a GOAL text, one after the other, each with its line.

    num_ranks 2
    rank 0 {
    l1: calc 100 cpu 0
    l2: send 8b to 1 tag 7 cpu 0 nic 0
    l2 requires l1
    }

A statement ends with its line, or with `;`. `//` comments to the end of the line, `/* */` also over lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from et_sim.basics.errors import TraceError, did_you_mean
from et_sim.documents.reading import whole_number

CALC, SEND, RECEIVE = "calc", "send", "recv"
REQUIRES, IREQUIRES = "requires", "irequires"
WORDS = (CALC, SEND, RECEIVE, REQUIRES, IREQUIRES, "rank", "num_ranks", "to", "from", "tag", "cpu", "nic")

_OPERATION = re.compile(
    r"(?:([A-Za-z_]\w*)\s*:\s*)?"
    r"(?:calc\s+(\d+)|send\s+(\d+)\s*b\s+to\s+(\d+)|recv\s+(\d+)\s*b\s+from\s+(-1|\d+))"
    r"(?:\s+tag\s+(-1|\d+))?(?:\s+cpu\s+(\d+))?(?:\s+nic\s+(\d+))?",
    re.ASCII,
)
_DEPENDENCY = re.compile(r"([A-Za-z_]\w*)\s+(i?requires)\s+([A-Za-z_]\w*)", re.ASCII)
_HEAD = re.compile(r"(num_ranks|rank)\s+(\d+)", re.ASCII)
_COMMENT = re.compile(r"//.*|/\*.*?\*/")
_FORMS = (
    'forms: "num_ranks N", "rank R {", "l: calc NS", "l: send SIZEb to RANK tag T", '
    '"l: recv SIZEb from RANK tag T", "l2 requires l1", "l2 irequires l1", "}"'
)
LARGEST = 2**63 - 1


class GoalOperation(Struct, frozen=True):
    """A line with an operation."""

    line: int
    label: str
    kind: str
    size: int  # bytes; for a calculation, ns
    peer: int  # of a message
    tag: int


class Dependency(Struct, frozen=True):
    """A line that orders two operations."""

    line: int
    later: str
    kind: str
    earlier: str


class Head(Struct, frozen=True):
    """A line `num_ranks N` or `rank R`."""

    line: int
    word: str
    number: int


class End(Struct, frozen=True):
    """A line `}`."""

    line: int


Statement = GoalOperation | Dependency | Head | End


def statements(lines: Iterable[str], source: str, first: int = 1) -> Iterator[Statement]:
    """Yield the statements of lines, which are numbered from `first`; `{` is skipped."""
    is_comment = False
    for line, full in enumerate(lines, first):
        text = full.strip()
        if is_comment or "/" in text:
            text, is_comment = _without_comments(text, is_comment)
        if not text:
            continue
        operation = _operation(text, line, source)
        if operation is not None:
            yield operation
            continue
        for part in text.replace("{", ";").replace("}", ";};").split(";"):
            if part := part.strip():
                yield _statement(part, line, source)
    if is_comment:
        raise TraceError("a comment is not closed", place=source, remedy='write "*/" after it')


def _without_comments(text: str, is_comment: bool) -> tuple[str, bool]:
    """Return the rest of a line, and whether a comment continues."""
    if is_comment:
        _, end, text = text.partition("*/")
        if not end:
            return "", True
    text = _COMMENT.sub(" ", text)
    before, begin, _ = text.partition("/*")
    return before.strip(), bool(begin)


def _statement(text: str, line: int, source: str) -> Statement:
    if text == "}":
        return End(line)
    operation = _operation(text, line, source)
    if operation is not None:
        return operation
    if match := _DEPENDENCY.fullmatch(text):
        return Dependency(line, match[1], match[2], match[3])
    if match := _HEAD.fullmatch(text):
        return Head(line, match[1], _number(match[2], line, source))
    words = re.findall(r"[A-Za-z_]+", text.partition(":")[2] or text)
    near = next((hint for word in words if word not in WORDS and (hint := did_you_mean(word, WORDS))), "")
    raise TraceError(f'"{text}" is no statement of GOAL', place=at(source, line), remedy=near or _FORMS)


def _operation(text: str, line: int, source: str) -> GoalOperation | None:
    match = _OPERATION.fullmatch(text)
    if match is None:
        return None
    label, calc, sent, target, received, origin, tag, cpu, nic = match.groups()
    size = _number(calc or sent or received, line, source)
    if size > LARGEST:
        raise TraceError(f"{size} is too large", place=at(source, line), remedy=f"at most {LARGEST}")
    for unit, number in (("cpu", cpu), ("nic", nic)):
        if number is not None and _number(number, line, source):
            raise TraceError(
                f"{unit} {number}: a trace has one {unit} per rank, and so has the LogGOPS model",
                place=at(source, line),
                remedy=f"write {unit} 0, or make a rank of its own of what runs on another {unit}",
            )
    if calc is not None:
        if tag is not None or nic is not None:
            raise TraceError("a calc has no tag and no nic", place=at(source, line), remedy="leave them out")
        return GoalOperation(line, label or "", CALC, size, -1, 0)
    kind = SEND if sent is not None else RECEIVE
    peer, tag_number = (_number(word, line, source) for word in (target or origin, tag or "0"))
    for key, given in (("source", peer), ("tag", tag_number)):
        if given < 0:
            raise TraceError(
                f"any {key} (-1): a receive of a trace takes one message, whichever comes first",
                place=at(source, line),
                remedy=f"name the {key} of the message that was received",
            )
    return GoalOperation(line, label or "", kind, size, peer, tag_number)


def _number(word: str, line: int, source: str) -> int:
    """Return a number, which may be -1; text with too many digits is not converted."""
    number = -1 if word == "-1" else whole_number(word)
    if number is None:
        remedy = f"at most {LARGEST}"
        raise TraceError(
            f"a number of {len(word)} digits is too large", place=at(source, line), remedy=remedy
        )
    return number


def at(source: str, line: int) -> str:
    """Return the name of a line in messages."""
    return f"{source}: line {line}"
