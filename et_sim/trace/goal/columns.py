"""Parsing of GOAL files in their plainest form to columns, rank by rank, and the search for unmatched
messages.

The plainest form, which programs write, has one statement per line, blanks between words, no comments and no
`irequires`. All lines are classified at once. For text in another form, or with a mistake, `columns_of`
returns None; the text is then read statement by statement, which also reports mistakes.

A send matches a receive of the same ranks, tag and size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.unique import sorted_groups
from et_sim.trace.columns import IntColumn
from et_sim.trace.goal.statements import at

CALC_CODE, SEND_CODE, RECEIVE_CODE = range(3)
_WORD, _PUNCTUATION, _BLANK, _NEWLINE = 1, 2, 3, 4
_LONGEST_LABEL, _LONGEST_NUMBER = 16, 16
_BLANKS_BEHIND = 24


def _classes_of_bytes() -> bytes:
    classes = bytearray(256)
    word = [*range(48, 58), *range(65, 91), *range(97, 123), ord("_")]
    for codes, meaning in ((word, _WORD), (b":{}", _PUNCTUATION), (b" \t", _BLANK), (b"\n", _NEWLINE)):
        for code in codes:
            classes[code] = meaning
    return bytes(classes)


_CLASSES = _classes_of_bytes()


def _word(text: str) -> Any:
    return np.uint64(int.from_bytes(text.encode(), "little"))


# Eight digits at a time: bytes of "0" and of six, halves of bytes, and the places of two and four digits.
_ZEROS, _SIXES = np.uint64(0x3030303030303030), np.uint64(0x0606060606060606)
_HIGH_HALVES, _LOW_HALVES = np.uint64(0xF0F0F0F0F0F0F0F0), np.uint64(0x0F0F0F0F0F0F0F0F)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_TAG, _CPU, _NIC = (_word(text) for text in ("tag", "cpu", "nic"))


class OperationColumns(Struct, frozen=True, eq=False):
    """Operations of some ranks, one rank after the other; dependencies are rows of the same rank."""

    declared: int  # num_ranks; 0: missing
    rank: IntColumn
    first: IntColumn  # operation of each rank, and the end of the last
    line: IntColumn  # counted from 1, as all lines here
    code: Any
    size: IntColumn  # bytes; for a calculation, ns
    peer: IntColumn
    tag: IntColumn
    after_start: IntColumn
    after: Any

    @property
    def owner(self) -> IntColumn:
        """Return the rank of each operation."""
        return np.repeat(self.rank, np.diff(self.first))


class _Unusual(Exception):  # noqa: N818 - not an error of the user
    """A signal that the text is not in the plainest form."""


def _require(condition: Any) -> None:
    if not condition:
        raise _Unusual


def columns_of(content: bytes, line: int) -> OperationColumns | None:
    """Return the whole ranks in `content`, which begins with this line, or None if the form is not the
    plainest.
    """
    try:
        return _Lines(content).columns(line)
    except _Unusual:
        return None


class _Lines:
    """Words of a text, and the first word of each line with content."""

    def __init__(self, content: bytes) -> None:
        text = b"\n" + content + b"\n" * _BLANKS_BEHIND
        data, classes = np.frombuffer(text, np.uint8), np.frombuffer(text.translate(_CLASSES), np.uint8)
        _require(classes.min())
        is_in_word = classes <= _PUNCTUATION
        edges = np.flatnonzero(is_in_word[1:] != is_in_word[:-1]) + 1
        self.data, self.begin, self.end = data, edges[::2], edges[1::2]
        self.length = self.end - self.begin
        every = np.ndarray(len(data) - 8, np.dtype("<u8"), data, strides=(1,))
        self.low = self._cut(every[self.begin], np.minimum(self.length, 8))
        self.high = np.zeros(len(self.begin), np.uint64)
        is_long = np.flatnonzero(self.length > 8)
        beyond = np.minimum(self.length[is_long] - 8, 8)
        self.high[is_long] = self._cut(every[self.begin[is_long] + 8], beyond)
        newlines = np.flatnonzero(classes[:-_BLANKS_BEHIND] == _NEWLINE)
        first = np.searchsorted(self.begin, newlines)
        count = np.diff(np.append(first, len(self.begin)))
        self.line = np.flatnonzero(count)  # counted from 0
        self.first, self.count = first[self.line], count[self.line]
        self.punctuation = np.count_nonzero(classes == _PUNCTUATION)

    @staticmethod
    def _cut(words: Any, length: Any) -> Any:
        """Return the first bytes of each word."""
        masks = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
        return words & masks[length]

    def is_word(self, tokens: Any, text: str) -> Any:
        """Return a mask of the tokens that equal a word."""
        found = (self.low[tokens] == _word(text[:8])) & (self.length[tokens] == len(text))
        return found & (self.high[tokens] == _word(text[8:])) if len(text) > 8 else found

    def numbers(self, tokens: Any, unit: str = "") -> IntColumn:
        """Return the values of tokens, each of which is a number followed by the letter `unit`."""
        length = self.length[tokens] - len(unit)
        _require(not len(tokens) or 0 < length.min() <= length.max() <= _LONGEST_NUMBER)
        if unit:
            _require((self.data[self.end[tokens] - 1] == ord(unit)).all())
        values = _value_of_digits(self.low[tokens], np.minimum(length, 8))
        rows = np.flatnonzero(length > 8)
        if len(rows):
            more = length[rows] - 8
            values[rows] = values[rows] * 10**more + _value_of_digits(self.high[tokens[rows]], more)
        return values

    def _lines_of(self, *words: str) -> Any:
        """Return a mask of the lines that have these words; any word may be in the place of an empty one."""
        rows = np.flatnonzero(self.count == len(words))
        for place, text in enumerate(words):
            if text:
                rows = rows[self.is_word(self.first[rows] + place, text)]
        found = np.zeros(len(self.count), bool)
        found[rows] = True
        return found

    def columns(self, line: int) -> OperationColumns:
        """Return the columns of all ranks."""
        is_order, is_begin = self._lines_of("", "requires", ""), self._lines_of("rank", "", "{")
        is_end, is_count = self._lines_of("}"), self._lines_of("num_ranks", "")
        is_operation = ~(is_order | is_begin | is_end | is_count)
        declared = self._declared(is_count)
        begins, ends = np.flatnonzero(is_begin), np.flatnonzero(is_end)
        _require(len(begins) == len(ends) and (begins < ends).all() and (ends[:-1] < begins[1:]).all())
        operations, orders = np.flatnonzero(is_operation), np.flatnonzero(is_order)
        section_of_operation, section_of_order = (
            self._sections(rows, begins, ends) for rows in (operations, orders)
        )
        label, code, size, peer, tag = self._operations(operations)
        labels = int((label >= 0).sum())
        _require(self.punctuation == labels + len(begins) + len(ends))
        bounds = np.searchsorted(section_of_operation, np.arange(len(begins) + 1))
        rows = np.arange(len(operations)) - np.repeat(bounds[:-1], np.diff(bounds))
        known = _Labels(self, label, section_of_operation)
        later, earlier = (known.find(self.first[orders] + place, section_of_order) for place in (0, 2))
        _require((later != earlier).all())
        for found in (later, earlier):
            _require((operations[found] < orders).all())
        order = np.argsort(later, kind="stable")
        listed = np.bincount(later, minlength=len(operations))
        return OperationColumns(
            declared,
            self.numbers(self.first[begins] + 1),
            bounds,
            self.line[operations] + line,
            code,
            size,
            peer,
            tag,
            np.concatenate((np.zeros(1, np.int64), np.cumsum(listed))),
            rows[earlier[order]].astype(np.int32),
        )

    def _declared(self, is_count: Any) -> int:
        rows = np.flatnonzero(is_count)
        if not len(rows):
            return 0
        _require(len(rows) == 1 and rows[0] == 0)
        return int(self.numbers(self.first[rows] + 1)[0])

    @staticmethod
    def _sections(rows: Any, begins: Any, ends: Any) -> Any:
        """Return the pair of braces that encloses each line."""
        section = np.searchsorted(begins, rows) - 1
        _require((section >= 0).all() and (rows < ends[section]).all() if len(rows) else True)
        return section

    def _operations(self, lines: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return (token of the label or -1, code, size, peer, tag) of each operation."""
        first, count = self.first[lines], self.count[lines]
        has_label = self.data[self.end[first] - 1] == ord(":")
        behind = first + count
        verb = first + has_label
        _require((verb < behind).all())
        code = np.full(len(lines), -1, np.int8)
        size, tag = np.zeros(len(lines), np.int64), np.zeros(len(lines), np.int64)
        peer = np.full(len(lines), -1, np.int64)
        rest = verb + 2
        for number, (word, unit, direction) in enumerate(
            (("calc", "", ""), ("send", "b", "to"), ("recv", "b", "from"))
        ):
            rows = np.flatnonzero(self.is_word(verb, word))
            code[rows] = number
            if direction:
                rest[rows] += 2
            _require((rest[rows] <= behind[rows]).all())
            size[rows] = self.numbers(verb[rows] + 1, unit)
            if direction:
                _require(self.is_word(verb[rows] + 2, direction).all())
                peer[rows] = self.numbers(verb[rows] + 3)
        _require((code >= 0).all())
        self._options(code, rest, behind, tag)
        return np.where(has_label, first, -1), code, size, peer, tag

    def _options(self, code: Any, rest: Any, behind: Any, tag: Any) -> None:
        """Read the options after an operation: a tag, cpu 0, nic 0."""
        before = np.zeros(len(code), np.int8)
        while len(rows := np.flatnonzero(rest < behind)):
            _require((rest[rows] + 1 < behind[rows]).all())
            word = self.low[rest[rows]]
            _require((self.length[rest[rows]] == 3).all())
            which = ((word == _TAG) + 2 * (word == _CPU) + 3 * (word == _NIC)).astype(np.int8)
            _require((which > before[rows]).all())
            _require(((code[rows] != CALC_CODE) | (which == 2)).all())
            values = self.numbers(rest[rows] + 1)
            _require((values[which > 1] == 0).all())
            tag[rows[which == 1]] = values[which == 1]
            before[rows] = which
            rest[rows] += 2


def _value_of_digits(words: Any, length: Any) -> IntColumn:
    """Return the numbers whose first digits are the first bytes of words: at least one, at most eight."""
    missing = (8 * (8 - length)).astype(np.uint64)
    digits = (words << missing) | (_ZEROS & ((np.uint64(1) << missing) - np.uint64(1)))
    _require(((digits + _SIXES) & digits & _HIGH_HALVES == _ZEROS).all())
    digits = ((digits & _LOW_HALVES) * np.uint64(10 * 2**8 + 1)) >> np.uint64(8)
    digits = ((digits & _PAIRS) * np.uint64(100 * 2**16 + 1)) >> np.uint64(16)
    values = ((digits & _FOURS) * np.uint64(10_000 * 2**32 + 1)) >> np.uint64(32)
    return np.asarray(values, np.int64)


class _Labels:
    """An index of operations by section and label."""

    def __init__(self, lines: _Lines, label: Any, section: Any) -> None:
        """Index the operations; `label` is the token of each, with its colon, or -1."""
        self._lines = lines
        operations = np.flatnonzero(label >= 0)
        token = label[operations]
        length = lines.length[token] - 1
        _require(not len(token) or 0 < length.min() <= length.max() <= _LONGEST_LABEL)
        _require((lines.data[lines.begin[token]] > ord("9")).all())
        low = lines._cut(lines.low[token], np.minimum(length, 8))
        high = lines._cut(lines.high[token], np.maximum(length, 8) - 8)
        hashed = _hash(low, high, section[operations])
        order = np.argsort(hashed)
        self._hashed, self._operation = hashed[order], operations[order]
        self._parts = low[order], high[order], section[operations][order]
        _require((self._hashed[1:] != self._hashed[:-1]).all())  # equal names, or equal hashes
        bits = len(order).bit_length() + 1  # this many bits separate most hashes
        self._shift = np.uint64(64 - bits)
        counts = np.bincount((self._hashed >> self._shift).astype(np.int64), minlength=1 << bits)
        self._first = np.cumsum(counts) - counts

    def find(self, token: Any, section: Any) -> Any:
        """Return the operation that each token names."""
        if not len(token):
            return np.zeros(0, np.int64)
        _require(len(self._hashed) and self._lines.length[token].max() <= _LONGEST_LABEL)
        parts = self._lines.low[token], self._lines.high[token], section
        hashed = _hash(*parts)
        last = len(self._hashed) - 1
        at = np.minimum(self._first[hashed >> self._shift], last)
        left = np.flatnonzero((self._hashed[at] < hashed) & (at < last))
        while len(left):
            at[left] += 1
            left = left[(self._hashed[at[left]] < hashed[left]) & (at[left] < last)]
        for part, known in zip(parts, self._parts, strict=True):
            _require((known[at] == part).all())
        return self._operation[at]


def _hash(low: Any, high: Any, section: Any) -> Any:
    mixed = low * np.uint64(0x9E3779B97F4A7C15) + high * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed += section.astype(np.uint64) * np.uint64(0xD6E8FEB86659FD93)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))


MOST_UNMATCHED = 1 << 20  # messages that are kept before matches are removed
Channel = tuple[int, int, int, int]  # source, target, tag, bytes


class Messages:
    """Unmatched sends and receives, in the order of the file."""

    def __init__(self) -> None:
        self._parts: list[Any] = []  # rows: channel (four), 1 of a send and -1 of a receive, line
        self._count, self._most = 0, MOST_UNMATCHED

    def add(self, columns: OperationColumns) -> None:
        """Add the messages of some ranks."""
        rows = np.flatnonzero(columns.code != CALC_CODE)
        owner, peer, is_send = columns.owner[rows], columns.peer[rows], columns.code[rows] == SEND_CODE
        channel = np.where(is_send, owner, peer), np.where(is_send, peer, owner)
        sign = np.where(is_send, 1, -1)
        self._parts.append(
            np.stack((*channel, columns.tag[rows], columns.size[rows], sign, columns.line[rows]))
        )
        self._count += len(rows)
        if self._count > self._most:
            self._parts = [self._unmatched()]
            self._count = self._parts[0].shape[1]
            self._most = max(MOST_UNMATCHED, 2 * self._count)

    def refuse_unmatched(self, source: str) -> None:
        """Raise for the first message of the file without a match."""
        left, first = self._left()
        if not left:
            return
        channel = min(first, key=first.__getitem__)
        origin, target, tag, size = channel
        unmatched, other = ("send", "recv") if left[channel] > 0 else ("recv", "send")
        here, there = (origin, target) if left[channel] > 0 else (target, origin)
        message = f"{unmatched} of {size} bytes with tag {tag}"
        remedy = "write the other half, with the same size and tag"
        for near, surplus in left.items():  # a likely intended match
            if surplus * left[channel] < 0 and near[:2] == channel[:2]:
                remedy = f"line {first[near]} has {near[3]} bytes and tag {near[2]}"
                break
        raise TraceError(
            f"rank {here} has a {message} that no {other} of rank {there} matches",
            place=at(source, first[channel]),
            remedy=remedy,
        )

    def _left(self) -> tuple[dict[Channel, int], dict[Channel, int]]:
        """Return the surplus of sends over receives of unbalanced channels, and the line of the first message
        of each.
        """
        surplus: dict[Channel, int] = {}
        first: dict[Channel, int] = {}
        for source, target, tag, size, sign, line in self._unmatched().T.tolist():
            channel = (source, target, tag, size)
            surplus[channel] = surplus.get(channel, 0) + sign
            first.setdefault(channel, line)
        return surplus, first

    def _unmatched(self) -> Any:
        """Return the messages after the last line at which their channel was balanced."""
        if not self._count:
            return np.zeros((6, 0), np.int64)
        every = np.concatenate(self._parts, axis=1)
        order, begin = sorted_groups(*every[:4])
        counts = np.diff(np.append(begin, len(order)))
        surplus = np.cumsum(every[4, order])
        surplus -= np.repeat(surplus[begin] - every[4, order][begin], counts)
        even = np.where(surplus == 0, np.arange(len(order)), -1)
        is_left = np.arange(len(order)) > np.repeat(np.maximum.reduceat(even, begin), counts)
        return every[:, np.sort(order[is_left])]
