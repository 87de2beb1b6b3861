"""Input that announces more than can be simulated is refused at once, with its limit."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.errors import EtSimError, MachineError, TraceError
from et_sim.compiled.compile_queue import FAILED, failure
from et_sim.documents import gzipped
from et_sim.documents.keys import show
from et_sim.documents.reading import MOST_DEVICES, MOST_DIGITS, MOST_LINKS
from et_sim.machine.readers import read_network_alone, read_system_alone
from et_sim.machine.texts import parse_json, parse_yaml
from et_sim.trace.disk import unpacked
from et_sim.trace.goal.file import schedules
from et_sim.trace.goal.schedule import Totals

RATE = {"bandwidth": "50GB/s", "latency": "500ns"}
HUGE = 1 << 23


def refusal(content: Any, tmp_path: Path, name: str = "network.json") -> str:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(EtSimError) as caught:
        read_network_alone(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        {"npus": 30_000_000, "links": []},
        {"npus": 2, "switches": HUGE, "links": []},
        {"npus": 4000, "links": [{"from": "*", "to": "*", **RATE}]},
        {"graph": {"generator": "fully-connected", "npus": 20_000, **RATE}},
        {"graph": {"generator": "ring", "npus": HUGE, **RATE}},
        {"graph": {"generator": "torus", "sizes": [4096, 4096], **RATE}},
        {"graph": {"generator": "mesh", "sizes": [HUGE] * 9, **RATE}},
        {"graph": {"generator": "switch", "npus": HUGE, **RATE}},
        {"graph": {"generator": "leaf-spine", "leaves": 4000, "spines": 4000, "npus-per-leaf": 1, **RATE}},
        {"graph": {"generator": "fat-tree", "k": 2048, **RATE}},
        {"graph": {"generator": "fat-tree", "radix": HUGE, "npus": HUGE, **RATE}},
    ],
)
def test_graphs_of_too_much_are_refused_with_their_limit(content: Any, tmp_path: Path) -> None:
    message = refusal(content, tmp_path)
    assert f"{MOST_DEVICES:,}" in message or f"{MOST_LINKS:,}" in message


@pytest.mark.parametrize(
    "text",
    [
        "99999999999 2 1\n",
        f"{'9' * 5000} 2 1\n",
        f"4 1 1\n{'9' * 5000}\n0 1 100Gbps 1us 0\n",
        f"Nodes {'9' * 20}\nTiers 2\n",
        f"Nodes {'9' * 5000}\nTiers 2\n",
        "Nodes 4000000\nTiers 2\nTier 0\nDownlink_speed_Gbps 1\nRadix_Down 1\nRadix_Up 1\n"
        "Tier 1\nDownlink_speed_Gbps 1\nRadix_Down 1\n",
        f"topology: Torus3D\nnum-npus: {'9' * 5000}\n",
        "topology: Torus3D\nnum-npus: 99999999999\n",
    ],
)
def test_topologies_of_other_tools_are_refused_before_they_are_made(text: str, tmp_path: Path) -> None:
    refusal(text, tmp_path, "topology.txt")


@pytest.mark.parametrize("digits", [MOST_DIGITS + 1, 5000])
def test_numbers_of_more_digits_than_any_has_are_refused(digits: int) -> None:
    for parse, text in ((parse_json, f'{{"a": {"9" * digits}}}'), (parse_yaml, f"a: {'9' * digits}")):
        with pytest.raises(
            MachineError, match=f"a number has {digits} digits, and the most are {MOST_DIGITS}"
        ):
            parse(text, "file")
        assert parse(text.replace("9" * digits, "9" * MOST_DIGITS), "file")["a"] == int("9" * MOST_DIGITS)
    assert parse_json(f'{{"a": "{"9" * digits}"}}', "file") == {"a": "9" * digits}  # a text


def bomb(levels: int) -> str:
    first = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]"
    return "\n".join([first, *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, levels))])


def test_aliases_of_billions_of_values_are_refused() -> None:
    with pytest.raises(MachineError, match=r"with its aliases, the content has more than 4,194,304 values"):
        parse_yaml(bomb(400), "file")
    assert len(parse_yaml(bomb(3), "file")["a2"]) == 8


def test_only_the_beginning_of_a_value_is_walked_over_when_it_is_shown() -> None:
    value: Any = [1] * 8
    for _ in range(200):
        value = [value] * 8
    assert len(show(value)) < 100
    assert show({"a": [1, 2, "x"]}) == '{"a": [1, 2, "x"]}'


@pytest.mark.deep
@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans(),
        lambda values: st.lists(values, max_size=3),
        max_leaves=8,
    )
)
def test_a_shown_value_is_a_prefix_of_the_value_in_the_file(value: Any) -> None:
    whole, shown = json.dumps(value, ensure_ascii=False), show(value)
    assert shown == whole or shown.endswith("...") or "…" in shown


def test_gzip_that_unpacks_to_far_more_than_data_do_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gzipped, "MOST_UNPACKED", 1 << 18)
    packed = gzip.compress(bytes(1 << 20)) * 2
    with pytest.raises(TraceError, match=r"unpack to more than [0-9,]+ \(the limit is 200 times that"):
        unpacked(packed, "trace.et")
    path = tmp_path / "job.goal"
    path.write_bytes(packed)  # a reader of lines, and one endless line
    with pytest.raises(TraceError, match="if the file is right, unpack it"):
        list(schedules(path, Totals()))


@given(st.lists(st.binary(max_size=300), max_size=4), st.integers(0, 9))
def test_gzip_members_are_unpacked(pieces: list[bytes], level: int) -> None:
    packed = b"".join(gzip.compress(piece, level) for piece in pieces)
    assert unpacked(packed, "trace.et") == b"".join(pieces)


@pytest.mark.parametrize("value", [5, "x", None, {}, [5], [[]], [{"source": {}}], [None], True, 1.5])
@pytest.mark.parametrize("key", ["npus", "links", "nodes", "devices", "switches", "graph", "ranks", "edges"])
def test_values_of_any_type_in_a_graph_file_are_refused_in_a_sentence(
    key: str, value: Any, tmp_path: Path
) -> None:
    sound: dict[str, Any]
    for sound in ({"npus": 2, "links": [{"from": "npu0", "to": "npu1", **RATE}]}, {"nodes": [], "links": []}):
        path = tmp_path / "network.json"
        path.write_text(json.dumps({**sound, key: value}))
        with suppress(EtSimError):
            read_network_alone(path)


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), str(10**400), f"{10**400}GB", "1e400"])
@pytest.mark.parametrize("key", ["local-mem-capacity", "local-mem-bw", "peak-perf", "endpoint-delay"])
def test_numbers_beyond_all_that_can_be_calculated_with_are_refused_in_a_sentence(
    key: str, value: Any
) -> None:
    system = {f"{name}-implementation": ["ring"] for name in ("all-reduce", "all-gather", "reduce-scatter")}
    with suppress(EtSimError):  # an unsupported value may only be refused
        read_system_alone({**system, "all-to-all-implementation": ["ring"], key: value})


def test_a_note_of_a_failure_that_is_no_text_is_read_all_the_same(tmp_path: Path) -> None:
    code = tmp_path / "engine.so"
    code.with_suffix(FAILED).write_bytes(b"why\n\xff\xfe broken")
    assert (failure(code) or "").endswith("broken")
