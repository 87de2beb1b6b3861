"""Published traces and sessions: recognised by their content, read exactly, and refused with their line."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from test_batching import KnownTimes, pool

from et_sim.basics.errors import EtSimError
from et_sim.serving.batcher import POLICIES, Policy
from et_sim.serving.clients import Client, read_traffic
from et_sim.serving.cluster import ServingCluster
from et_sim.serving.reading import read_requests
from et_sim.serving.requests import Request
from et_sim.serving.rules import is_drawn

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
OWN = "arrival_s,prompt_tokens,output_tokens,session,think_s\n"


def read(folder: Path, text: str) -> tuple[Request, ...]:
    path = folder / "trace"
    path.write_text(text, encoding="utf-8")
    return read_requests(str(path))


def line(**changes: object) -> str:
    content = {"timestamp": 27482, "input_length": 600, "output_length": 52, "hash_ids": [46, 47], **changes}
    return json.dumps({key: value for key, value in content.items() if value is not ...}) + "\n"


def test_dates_of_azure_count_from_the_first_row_to_the_tenth_of_a_microsecond(tmp_path: Path) -> None:
    text = AZURE + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    assert read(tmp_path, text) == (Request(0, 0, 374, 44), Request(1, 4_314_579_000, 396, 109))
    zones = AZURE + "2024-05-10 23:59:59.9+00:00,1,2\n2024-05-11 00:00:00+00:00,3,4\n"
    assert [request.arrival_ns for request in read(tmp_path, zones)] == [0, 100_000_000]


def test_seconds_of_burst_gpt_count_from_its_begin(tmp_path: Path) -> None:
    text = BURST + "5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087,230,1317,API log\n"
    assert read(tmp_path, text) == (Request(0, 5 * 10**9, 472, 18), Request(1, 45_500_000_000, 1087, 230))
    newer = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    assert read(tmp_path, newer + "5,,1.5,ChatGPT,472,18,490,API log\n") == (Request(0, 5 * 10**9, 472, 18),)


def test_milliseconds_and_hashes_of_mooncake_are_kept(tmp_path: Path) -> None:
    text = line() + "\n" + line(timestamp=30535.5, input_length=512, hash_ids=[46])
    assert read(tmp_path, text) == (
        Request(0, 27_482_000_000, 600, 52, hashes=(46, 47)),
        Request(1, 30_535_500_000, 512, 52, hashes=(46,)),
    )


def test_turns_of_a_session_follow_each_other(tmp_path: Path) -> None:
    text = OWN + "1,100,10,a,\n0.5,7,7,,\n,200,20,a,1.5\n2,50,5,b,\n,300,30,a,0\n"
    second = 10**9
    assert read(tmp_path, text) == (
        Request(1, second // 2, 7, 7),
        Request(0, second, 100, 10, session=0),
        Request(2, 0, 200, 20, after=0, think_ns=3 * second // 2, session=0),
        Request(4, 0, 300, 30, after=2, think_ns=0, session=0),
        Request(3, 2 * second, 50, 5, session=3),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (AZURE + "yesterday,1,2\n", "line 2: TIMESTAMP is 'yesterday' (give a date and a time"),
        (AZURE + "2023-11-16 18:15:46.1234567890,1,2\n", "line 2: TIMESTAMP is '2023-11-16 18:15:46.…'"),
        (AZURE + "2023-11-16,1,0\n", "line 2: GeneratedTokens is '0' (leave out requests without an answer)"),
        (AZURE + "2023-11-16,1,1\n2023-11-15,1,1\n", "line 3: TIMESTAMP is before that of the first row"),
        ("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n", "line 1: column 'NumImages' is not known"),
        ("TIMESTAMP,ContextTokens\n", "line 1: column 'GeneratedTokens' is missing"),
        (BURST + "5,GPT-4,472,0,472,API log\n", "line 2: Response tokens is '0' (leave out requests that"),
        (BURST + "5,GPT-4,472,1,472\n", "line 2: 5 values for 6 columns (give Timestamp, Model"),
        (BURST + "-5,GPT-4,472,1,472,x\n", "line 2: Timestamp is '-5' (give seconds from 0 up"),
        ("Timestamp,Request tokens,Response tokens\n", "line 1: column 'Model' is missing"),
        (line() + line(delay=5), "line 2: key 'delay' is not known (keys: timestamp"),
        (line(output_lenght=5), "key 'output_lenght' is not known (did you mean 'output_length'?)"),
        (line() + "\n" + line(output_length=...), "line 3: key 'output_length' is missing (as in {"),
        (line(timestamp="now"), "line 1: timestamp is '\"now\"' (give milliseconds from 0 up"),
        (line(timestamp=None), "line 1: timestamp is 'null'"),
        (line(input_length=600.5), "line 1: input_length is '600.5' (give a whole number from 1"),
        (line(output_length=True), "line 1: output_length is 'true'"),
        (line(output_length=0), "line 1: output_length is '0' (leave out requests without an answer)"),
        (line(hash_ids=[1]), "line 1: hash_ids has 1 numbers, but 600 tokens are 2 blocks of 512"),
        (line(hash_ids=[1, "2"]), "line 1: hash_ids is no list of whole numbers"),
        (line(hash_ids=7), "line 1: hash_ids is no list of whole numbers"),
        ("{]\n", "line 1: is no JSON"),
        (f"[{line()}]", "trace: is a JSON list (give an object a line, as in {"),
        (line() + "[1]\n", "line 2: is no object"),
        (OWN + ",100,10,a,1\n", "line 2: arrival_s is missing (give the seconds at which the session begins"),
        (OWN + "1_0,100,10,,\n", "line 2: arrival_s is '1_0' (give seconds from 0 up"),
        (OWN + "0\n", "line 2: 1 value for 5 columns"),
        (OWN + "0,100,10,,1\n", "line 2: think_s is given without a session (give session, too)"),
        (OWN + "0,100,10,a,1\n", "line 2: both arrival_s and think_s are given"),
        (OWN + "0,9,9,a,\n1,50,9,a,\n", "line 3: arrival_s of a later turn of session 'a' is given"),
        (OWN + "0,9,9,a,\n,18,9,a,1\n", "line 3: prompt_tokens is 18, but the turn before ends after 18"),
        (OWN + "0,9,9,a,\n,19,9,a,-1\n", "line 3: think_s is '-1' (give seconds from 0 up"),
        (OWN + "0,9,9,a,\n,19,9,a,\n", "line 3: arrival_s is ''"),
        (OWN.replace("session", "think_s"), "line 1: column 'think_s' occurs twice (leave one out)"),
        ("arrival_s,prompt_tokens,output_tokens,session\n", "line 1: column 'think_s' is missing (give both"),
    ],
)
def test_a_faulty_line_is_refused_with_its_number_and_a_remedy(
    text: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(EtSimError) as refusal:
        read(tmp_path, text)
    assert sentence in str(refusal.value)
    assert "(" in str(refusal.value)


def test_constant_arrivals_have_equal_distances() -> None:
    result = read_requests("constant:8,5,20,30")
    assert [request.arrival_ns for request in result] == [number * 125_000_000 for number in range(5)]
    assert [request.arrival_ns for request in read_requests("gamma:8,0,5,20,30")] == [
        request.arrival_ns for request in result
    ]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("poisson:8,5,20,30", True),
        ("gamma:8,2.5,5,20,30", True),
        ("gamma:8,0,5,20,30", False),  # without variation, arrivals are constant
        ("constant:8,5,20,30", False),
        ("sessions:2,100,5,512,200,10", True),
        ("closed:96,8", False),
        ("requests.csv", False),
        ("C:requests.csv", False),
    ],
)
def test_only_rules_with_variation_draw_arrivals(rule: str, expected: bool) -> None:
    assert is_drawn(rule) is expected


def test_gamma_arrivals_have_their_rate_and_their_variation() -> None:
    for variation in (0.3, 2.0, 4.0):
        result = read_requests(f"gamma:100,{variation},40000,20,30", seed=3)
        between = np.diff([request.arrival_ns for request in result])
        assert abs(between.mean() / 1e7 - 1) < 4 * variation / 200
        assert abs(between.std() / between.mean() / variation - 1) < 0.1


def test_gamma_with_a_variation_of_one_is_poisson() -> None:
    assert read_requests("gamma:7,1,500,20,30", seed=9) == read_requests("poisson:7,500,20,30", seed=9)


def test_turns_of_sessions_that_are_made_hold_all_tokens_before() -> None:
    result = read_requests("sessions:2,3,3,100,10,1.5", seed=1)
    assert [(request.prompt, request.after, request.think_ns) for request in result[3:6]] == [
        (100, -1, 0),
        (210, 3, 1_500_000_000),
        (320, 4, 1_500_000_000),
    ]
    begins = [request.arrival_ns for request in result[::3]]
    assert begins == [request.arrival_ns for request in read_requests("poisson:2,3,1,1", seed=1)]


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("gamma:1,2,3,4", "is not gamma:RATE,CV,COUNT,PROMPT,OUTPUT (as in gamma:10,2.5,1000,512,200)"),
        ("gamma:1,-1,3,4,5", "CV is -1 (give 0, or a number from 0.001 to 1,000)"),
        ("gamma:1,1e-200,3,4,5", "CV is 1e-200"),
        ("gamma:1,nan,3,4,5", "CV is nan"),
        ("constant:0,3,4,5", "RATE is 0"),
        ("constant:1e-12,3,4,5", "takes too long"),
        ("sessions:1,2,0,4,5,6", "TURNS is 0"),
        ("sessions:1,2,2,4,5,-6", "THINK_S is -6"),
        ("sessions:1,9000000,9000000,4,5,6", "too many turns"),
        ("closed:1,2", "closed:1,2 has no times of arrival (give --concurrency"),
    ],
)
def test_a_faulty_rule_is_refused(rule: str, sentence: str) -> None:
    with pytest.raises(EtSimError, match=re.escape(sentence)):
        read_requests(rule)


def test_sessions_have_times_and_lengths_of_their_own() -> None:
    for client in (Client(concurrency=2), Client(lengths=0.5)):
        with pytest.raises(EtSimError, match=r"sessions"):
            read_traffic("sessions:1,2,2,4,5,6", client)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_session_without_thought_is_a_closed_loop_of_one(policy: str) -> None:
    turns = list(read_requests("sessions:1,1,6,40,9,0"))
    alone = [Request(turn.number, turns[0].arrival_ns, turn.prompt, turn.output) for turn in turns]

    def served(requests: list[Request], concurrency: int) -> list[tuple[int, int, int]]:
        cluster = ServingCluster((pool(),), Policy(policy), KnownTimes())
        cluster.serve(requests, concurrency)
        begin = cluster.served[0].request.arrival_ns
        return [
            (of.request.arrival_ns - begin, of.first_token_ns - begin, of.finish_ns - begin)
            for of in cluster.served
        ]

    assert served(turns, 0) == served(alone, 1)
    assert all(after[0] == before[2] for before, after in pairwise(served(turns, 0)))


def test_a_turn_follows_its_answer_by_the_think_time() -> None:
    turns = read_requests("sessions:1,4,3,40,9,0.25", seed=5)
    cluster = ServingCluster((pool(),), Policy(), KnownTimes())
    cluster.serve(turns)
    assert len(cluster.served) == 12
    for before, after in pairwise(cluster.served):
        if after.request.after >= 0:
            assert after.request.arrival_ns == before.finish_ns + 250_000_000
