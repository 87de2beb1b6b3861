"""One pass over the lines of a GOAL text in its plainest form.

Every line is split into words, whose numbers and hashes are computed on the way. A label is looked up among
those of its own rank: the slots that earlier ranks have taken count as free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.compiled.entry_points import entry
from et_sim.compiled.tables_by_reference import Tables, works_on_tables

CALC_CODE, SEND_CODE, RECEIVE_CODE = range(3)
NONE = -1
MOST_WORDS = 12  # of a line; an operation has one less
LONGEST_NAME, LONGEST_NUMBER, UNIT = 16, 16, ord("b")
SECONDS_PER_BYTE = 4e-7  # interpreted
OTHER, WORD, PUNCTUATION, BLANK, NEWLINE = range(5)  # classes of bytes
STATE = np.dtype(
    [
        ("words", "i4"),  # of this line
        ("lines", "i4"),  # with content
        ("declared", "i8"),  # num_ranks; 0: missing
        ("ranks", "i4"),
        ("is_inside", "i4"),  # of a rank
        ("first", "i4"),  # operation of this rank
        ("operations", "i4"),
        ("orders", "i4"),
    ],
    align=True,
)
SPELLING = np.dtype(
    [
        ("low", "i8"),  # the first eight bytes
        ("high", "i8"),  # the next ones
        ("value", "i8"),  # of the digits at its begin
        ("digits", "i4"),
        ("size", "i4"),
        ("hash", "i4"),
        ("end", "u1"),  # its last byte
        ("has_colon", "u1"),
    ],
    align=True,
)


class Lines(Tables, Struct, frozen=True):
    """A text, and the operations, labels and dependencies that were found in it."""

    text: Any  # ends with a newline
    classes: Any  # by byte
    state: Any  # one row
    words: Any  # of this line
    slots: Any  # the operation of a label, by the label's hash
    rank: Any
    bound: Any  # the first operation of each rank
    line: Any
    code: Any
    size: Any
    peer: Any
    tag: Any
    low: Any  # the label of each operation
    high: Any
    later: Any  # operations of dependencies
    earlier: Any


def _classes_of_bytes() -> Any:
    classes = np.full(256, OTHER, np.uint8)
    named = [*range(48, 58), *range(65, 91), *range(97, 123), ord("_")]
    for codes, meaning in ((named, WORD), (b":{}", PUNCTUATION), (b" \t", BLANK), (b"\n", NEWLINE)):
        classes[list(codes)] = meaning
    return classes


_CLASSES = _classes_of_bytes()


def lines_of(text: bytes) -> Lines:
    """Return empty tables for a text that ends with a newline."""
    count = text.count(b"\n")
    wide, narrow = np.zeros((8, count), np.int64), np.zeros((2, count), np.int32)
    rank, bound, line, size, peer, tag, low, high = wide
    return Lines(
        np.frombuffer(text, np.uint8),
        _CLASSES,
        np.zeros(1, STATE).view(np.recarray),
        np.zeros(MOST_WORDS, SPELLING).view(np.recarray),
        np.full(1 << (2 * count).bit_length(), NONE, np.int32),
        rank,
        bound,
        line,
        np.zeros(count, np.int8),
        size,
        peer,
        tag,
        low,
        high,
        *narrow,
    )


def _spelled(text: str) -> int:
    return int.from_bytes(text.encode(), "little")


_RANK, _OPEN, _CLOSE, _REQUIRES = (_spelled(text) for text in ("rank", "{", "}", "requires"))
_NUM_RANK, _S = _spelled("num_rank"), _spelled("s")
_CALC, _SEND, _RECEIVE = (_spelled(text) for text in ("calc", "send", "recv"))
_TO, _FROM, _TAG, _CPU, _NIC = (_spelled(text) for text in ("to", "from", "tag", "cpu", "nic"))
_ZERO, _NINE, _COLON = ord("0"), ord("9"), ord(":")
_HASH_FACTOR, _HASH_MASK = 31, (1 << 30) - 1


@entry(what="the reader of GOAL texts", seconds=lambda lines, _: len(lines.text) * SECONDS_PER_BYTE)
def read_lines(lines: Lines, line: int) -> int:
    """Read a text of whole ranks, which begins with this line; return the line behind it, or NONE if its
    form is not the plainest, or if there is a mistake.
    """
    at = 0
    while at < len(lines.text):
        at = _split(lines, at)
        if at == NONE:
            return NONE
        at += 1
        if lines.state[0].words > 0:
            if not _read_line(lines, line):
                return NONE
            lines.state[0].lines += 1
        line += 1
    return line if lines.state[0].is_inside == 0 else NONE


@works_on_tables
def _split(lines: Lines, at: int) -> int:
    """Split the line that begins at a place into words; return its end, or NONE."""
    words = 0
    while True:
        kind = lines.classes[lines.text[at]]
        if kind == NEWLINE:
            lines.state[0].words = words
            return at
        if kind == BLANK:
            at += 1
        elif kind == OTHER or words == MOST_WORDS:
            return NONE
        else:
            at = _read_word(lines, words, at)
            if at == NONE:
                return NONE
            words += 1


@works_on_tables
def _read_word(lines: Lines, number: int, at: int) -> int:
    """Read a word, which is a brace or may have a colon if it is the first; return its end, or NONE."""
    word, begin = lines.words[number], at
    low, high, value, digits, hashed = 0, 0, 0, 0, 0
    while lines.classes[lines.text[at]] == WORD:
        byte, size = int(lines.text[at]), at - begin
        if size < 8:
            low |= byte << (8 * size)
        elif size < LONGEST_NAME:
            high |= byte << (8 * (size - 8))
        if byte <= _NINE and digits == size and size <= LONGEST_NUMBER:
            value = 10 * value + byte - _ZERO
            digits += 1
        hashed = (hashed * _HASH_FACTOR + byte) & _HASH_MASK
        at += 1
    size, word.has_colon = at - begin, 0
    if size == 0:
        low, size = int(lines.text[at]), 1
        at += 1
    elif lines.text[at] == _COLON and number == 0:
        word.has_colon = 1
        at += 1
    word.low, word.high, word.value, word.digits = low, high, value, digits
    word.size, word.hash, word.end = size, hashed, lines.text[begin + size - 1]
    return at if lines.classes[lines.text[at]] >= BLANK else NONE


@works_on_tables
def _read_line(lines: Lines, line: int) -> bool:
    """Read a line that has been split; return whether it is correct."""
    state, first = lines.state[0], lines.words[0]
    if state.words == 1:
        return _is(first, _CLOSE, 1) and _end_rank(lines)
    if state.words == 2 and first.low == _NUM_RANK and first.high == _S and first.size == 9:
        return _declare(lines)
    if state.words == 3:
        if _is(lines.words[1], _REQUIRES, 8):
            return _add_order(lines)
        if _is(first, _RANK, 4) and _is(lines.words[2], _OPEN, 1):
            return _begin_rank(lines)
    return state.is_inside == 1 and _add_operation(lines, line)


@works_on_tables
def _is(word: Any, spelled: int, size: int) -> bool:
    """Return whether a word has at most eight bytes, which are these, and no colon."""
    return word.low == spelled and word.size == size and word.has_colon == 0


@works_on_tables
def _is_number(word: Any) -> bool:
    return 0 < word.digits <= LONGEST_NUMBER and word.digits == word.size and word.has_colon == 0


@works_on_tables
def _declare(lines: Lines) -> bool:
    """Keep the number of ranks, which only the first line may have."""
    lines.state[0].declared = lines.words[1].value
    return lines.state[0].lines == 0 and _is_number(lines.words[1]) and lines.words[0].has_colon == 0


@works_on_tables
def _begin_rank(lines: Lines) -> bool:
    state = lines.state[0]
    if state.is_inside == 1 or not _is_number(lines.words[1]):
        return False
    lines.rank[state.ranks], lines.bound[state.ranks] = lines.words[1].value, state.operations
    state.is_inside, state.first = 1, state.operations
    state.ranks += 1
    return True


@works_on_tables
def _end_rank(lines: Lines) -> bool:
    was_inside = lines.state[0].is_inside == 1
    lines.state[0].is_inside = 0
    return was_inside


@works_on_tables
def _add_operation(lines: Lines, line: int) -> bool:
    """Add an operation with its label and options."""
    state = lines.state[0]
    row, verb = state.operations, int(lines.words[0].has_colon)
    options = _read_verb(lines, row, verb)
    if options == NONE or not _read_options(lines, row, options):
        return False
    lines.line[row] = line
    if verb == 1 and not _add_label(lines, row):
        return False
    state.operations += 1
    return True


@works_on_tables
def _read_verb(lines: Lines, row: int, at: int) -> int:
    """Read the operation from a word on; return the first word behind it, or NONE."""
    words, verb = lines.state[0].words, lines.words[at]
    if words < at + 2 or verb.size != 4:
        return NONE
    size = lines.words[at + 1]
    lines.size[row], lines.peer[row] = size.value, NONE
    if verb.low == _CALC:
        lines.code[row] = CALC_CODE
        return at + 2 if _is_number(size) else NONE
    if words < at + 4 or size.end != UNIT or size.digits != size.size - 1:
        return NONE
    if not 0 < size.digits <= LONGEST_NUMBER or not _is_number(lines.words[at + 3]):
        return NONE
    lines.peer[row] = lines.words[at + 3].value
    if verb.low == _SEND and _is(lines.words[at + 2], _TO, 2):
        lines.code[row] = SEND_CODE
        return at + 4
    if verb.low == _RECEIVE and _is(lines.words[at + 2], _FROM, 4):
        lines.code[row] = RECEIVE_CODE
        return at + 4
    return NONE


@works_on_tables
def _read_options(lines: Lines, row: int, at: int) -> bool:
    """Read the options of an operation, in this order: a tag, cpu 0, nic 0; a calculation has cpu 0 alone."""
    words, before = lines.state[0].words, 0
    while at < words:
        if at + 1 == words or lines.words[at].size != 3 or not _is_number(lines.words[at + 1]):
            return False
        low, value = lines.words[at].low, lines.words[at + 1].value
        which = int(low == _TAG) + 2 * int(low == _CPU) + 3 * int(low == _NIC)
        if which <= before or (lines.code[row] == CALC_CODE and which != 2):
            return False
        if which == 1:
            lines.tag[row] = value
        elif value != 0:
            return False
        before = which
        at += 2
    return True


@works_on_tables
def _add_label(lines: Lines, row: int) -> bool:
    """Add the label of an operation; return whether it is one, and the first of its name."""
    word = lines.words[0]
    slot = _slot_of(lines, word)
    if word.digits > 0 or word.size > LONGEST_NAME or lines.slots[slot] >= lines.state[0].first:
        return False
    lines.low[row], lines.high[row], lines.slots[slot] = word.low, word.high, row
    return True


@works_on_tables
def _slot_of(lines: Lines, word: Any) -> int:
    """Return the slot of a label, or the free one that it would take."""
    last, first = len(lines.slots) - 1, lines.state[0].first
    slot = word.hash & last
    while True:
        row = lines.slots[slot]
        if row < first or (lines.low[row] == word.low and lines.high[row] == word.high):
            return slot
        slot = (slot + 1) & last


@works_on_tables
def _add_order(lines: Lines) -> bool:
    """Add a dependency between two operations of this rank, which come before it in the text."""
    state, later, earlier = lines.state[0], lines.words[0], lines.words[2]
    if state.is_inside == 0 or later.has_colon == 1 or max(later.size, earlier.size) > LONGEST_NAME:
        return False
    row, parent = lines.slots[_slot_of(lines, later)], lines.slots[_slot_of(lines, earlier)]
    if min(row, parent) < state.first or row == parent:
        return False
    lines.later[state.orders], lines.earlier[state.orders] = row, parent - state.first
    state.orders += 1
    return True
