"""Files of requests, recognised by their content: CSV of several columns, and JSON lines.

| columns or keys | of |
|---|---|
| arrival_s, prompt_tokens, output_tokens, and session, think_s, model | et-sim |
| TIMESTAMP, ContextTokens, GeneratedTokens | traces of LLM inference in Azure |
| Timestamp, Model, Request tokens, Response tokens, Total tokens, Log Type | BurstGPT |
| timestamp, input_length, output_length, hash_ids | Mooncake |

Columns come in any order; others are refused.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from et_sim.basics.errors import InputError, did_you_mean, unreadable
from et_sim.basics.files import is_file
from et_sim.basics.units import plural
from et_sim.serving.requests import (
    CLOSED_FORM,
    HASHED_TOKENS,
    LATEST_NS,
    MOST_REQUESTS,
    MOST_TOKENS,
    NONE,
    POISSON_FORM,
    Request,
)

ARRIVAL, PROMPT, OUTPUT, SESSION, THINK = "arrival_s", "prompt_tokens", "output_tokens", "session", "think_s"
MODEL = "model"
COLUMNS = (ARRIVAL, PROMPT, OUTPUT)
NS_OF = {"s": 10**9, "ms": 10**6}
_LONGEST_SHOWN = 20


class FileRow(NamedTuple):
    """A row of a file: its place, its request, and its session."""

    place: str
    arrival_ns: int | None  # None: it follows the answer of the turn before
    prompt: int
    output: int
    session: str = ""
    think_ns: int = 0
    hashes: tuple[int, ...] = ()
    model: str = ""


class _Format(Struct, frozen=True):
    """The columns of a kind of CSV."""

    time: str
    prompt: str
    output: str
    read_time: Callable[[str, str, str], int]  # name, text and place
    unused: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    is_relative: bool = True  # times count from the begin of the trace; else they are dates
    without_answer: str = ""  # remedy for an output of 0

    @property
    def needed(self) -> tuple[str, ...]:
        return (self.time, self.prompt, self.output)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.needed, *self.unused, *self.optional)


def requests_of_file(path: Path, models: Sequence[str] = ()) -> list[Request]:
    """Return the requests of a file, in its order; they may name some of the models."""
    text = _text(path)
    if text.lstrip().startswith("["):
        raise InputError("is a JSON list", place=str(path), remedy=f"give an object a line, as in {EXAMPLE}")
    is_json = text.lstrip().startswith("{")
    rows = list(_json_rows(path, text) if is_json else _csv_rows(path, text))
    if not rows:
        raise InputError(
            "holds no requests", place=str(path), remedy=f"give a header, {','.join(COLUMNS)}, and rows"
        )
    return list(_requests(rows, models))


def _text(path: Path) -> str:
    if not is_file(path):
        remedy = f"give a CSV file with the columns {','.join(COLUMNS)}, {POISSON_FORM} or {CLOSED_FORM}"
        raise InputError("there is no such file of requests", place=str(path), remedy=remedy)
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot be read: {unreadable(error)}", place=str(path), remedy="give a CSV file"
        ) from None


def _model_of(row: FileRow, models: Sequence[str]) -> int:
    """Return the place of the model that a row names."""
    if not row.model or not models:
        return NONE
    if models.count(row.model) > 1:
        raise InputError(
            f"{MODEL} is {_brief(row.model)}, which both models are named",
            place=row.place,
            remedy=f"leave out the column, and give a share with --second-model {row.model},share=0.3",
        )
    if row.model not in models:
        remedy = did_you_mean(row.model, tuple(models)) or f"served: {', '.join(models)}; see --second-model"
        raise InputError(
            f"{MODEL} is {_brief(row.model)}, which is not served", place=row.place, remedy=remedy
        )
    return models.index(row.model)


def _requests(rows: Sequence[FileRow], models: Sequence[str]) -> Iterator[Request]:
    """Yield the requests of rows, each behind the turn before it."""
    last: dict[str, Request] = {}
    for number, row in enumerate(rows):
        place, arrival, prompt, output, session, think, hashes, _ = row
        if number >= MOST_REQUESTS:
            raise InputError("too many requests", place=place, remedy=f"give at most {MOST_REQUESTS:,}")
        before = last.get(session) if session else None
        if arrival is None and before is None:
            raise InputError(
                f"{ARRIVAL} is missing", place=place, remedy="give the seconds at which the session begins"
            )
        if arrival is not None and before is not None:
            raise InputError(
                f"{ARRIVAL} of a later turn of session {session!r} is given",
                place=place,
                remedy=f"leave it empty, and give {THINK}",
            )
        if before is not None and prompt <= (least := before.prompt + before.output):
            raise InputError(
                f"{PROMPT} is {prompt}, but the turn before ends after {least} tokens",
                place=place,
                remedy="give more, since a prompt begins with the prompts and answers of earlier turns",
            )
        model = _model_of(row, models)
        if before is not None and before.model != model:
            raise InputError(
                f"{MODEL} differs from that of the turn before in session {session!r}",
                place=place,
                remedy="give all turns of a session to one model",
            )
        request = Request(number, arrival or 0, prompt, output, hashes=hashes, model=model)
        if before is not None:
            request = msgspec.structs.replace(
                request, after=before.number, think_ns=think, session=before.session
            )
        elif session:
            request = msgspec.structs.replace(request, session=number)
        if session:
            last[session] = request
        yield request


# Values.


def _time(unit: str) -> Callable[[str, str, str], int]:
    """Return a reader of times in a unit."""

    def read(name: str, word: str, place: str) -> int:
        try:
            value = Decimal(word)
            if "_" in word or not 0 <= value <= LATEST_NS // NS_OF[unit]:
                raise InvalidOperation
        except InvalidOperation:
            whole = {"s": "seconds", "ms": "milliseconds"}[unit]
            remedy = f"give {whole} from 0 up, as in 1.25"
            raise InputError(f"{name} is {_brief(word)}", place=place, remedy=remedy) from None
        return int(value * NS_OF[unit])

    return read


def _date(name: str, word: str, place: str) -> int:
    """Return a date in ns; without a zone it is UTC. Fractions have up to nine digits."""
    try:
        seconds, _, rest = word.partition(".")
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        if len(digits) > len("123456789"):
            raise ValueError
        at = datetime.fromisoformat(seconds + rest[len(digits) :])
        since = at.replace(tzinfo=at.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except ValueError:
        remedy = "give a date and a time, as in 2023-11-16 18:15:46.6805900"
        raise InputError(f"{name} is {_brief(word)}", place=place, remedy=remedy) from None
    return (since.days * 86_400 + since.seconds) * 10**9 + int((digits or "0").ljust(9, "0"))


def _tokens(name: str, word: str, place: str, remedy: str = "") -> int:
    is_number = word.isascii() and word.isdigit() and len(word) <= len(str(MOST_TOKENS))
    if not is_number or not 1 <= int(word) <= MOST_TOKENS:
        usual = f"give a whole number from 1 to {MOST_TOKENS:,}"
        is_none = is_number and not int(word)
        raise InputError(
            f"{name} is {_brief(word)}", place=place, remedy=remedy if is_none and remedy else usual
        )
    return int(word)


def _brief(word: str) -> str:
    return repr(word if len(word) <= _LONGEST_SHOWN else f"{word[:_LONGEST_SHOWN]}…")


# CSV.

OWN = _Format(ARRIVAL, PROMPT, OUTPUT, _time("s"), optional=(SESSION, THINK, MODEL))
AZURE = _Format(
    "TIMESTAMP",
    "ContextTokens",
    "GeneratedTokens",
    _date,
    is_relative=False,
    without_answer="leave out requests without an answer",
)
BURST = _Format(
    "Timestamp",
    "Request tokens",
    "Response tokens",
    _time("s"),
    unused=("Model", "Total tokens", "Log Type"),
    optional=("Session ID", "Elapsed time"),
    without_answer="leave out requests that failed, as BurstGPT_without_fails does",
)
FORMATS = (OWN, AZURE, BURST)


def _csv_rows(path: Path, text: str) -> Iterator[FileRow]:
    reader = csv.reader(io.StringIO(text, newline=""))
    header: list[str] = []
    of, first = OWN, None
    try:
        for row in reader:
            place = f"{path}, line {reader.line_num}"
            words = [word.strip() for word in row]
            if not any(words):
                continue
            if not header:
                header, of = words, _format_of(words, place)
                continue
            if len(words) != len(header):
                raise InputError(
                    f"{plural(len(words), 'value')} for {len(header)} columns",
                    place=place,
                    remedy=f"give {', '.join(header)}",
                )
            found = _csv_row(of, dict(zip(header, words, strict=True)), place)
            if not of.is_relative and found.arrival_ns is not None:
                first = found.arrival_ns if first is None else first
                found = found._replace(arrival_ns=_after(first, found, of))
            yield found
    except csv.Error as error:
        place = f"{path}, line {reader.line_num}"
        raise InputError(f"is no CSV: {error}", place=place, remedy="correct it") from None


def _after(first: int, row: FileRow, of: _Format) -> int:
    """Return the time of a row since the first one."""
    since = (row.arrival_ns or 0) - first
    if not 0 <= since <= LATEST_NS:
        raise InputError(
            f"{of.time} is {'before' if since < 0 else 'long after'} that of the first row",
            place=row.place,
            remedy="sort the rows by time",
        )
    return since


def _format_of(header: list[str], place: str) -> _Format:
    """Return the format with most of the columns of a header; refuse other columns."""
    of = max(FORMATS, key=lambda each: len(set(header) & set(each.needed)))
    for name in header:
        if name not in of.columns or header.count(name) > 1:
            twice = header.count(name) > 1
            remedy = did_you_mean(name, of.columns) or f"columns: {','.join(of.columns)}"
            remedy = "leave one out" if twice else remedy
            raise InputError(
                f"column {name!r} {'occurs twice' if twice else 'is not known'}", place=place, remedy=remedy
            )
    for name in (*of.needed, *of.unused):
        if name not in header:
            needed = ",".join((*of.needed, *of.unused))
            raise InputError(f"column {name!r} is missing", place=place, remedy=f"columns: {needed}")
    if of is OWN and (SESSION in header) != (THINK in header):
        missing = THINK if SESSION in header else SESSION
        remedy = f"give both {SESSION} and {THINK}, or neither"
        raise InputError(f"column {missing!r} is missing", place=place, remedy=remedy)
    return of


def _csv_row(of: _Format, words: Mapping[str, str], place: str) -> FileRow:
    session, think, model = (words.get(name, "") if of is OWN else "" for name in (SESSION, THINK, MODEL))
    if of is OWN and MODEL in words and not model:
        raise InputError(f"{MODEL} is empty", place=place, remedy="give the model of each request")
    if think and not session:
        raise InputError(f"{THINK} is given without a session", place=place, remedy=f"give {SESSION}, too")
    if think and words[of.time]:
        raise InputError(
            f"both {ARRIVAL} and {THINK} are given",
            place=place,
            remedy=f"give {ARRIVAL} of the first turn of a session, and {THINK} of the later ones",
        )
    return FileRow(
        place,
        None if think else of.read_time(of.time, words[of.time], place),
        _tokens(of.prompt, words[of.prompt], place),
        _tokens(of.output, words[of.output], place, of.without_answer),
        session,
        _time("s")(THINK, think, place) if think else 0,
        model=model,
    )


# JSON lines.

TIMESTAMP, INPUT_LENGTH, OUTPUT_LENGTH, HASHES = KEYS = (
    "timestamp",
    "input_length",
    "output_length",
    "hash_ids",
)
EXAMPLE = '{"timestamp": 0, "input_length": 600, "output_length": 50, "hash_ids": [7, 8]}'


def _json_rows(path: Path, text: str) -> Iterator[FileRow]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            content = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"is no JSON: {error}", place=place, remedy=f"as in {EXAMPLE}") from None
        if not isinstance(content, dict):
            raise InputError("is no object", place=place, remedy=f"as in {EXAMPLE}")
        yield _json_row(content, place)


def _json_row(content: dict[str, Any], place: str) -> FileRow:
    for name in content:
        if name not in KEYS:
            remedy = did_you_mean(name, KEYS) or f"keys: {', '.join(KEYS)}"
            raise InputError(f"key {_brief(name)} is not known", place=place, remedy=remedy)
    for name in KEYS:
        if name not in content:
            raise InputError(f"key {name!r} is missing", place=place, remedy=f"as in {EXAMPLE}")
    words = {name: _word(content[name]) for name in KEYS[:-1]}
    prompt = _tokens(INPUT_LENGTH, words[INPUT_LENGTH], place)
    return FileRow(
        place,
        _time("ms")(TIMESTAMP, words[TIMESTAMP], place),
        prompt,
        _tokens(OUTPUT_LENGTH, words[OUTPUT_LENGTH], place, "leave out requests without an answer"),
        hashes=_hashes(content[HASHES], prompt, place),
    )


def _word(value: Any) -> str:
    """Return a number as it is written; other values as JSON."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return msgspec.json.encode(value).decode()


def _hashes(given: Any, prompt: int, place: str) -> tuple[int, ...]:
    """Return hashes of blocks of 512 tokens, the last one of the rest."""
    is_list = isinstance(given, list)
    if not is_list or not all(isinstance(each, int) and not isinstance(each, bool) for each in given):
        raise InputError(f"{HASHES} is no list of whole numbers", place=place, remedy=f"as in {EXAMPLE}")
    blocks = -(-prompt // HASHED_TOKENS)
    if len(given) != blocks:
        raise InputError(
            f"{HASHES} has {len(given)} numbers, but {prompt} tokens are {blocks} blocks of {HASHED_TOKENS}",
            place=place,
            remedy=f"give one number for each {HASHED_TOKENS} tokens, and one for the rest",
        )
    return tuple(given)
