"""Files are split into their pieces, for any position of the ends of blocks."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converters.pytorch.reading.json_chunks import JsonBatch, Member, container_end, elements, json_chunks
from converters.pytorch.reading.kineto_timeline import digits, nanoseconds
from converters.pytorch.reading.values import ValueColumn, ValueRows, repaired_json, whole_number
from et_sim.basics.errors import TraceError

NASTY = st.text(alphabet='"\\{}[],:\n\t aé€😀0', max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NASTY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NASTY, inner, max_size=4),
    max_leaves=12,
)
ELEMENTS = st.dictionaries(NASTY, VALUES, max_size=4) | st.lists(VALUES, max_size=3)
STYLES = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"indent": 2},
        {"indent": "\t", "separators": (" ,\r\n", " :\n ")},
        {"ensure_ascii": False},
    ]
)


def read(path: Path, block_bytes: int) -> list[tuple[str, Any]]:
    """Return all members, and the elements of lists one by one."""
    results: list[tuple[str, Any]] = []
    for piece in json_chunks(path, ("many",), block_bytes=block_bytes):
        content = json.loads(piece.value if isinstance(piece, Member) else piece.content)
        if isinstance(piece, JsonBatch):
            results += [(f"{piece.key}[]", element) for element in content]
        else:
            results.append((piece.key, content))
    return results


@given(
    before=st.dictionaries(st.text("abc", min_size=1, max_size=3), VALUES, max_size=3),
    many=st.lists(ELEMENTS, max_size=6),
    after=st.dictionaries(st.text("xyz", max_size=3), VALUES, max_size=3),
    style=STYLES,
    block_bytes=st.integers(1, 80),
)
def test_blocks_of_any_size_give_the_same_pieces(
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[str, Any],
    many: list[Any],
    after: dict[str, Any],
    style: dict[str, Any],
    block_bytes: int,
) -> None:
    path = tmp_path_factory.mktemp("pieces") / "file.json"
    path.write_text(json.dumps({**before, "many": many, **after}, **style), encoding="utf-8", newline="")
    expected = [*before.items(), *(("many[]", element) for element in many), *after.items()]
    assert read(path, block_bytes) == expected
    path.write_text(json.dumps(many, **style), encoding="utf-8", newline="")
    assert read(path, block_bytes) == [("[]", element) for element in many]


@given(element=ELEMENTS, rest=st.text(alphabet='"\\{}[], ', max_size=20), style=STYLES)
def test_the_end_of_an_element_is_found_before_any_text(
    element: Any, rest: str, style: dict[str, Any]
) -> None:
    text = json.dumps(element, **style).encode()
    assert container_end(text + rest.encode()) == len(text)
    assert container_end(text[:-1]) == -1
    result = elements(text + b"," + text[:-1])
    assert (result.end, result.closed_at) == (len(text), -1)
    assert elements(text + b"]" + rest.encode()).closed_at == len(text)


def test_a_block_that_is_no_json_still_has_its_boundaries_inside() -> None:
    for text in (b"", b"]", b"}}}}", b'"""', b"\\", b'{"a\\', b"\\\\\\", b"{[}]", bytes(range(256)) * 3):
        result = elements(text)
        assert 0 <= result.end <= len(text)
        assert -1 <= result.closed_at < max(1, len(text))


@given(value=VALUES, style=STYLES)
def test_valid_text_needs_no_mending(value: Any, style: dict[str, Any]) -> None:
    text = json.dumps({"key": value}, **style).encode("utf-8", "surrogatepass")
    assert repaired_json(text) == text


@pytest.mark.parametrize(
    ("almost", "meant"),
    [
        (b'[nan, -inf, inf, NaN, Infinity, -Infinity, "nan"]', [None] * 6 + ["nan"]),
        (b'["a\xffb"]', ["a�b"]),
        (b'["C:\\dir"]', ["C:\\dir"]),
        (b'["\\uZ"]', ["\\uZ"]),
        (b'["a\nb\x00"]', ["a\nb\x00"]),
        (b'["\\ud800 \\udc00"]', ["� �"]),
        (b'["\\ud83d\\ude00 \\\\ud800 \\udc00"]', ["😀 \\ud800 �"]),
        (b'{"x": "in {brackets}, nan", "y": -nan}', {"x": "in {brackets}, nan", "y": None}),
    ],
)
def test_almost_valid_json_is_read_as_intended(almost: bytes, meant: Any) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        msgspec.json.decode(almost)
    assert msgspec.json.decode(repaired_json(almost)) == meant


@given(
    whole=st.integers(-(10**6), 2**43 - 1),
    thousandths=st.integers(0, 999),
    more=st.lists(st.integers(0, 10**9)),
)
def test_decimals_of_relative_times_are_exact(whole: int, thousandths: int, more: list[int]) -> None:
    exact = whole * 1000 + (thousandths if whole >= 0 else -thousandths)
    written = str(Decimal(exact) / 1000)
    result = nanoseconds([float(written), *(float(number) for number in more)])
    assert result is not None
    assert result.tolist() == [exact, *(number * 1000 for number in more)]
    assert digits([written.encode()]).tolist() == [exact]


@pytest.mark.parametrize(
    ("written", "exact"),
    [
        (b"1712345678901234.567", 1712345678901234567),
        (b"1712345678901234", 1712345678901234000),
        (b"1.5e3", 1500000),
        (b'"12.0005"', 12000),  # half a nanosecond goes to the even one
        (b"-0.001", -1),
    ],
)
def test_decimals_of_absolute_times_are_read_digit_by_digit(written: bytes, exact: int) -> None:
    assert digits([written]).tolist() == [exact]


def test_times_beyond_the_precision_of_floats_are_not_guessed() -> None:
    assert nanoseconds([1712345678901234.5]) is None
    assert nanoseconds([1.5, "2"]) is None
    assert nanoseconds([2**62]) is None
    assert nanoseconds([1706850123211542]).tolist() == [1706850123211542000]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (7, 7),
        ("7", 7),
        ("0x10", 16),
        (2**64 - 1, -1),
        (7.0, 7),
        (7.5, -1),
        (None, -1),
        ("", -1),
        ("seven", -1),
    ],
)
def test_numbers_are_read_in_every_notation(written: Any, number: int) -> None:
    assert whole_number(written) == number
    column = ValueColumn()
    column.add([written, 3])
    assert column.finish().tolist() == [number, 3]


@given(blocks=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5), max_size=5))
def test_columns_hold_every_number_in_as_few_bits_as_its_block_allows(blocks: list[list[int]]) -> None:
    column, rows = ValueColumn(), ValueRows("only")
    for block in blocks:
        column.add(block)
        for number in block:
            rows.append(number)
    expected = [number for block in blocks for number in block]
    result = column.finish()
    assert result.tolist() == rows.finish()["only"].tolist() == expected
    needs_64 = any(not -(2**31) < number < 2**31 for number in expected)
    assert result.dtype == (np.int64 if needs_64 else np.int32)


def test_an_element_longer_than_the_block_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    long = {"name": "x" * 100_000, "more": [{}] * 1000}
    path.write_text(json.dumps({"many": [long, {}, long]}))
    assert read(path, 64) == [("many[]", long), ("many[]", {}), ("many[]", long)]


@pytest.mark.parametrize(
    "text", ['{"a": 1', '{"many": [{"a": 1}, {"b"', '{"many": [{}]', "[{}, ", '{"a": "x', '{"a']
)
def test_a_file_that_ends_early_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(
        TraceError, match=r"file\.json: byte \d+: the file ends in the middle of .* record again"
    ):
        read(path, 16)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("PK\x03\x04", "not with a JSON object"),
        ('{"a": 1} {"b": 2}', "text follows after the end"),
        ('{"a" 1}', 'a colon is expected after "a"'),
        ("{a: 1}", "the name of a member is expected"),
        ('{"a": [1]; "b": 2}', '"," or "}" is expected'),
        ('{"many": [{} {}]}', None),
    ],
)
def test_text_that_is_no_json_is_refused(tmp_path: Path, text: str, complaint: str | None) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    if complaint is None:  # found by the decoder, inside a batch
        with pytest.raises(json.JSONDecodeError):
            read(path, 100)
        return
    with pytest.raises(TraceError, match=complaint):
        read(path, 3)


def test_a_mark_of_byte_order_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b'\xef\xbb\xbf{"many": [{"a": 1}]}')
    assert read(path, 4) == [("many[]", {"a": 1})]
