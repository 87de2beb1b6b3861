"""Reading of layer files, strictly: text that 1.0 would misread is refused with its place.

    KEYWORD [extras]
    <number of layers>
    <name> <reserved> <ns> <collective> <bytes> <ns> <collective> <bytes> <ns> <collective> <bytes> <ns>

Words are separated by white space, and line breaks have no meaning: a whole file may be one line. Lines are
only used for advice, because people write a layer per line. Refusals name the line and column of a word.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, TraceError, did_you_mean
from et_sim.basics.files import is_file
from et_sim.basics.units import LONGEST_NS, MOST_BYTES
from et_sim.layerfile.layer_file import (
    COLLECTIVE_WORDS,
    DLRMS,
    KEYWORDS,
    PER_LAYER,
    TRANSFORMERS,
    Keyword,
    Layer,
    LayerFile,
    LayerPhase,
    PhaseWork,
)
from et_sim.trace.disk import read_bytes, read_unpacked, unpacked

# White space of C++ streams; other characters belong to words.
_WORD = re.compile(r"[^ \t\n\v\f\r]+")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LONGEST_SHOWN = 40


class Token(Struct, frozen=True):
    """A word and its place; lines and columns count from 1."""

    text: str
    line: int
    column: int


def tokens_of(text: str) -> list[Token]:
    """Return all words, in order."""
    return [
        Token(match[0], number, match.start() + 1)
        for number, line in enumerate(text.split("\n"), start=1)
        for match in _WORD.finditer(line)
    ]


def shown(text: str) -> str:
    """Return a word as messages quote it."""
    return f'"{text}"' if len(text) <= _LONGEST_SHOWN else f'"{text[: _LONGEST_SHOWN - 3]}..."'


class TokenReader(Struct):
    """Reader of tokens in turn, which refuses unsuitable ones with their places."""

    tokens: Sequence[Token]
    source: str
    at: int = 0

    def peek(self, ahead: int = 0) -> Token | None:
        """Return a later token."""
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def word(self, expected: str, remedy: str) -> Token:
        """Return the next token."""
        token = self.peek()
        if token is None:
            last = self.tokens[-1].line
            raise TraceError(
                f"the file ends where {expected} should stand",
                place=f"{self.source}, line {last}",
                remedy=remedy,
            )
        self.at += 1
        return token

    def integer(self, expected: str, remedy: str, *, least: int = 0, most: int) -> int:
        """Return the next token as an integer."""
        token = self.word(expected, remedy)
        if not _INTEGER.fullmatch(token.text):
            cause = f"{expected} should stand here, an integer; found {shown(token.text)}"
            raise self.refused(token, cause, remedy)
        value = int(token.text) if len(token.text) <= _LONGEST_SHOWN else most + 1
        if not least <= value <= most:
            limits = f"from {least} to {most:,}" if least > -most else f"within {most:,} of zero"
            raise self.refused(token, f"{expected} is {shown(token.text)[1:-1]}", f"it must be {limits}")
        return value

    def choice(self, expected: str, choices: Sequence[str], remedy: str = "") -> str:
        """Return the next token as one of some words."""
        token = self.word(expected, remedy or f"one of {', '.join(choices)}")
        if token.text in choices:
            return token.text
        near = did_you_mean(token.text, list(choices)) or did_you_mean(token.text.upper(), list(choices))
        advice = " ".join(part for part in (near, remedy or f"known: {', '.join(choices)}") if part)
        raise self.refused(token, f"{expected} should stand here; found {shown(token.text)}", advice)

    def refused(self, token: Token, cause: str, remedy: str) -> TraceError:
        """Return an error with a token's place."""
        place = f"{self.source}, line {token.line}, column {token.column}"
        return TraceError(cause, place=place, remedy=remedy)


MOST_LAYERS = 100_000
_MOST_NPUS = 1 << 24
_WORDS_PER_LAYER = 12
_LOOKED_AT = 4096  # bytes that decide whether a file is a layer file
_FORM = "a layer is 12 words: name, reserved, time, collective and bytes of each of 3 phases, update time"
_GROUP = "a transformer keyword is followed by a label, the group's size,"
_EXTRAS = {
    Keyword.HYBRID_TRANSFORMER: f"{_GROUP} and the number of layers",
    Keyword.HYBRID_TRANSFORMER_FWD_IN_BCKWD: f"{_GROUP} twice a label, a count and as many layers, and the"
    " number of layers",
    **dict.fromkeys(DLRMS, "this keyword is followed by the last bottom layer and the number of layers"),
}
_COUNT_FORM = "give the number of layers after the keyword"


def read_layer_file(path: str | Path) -> LayerFile:
    """Return the layers of a file, which may be compressed with gzip."""
    raw = read_bytes(Path(path))
    layer_file = parse_layer_file(_text_of(unpacked(raw, str(path)), path), str(path))
    return replace(layer_file, sha256=hashlib.sha256(raw).hexdigest())


def read_text(path: str | Path) -> str:
    """Return the text of a file that should be a layer file."""
    return _text_of(read_unpacked(Path(path)), path)


def _text_of(content: bytes, path: str | Path) -> str:
    remedy = "a layer file is text that begins with a keyword such as DATA"
    if b"\0" in content:
        raise TraceError(f"byte {content.index(0)} is 0: not a text", place=str(path), remedy=remedy)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        cause = f"byte {error.start} is not UTF-8 text"
        raise TraceError(cause, place=str(path), remedy=remedy) from None


def looks_like_layer_file(path: str | Path) -> bool:
    """Return whether a file begins like a layer file: with a keyword, or nearly one."""
    path = Path(path)
    if not is_file(path):
        return False
    try:
        with path.open("rb") as file:
            begin = file.read(_LOOKED_AT)
        if begin.startswith(b"\x1f\x8b"):
            begin = read_unpacked(path)[:_LOOKED_AT]
    except (OSError, EtSimError):
        return False
    if b"\0" in begin:
        return False
    words = begin.decode("utf-8-sig", errors="replace").split(maxsplit=1)
    return bool(words) and (words[0].upper() in KEYWORDS or _is_nearly_keyword(words[0]))


def _is_nearly_keyword(word: str) -> bool:
    """Return whether a word is a misspelt keyword; short words are similar to too many."""
    is_wordlike = word.replace("_", "").isalpha() and len(word) > 6
    return is_wordlike and bool(did_you_mean(word.upper(), KEYWORDS))


def parse_layer_file(text: str, source: str = "<text>") -> LayerFile:
    """Return the layers of a text; `source` is its name in messages."""
    tokens = tokens_of(text)
    if not tokens:
        remedy = "a layer file begins with a keyword such as DATA, the number of layers, and the layers"
        raise TraceError("the file is empty", place=source, remedy=remedy)
    reader = TokenReader(tokens, source)
    keyword = Keyword(reader.choice("a keyword", KEYWORDS))
    head = _read_head(reader, keyword)
    layers = _read_layers(reader, keyword, head.layers)
    return LayerFile(
        keyword,
        layers,
        head.group,
        tuple(sorted(set(head.checkpoints))),
        tuple(sorted(set(head.initiates))),
        head.last_bottom_layer,
        source,
    )


class _Head(Struct, frozen=True):
    """Words before the layers."""

    layers: int
    group: int | None
    checkpoints: list[int]
    initiates: list[int]
    last_bottom_layer: int | None


def _read_head(reader: TokenReader, keyword: Keyword) -> _Head:
    group = last_bottom = None
    places: list[list[Token]] = [[], []]
    form = _EXTRAS.get(keyword, _COUNT_FORM)
    if keyword in TRANSFORMERS:
        reader.word("a label such as model_parallel_NPU_group:", form)
        group = reader.integer("the size of the model-parallel group", form, least=1, most=_MOST_NPUS)
    if keyword == Keyword.HYBRID_TRANSFORMER_FWD_IN_BCKWD:
        places = [_read_indices(reader, label, form) for label in ("checkpoints", "checkpoint_initiates")]
    bottom = reader.peek()
    if keyword in DLRMS:
        last_bottom = reader.integer("the index of the last bottom layer", form, most=MOST_LAYERS)
    count = reader.integer("the number of layers", form, least=1, most=MOST_LAYERS)
    if last_bottom is not None and bottom is not None and last_bottom >= count:
        raise reader.refused(bottom, _out_of_range("the last bottom layer", last_bottom, count), _COUNTED)
    checkpoints, initiates = ([int(token.text) for token in tokens] for tokens in places)
    for role, tokens in zip(("checkpoint", "checkpoint initiate"), places, strict=True):
        for token in tokens:
            if int(token.text) >= count:
                raise reader.refused(token, _out_of_range(role, int(token.text), count), _COUNTED)
    for token in places[1]:
        _check_recomputation(reader, token, checkpoints, initiates)
    return _Head(count, group, checkpoints, initiates, last_bottom)


_COUNTED = "layers are counted from 0"


def _out_of_range(role: str, index: int, count: int) -> str:
    return f"{role} is layer {index}, and there are layers 0 to {count - 1}"


def _read_indices(reader: TokenReader, label: str, form: str) -> list[Token]:
    """Return the tokens of layers, after a label and their count."""
    reader.word(f"a label such as {label}:", form)
    count = reader.integer(f"the number of {label}", form, most=MOST_LAYERS)
    tokens = []
    for number in range(count):
        token = reader.peek()
        reader.integer(f"layer {number + 1} of {count} {label}", form, most=MOST_LAYERS)
        if token is not None:
            tokens.append(token)
    return tokens


def _check_recomputation(
    reader: TokenReader, token: Token, checkpoints: list[int], initiates: list[int]
) -> None:
    """Refuse recomputation that does not lead from a checkpoint to the layer that starts it."""
    initiate = int(token.text)
    below = [checkpoint for checkpoint in checkpoints if checkpoint <= initiate]
    if not below:
        raise reader.refused(
            token,
            f"recomputation starts at layer {initiate}, and no checkpoint is at or below it",
            "add a checkpoint, such as layer 0, or take this initiate out",
        )
    start = max(below)
    if start == initiate:
        raise reader.refused(
            token,
            f"layer {initiate} starts recomputation and is a checkpoint itself, so that there is nothing to"
            " compute again, and 1.0 never ends",
            "take it out of the initiates or of the checkpoints",
        )
    between = [other for other in initiates if start < other < initiate]
    if between:
        raise reader.refused(
            token,
            f"recomputation for layer {initiate} starts at checkpoint {start} and meets initiate"
            f" {min(between)} on its way, from where 1.0 leaves out the gradients of the layers above it",
            "take one of these initiates out, or let a checkpoint come after the lower one",
        )


def _read_layers(reader: TokenReader, keyword: Keyword, count: int) -> tuple[Layer, ...]:
    layers: list[Layer] = []
    announced = reader.tokens[reader.at - 1]
    for number in range(count):
        if reader.peek() is None:
            remedy = "correct the number, or add the layers that are missing"
            cause = f"the number of layers is {count}, and the file ends after {number}"
            raise reader.refused(announced, cause, remedy)
        layers.append(_read_layer(reader, keyword, number))
    token = reader.peek()
    if token is not None:
        left = len(reader.tokens) - reader.at
        each = _WORDS_PER_LAYER + (keyword == Keyword.HYBRID_CUSTOMIZED)
        more = f"{count + left // each} layers" if left % each == 0 else "more after them"
        cause = f"the number of layers is {count} (line {announced.line}), and the file has {more}:"
        cause = f"{cause} {shown(token.text)} stands here"
        raise reader.refused(token, cause, "correct the number, or take the rest out")
    return tuple(layers)


def _read_layer(reader: TokenReader, keyword: Keyword, number: int) -> Layer:
    name = reader.word("the name of a layer", _FORM)
    layer = f"layer {number} ({shown(name.text)})"
    first = reader.at - 1

    def integer(of: str, most: int, least: int = 0) -> int:
        return reader.integer(f"{of} of {layer}", _advice(reader, first), least=least, most=most)

    reserved = integer("the reserved number", 2**31 - 1, -(2**31))
    works = []
    for phase in LayerPhase:
        compute = integer(f"the {phase.words} time", LONGEST_NS)
        word = _read_collective(reader, f"the {phase.words} collective of {layer}", first)
        size = integer(f"the {phase.words} bytes", MOST_BYTES)
        works.append(PhaseWork(compute, COLLECTIVE_WORDS[word], size))
    update = integer("the update time", LONGEST_NS)
    own_keyword = None
    if keyword == Keyword.HYBRID_CUSTOMIZED:
        own_keyword = _read_own_keyword(reader, layer)
    else:
        _refuse_own_keyword(reader, keyword, layer)
    return Layer(name.text, works[0], works[1], works[2], update, own_keyword, reserved)


def _read_collective(reader: TokenReader, expected: str, first: int) -> str:
    token = reader.peek()
    if token is not None and token.text == "ALLREDUCEALLTOALL":
        cause = f"{expected} is ALLREDUCEALLTOALL, which nothing can run: 1.0 ends where it is issued"
        raise reader.refused(token, cause, f"use one of {', '.join(COLLECTIVE_WORDS)}")
    words = tuple(COLLECTIVE_WORDS)
    remedy = f"one of {', '.join(words)}; 1.0 takes any other word as NONE"
    advice = _advice(reader, first)
    return reader.choice(expected, words, remedy if advice == _FORM else advice)


def _read_own_keyword(reader: TokenReader, layer: str) -> Keyword:
    token = reader.peek()
    if token is not None and token.text in KEYWORDS and token.text not in PER_LAYER:
        raise reader.refused(
            token,
            f"the keyword of {layer} is {token.text}, which does not define the dimensions of one layer",
            f"give one of {', '.join(PER_LAYER)}",
        )
    remedy = f"in a HYBRID_CUSTOMIZED file every layer ends with one of {', '.join(PER_LAYER)}"
    return Keyword(reader.choice(f"the keyword of {layer}", PER_LAYER, remedy))


def _refuse_own_keyword(reader: TokenReader, keyword: Keyword, layer: str) -> None:
    """Refuse a 13th word, which 1.0 would misread; it may be the name of a layer before its
    reserved number.
    """
    token, following = reader.peek(), reader.peek(1)
    if token is None or token.text not in KEYWORDS:
        return
    if following is None or not following.text.lstrip("+-").isdecimal():
        raise reader.refused(
            token,
            f"{layer} has a 13th word, {token.text}, and the file is {keyword}",
            "only files of HYBRID_CUSTOMIZED have one: take it out, or change the file's keyword",
        )


def _advice(reader: TokenReader, first: int) -> str:
    """Return advice on the layer whose name is token `first`, judging by lines."""
    token, name = reader.peek(), reader.tokens[first]
    before = reader.tokens[first - 1]
    if name.line == before.line and first > 2:
        return f"{_FORM}; line {name.line} seems to have more"
    if token is not None and token.line != name.line:
        return f"{_FORM}; the layer that begins on line {name.line} seems to have fewer"
    return _FORM
