"""Requests from files and rules: in the order of arrival, and refused with the line that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from et_sim.basics.errors import EtSimError
from et_sim.serving.reading import read_requests
from et_sim.serving.requests import Request

HEADER = "arrival_s,prompt_tokens,output_tokens\n"


def read(folder: Path, text: str) -> tuple[Request, ...]:
    path = folder / "requests.csv"
    path.write_text(text, encoding="utf-8")
    return read_requests(str(path))


def test_columns_stand_in_any_order_and_rows_too(tmp_path: Path) -> None:
    text = "output_tokens, arrival_s ,prompt_tokens\n7,1.5,3\n\n8,0.000000001,4\n"
    assert read(tmp_path, text) == (Request(1, 1, 4, 8), Request(0, 1_500_000_000, 3, 7))


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff" + HEADER.replace("\n", "\r\n") + "2,3,4\r\n") == (
        Request(0, 2 * 10**9, 3, 4),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "requests.csv: holds no requests"),
        (HEADER, "requests.csv: holds no requests"),
        ("arrival_s,prompt_tokens\n1,2\n", "line 1: column 'output_tokens' is missing"),
        (
            "arrival,prompt_tokens,output_tokens\n",
            "line 1: column 'arrival' is not known (did you mean 'arrival_s'?)",
        ),
        ("arrival_s,arrival_s,output_tokens\n", "line 1: column 'arrival_s' occurs twice"),
        (HEADER + "1,2\n", "line 2: 2 values for 3 columns"),
        (HEADER + "0,1,1\n-1,2,3\n", "line 3: arrival_s is '-1' (give seconds from 0 up"),
        (HEADER + "nan,2,3\n", "line 2: arrival_s is 'nan'"),
        (HEADER + "1e30,2,3\n", "line 2: arrival_s is '1e30'"),
        (
            HEADER + "\n1,-5,3\n",
            "line 3: prompt_tokens is '-5' (give a whole number from 1 to 1,000,000,000)",
        ),
        (HEADER + "1,5,0\n", "line 2: output_tokens is '0'"),
        (HEADER + "1,5.5,1\n", "line 2: prompt_tokens is '5.5'"),
        (HEADER + "1e999999,2,3\n", "line 2: arrival_s is '1e999999'"),
        (HEADER + "1,99999999999999999999,1\n", "line 2: prompt_tokens is"),
        (HEADER + f"1,{'0' * 11}1{'9' * 5000},1\n", "line 2: prompt_tokens is '00000000000199999999…'"),
        (HEADER + '1,"5,1\n', "line 2"),
    ],
)
def test_a_faulty_request_is_refused_with_its_line(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(EtSimError) as refusal:
        read(tmp_path, text)
    assert sentence in str(refusal.value)


def test_a_file_that_is_not_there_is_refused_with_the_other_way(tmp_path: Path) -> None:
    with pytest.raises(EtSimError, match=r"no such file of requests.*poisson:RATE"):
        read_requests(str(tmp_path / "none.csv"))


def test_poisson_arrivals_have_their_rate_and_follow_from_the_seed() -> None:
    result = read_requests("poisson:100,5000,20,30", seed=3)
    assert {(request.prompt, request.output) for request in result} == {(20, 30)}
    between = np.diff([request.arrival_ns for request in result])
    assert 0.95e7 < between.mean() < 1.05e7
    assert 0.9 < between.std() / between.mean() < 1.1
    assert result == read_requests("poisson:100,5000,20,30", seed=3)
    assert result != read_requests("poisson:100,5000,20,30", seed=4)


@pytest.mark.parametrize(
    "rule",
    [
        "poisson:1,2,3",
        "poisson:a,1,2,3",
        "poisson:1e-300,5,1,1",
    ],
)
def test_a_faulty_rule_is_refused(rule: str) -> None:
    with pytest.raises(EtSimError, match="poisson"):
        read_requests(rule)


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        ("0,1,2,3", "RATE is 0 (give more than 0, and at most 1,000,000,000 requests in a second)"),
        ("nan,5,1,1", "RATE is nan (give more than 0"),
        ("1,0,2,3", "COUNT is 0 (give a whole number from 1 to 10,000,000)"),
        ("1,1,0,3", "PROMPT is 0 (give a whole number from 1 to 1,000,000,000)"),
        ("1,1,2,2000000000", "OUTPUT is 2000000000 (give a whole number from 1 to 1,000,000,000)"),
    ],
)
def test_a_number_out_of_range_is_named_with_its_limits(rule: str, answer: str) -> None:
    with pytest.raises(EtSimError, match=re.escape(f"poisson:{rule}: {answer}")):
        read_requests(f"poisson:{rule}")
