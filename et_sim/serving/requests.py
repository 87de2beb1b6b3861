"""Requests: their arrivals, the lengths of their prompts, and the numbers of tokens to be produced.

A CSV file with a header; its columns in any order, others are refused.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path

from msgspec import Struct

from et_sim.basics.errors import InputError, UsageError, did_you_mean, unreadable
from et_sim.basics.files import is_file

ARRIVAL, PROMPT, OUTPUT = "arrival_s", "prompt_tokens", "output_tokens"
COLUMNS = (ARRIVAL, PROMPT, OUTPUT)
POISSON = "poisson:"
POISSON_FORM = "poisson:RATE,COUNT,PROMPT,OUTPUT"
CLOSED = "closed:"
CLOSED_FORM = "closed:PROMPT,OUTPUT[,COUNT]"
LATEST_NS = 10**18
MOST_TOKENS = 10**9
MOST_REQUESTS = 10_000_000
HIGHEST_RATE = 1e9  # requests in a second


class Request(Struct, frozen=True):
    """A request; its number is its position in the file."""

    number: int
    arrival_ns: int
    prompt: int  # tokens
    output: int  # tokens


def read_requests(given: str, seed: int | None = None) -> tuple[Request, ...]:
    """Return the requests of a file, or made by a rule, in the order of arrival; `seed` is of a rule only."""
    is_rule = given.startswith(POISSON)
    if seed is not None and not is_rule:
        raise UsageError("--seed is only for requests that are made by a rule", remedy="leave it out")
    requests = _poisson(given, checked_seed(seed)) if is_rule else list(_from_file(Path(given)))
    return tuple(sorted(requests, key=lambda request: (request.arrival_ns, request.number)))


def checked_seed(seed: int | None) -> int:
    """Return a seed, 0 without one; refuse negative ones."""
    if seed is not None and seed < 0:
        raise UsageError(f"--seed is {seed}", remedy="give a number from 0 up")
    return seed or 0


def _from_file(path: Path) -> Iterator[Request]:
    if not is_file(path):
        remedy = f"give a CSV file with the columns {','.join(COLUMNS)}, {POISSON_FORM} or {CLOSED_FORM}"
        raise InputError("there is no such file of requests", place=str(path), remedy=remedy)
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot be read: {unreadable(error)}", place=str(path), remedy="give a CSV file"
        ) from None
    reader = csv.reader(io.StringIO(text, newline=""))
    order: list[int] = []
    count = 0
    try:
        for row in reader:
            place = f"{path}, line {reader.line_num}"
            if not any(word.strip() for word in row):
                continue
            if not order:
                order = _order([word.strip() for word in row], place)
                continue
            if len(row) != len(COLUMNS):
                raise InputError(
                    f"{len(row)} values for {len(COLUMNS)} columns",
                    place=place,
                    remedy=f"give {', '.join(COLUMNS)}",
                )
            yield _request(count, [row[at].strip() for at in order], place)
            count += 1
    except csv.Error as error:
        place = f"{path}, line {reader.line_num}"
        raise InputError(f"is no CSV: {error}", place=place, remedy="correct it") from None
    if not count:
        raise InputError(
            "holds no requests", place=str(path), remedy=f"give a header, {','.join(COLUMNS)}, and rows"
        )


def _order(header: list[str], place: str) -> list[int]:
    """Return the position of each of our columns."""
    for name in header:
        if name not in COLUMNS or header.count(name) > 1:
            twice = header.count(name) > 1
            remedy = did_you_mean(name, COLUMNS) or f"columns: {','.join(COLUMNS)}"
            raise InputError(
                f"column {name!r} {'occurs twice' if twice else 'is not known'}", place=place, remedy=remedy
            )
    for name in COLUMNS:
        if name not in header:
            raise InputError(
                f"column {name!r} is missing", place=place, remedy=f"columns: {','.join(COLUMNS)}"
            )
    return [header.index(name) for name in COLUMNS]


def _request(number: int, words: list[str], place: str) -> Request:
    if number >= MOST_REQUESTS:
        raise InputError("too many requests", place=place, remedy=f"give at most {MOST_REQUESTS:,}")
    return Request(
        number,
        _seconds_as_ns(words[0], place),
        _tokens(PROMPT, words[1], place),
        _tokens(OUTPUT, words[2], place),
    )


def _seconds_as_ns(word: str, place: str) -> int:
    try:
        seconds = Decimal(word)
        if not 0 <= seconds <= LATEST_NS // 10**9:
            raise InvalidOperation
    except InvalidOperation:
        raise InputError(
            f"{ARRIVAL} is {word!r}", place=place, remedy="give seconds from 0 up, as in 1.25"
        ) from None
    return int(seconds * 10**9)


def _tokens(name: str, word: str, place: str) -> int:
    is_number = word.isascii() and word.isdigit() and len(word) <= len(str(MOST_TOKENS))
    if not is_number or not 1 <= int(word) <= MOST_TOKENS:
        shown = word if len(word) <= 20 else f"{word[:20]}…"
        remedy = f"give a whole number from 1 to {MOST_TOKENS:,}"
        raise InputError(f"{name} is {shown!r}", place=place, remedy=remedy)
    return int(word)


def _poisson(given: str, seed: int) -> list[Request]:
    """Return equal requests with exponential times between arrivals, RATE in a second on average."""
    words = given.removeprefix(POISSON).split(",")
    try:
        rate, count, prompt, output = float(words[0]), *(int(word) for word in words[1:])
    except ValueError:
        raise UsageError(f"{given!r} is not {POISSON_FORM}", remedy="as in poisson:10,1000,512,200") from None
    if not 0 < rate <= HIGHEST_RATE:
        remedy = f"give more than 0, and at most {HIGHEST_RATE:,.0f} requests in a second"
        raise UsageError(f"RATE is {words[0]}", place=given, remedy=remedy)
    tokens = (("PROMPT", prompt, MOST_TOKENS), ("OUTPUT", output, MOST_TOKENS))
    counts_of_rule(given, (("COUNT", count, MOST_REQUESTS), *tokens))
    import numpy as np

    between = np.random.default_rng(seed).exponential(1 / rate, count)
    arrivals = np.cumsum(between)
    if arrivals[-1] > LATEST_NS / 1e9:
        raise UsageError(f"{given!r} takes too long", remedy="give a higher rate or fewer requests")
    return [Request(number, int(at * 1e9), prompt, output) for number, at in enumerate(arrivals.tolist())]


def counts_of_rule(given: str, numbers: Sequence[tuple[str, int, int]]) -> None:
    """Refuse numbers of a rule that are not from 1 to a limit; each has a name."""
    for name, number, most in numbers:
        if not 1 <= number <= most:
            remedy = f"give a whole number from 1 to {most:,}"
            raise UsageError(f"{name} is {number}", place=given, remedy=remedy)
