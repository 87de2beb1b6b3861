"""Workload manifests: written ones are read back, and faulty ones are refused in a sentence."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting import counted_calls
from group_axes import group_rules
from hypothesis import given
from hypothesis import strategies as st
from trace_oracle import assert_same_trace

from et_sim.basics.errors import TraceError
from et_sim.trace import GroupRule, Trace, TraceBuilder, Workload, read_workload, write_manifest, write_trace


def ring(size: int = 64) -> Trace:
    build = TraceBuilder()
    build.send(1, size)
    build.receive(-1, size)
    build.collective("all_reduce", 1024, "tensor")
    return build.build()


def plain(micros: int = 5) -> Trace:
    build = TraceBuilder()
    build.compute("step", micros=micros)
    return build.build()


def workload_of(of_rank: list[int], templates: list[Trace], relative: list[bool], **more: Any) -> Workload:
    return Workload(tuple(templates), np.array(of_rank, np.int32), relative_peers=tuple(relative), **more)


def content(**changes: Any) -> dict[str, Any]:
    """Return a correct manifest for the template files of `folder`."""
    whole: dict[str, Any] = {
        "et_sim_workload": 1,
        "ranks": 8,
        "templates": [
            {"file": "a.et", "ranks": "0-5", "peers": "distances"},
            {"file": "b.et", "ranks": "6-7", "peers": "ranks"},
        ],
        "groups": {"tensor": {"size": 2}},
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_trace(ring(), tmp_path / "a.et")
    write_trace(plain(), tmp_path / "b.et")
    return tmp_path


def written(folder: Path, whole: Any, name: str = "job.workload.json") -> Path:
    path = folder / name
    path.write_text(whole if isinstance(whole, str) else json.dumps(whole), encoding="utf-8")
    return path


def test_a_manifest_assigns_templates_to_ranks(folder: Path) -> None:
    path = written(folder, content())
    workload = read_workload(path)
    assert workload.template_of_rank.tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    assert_same_trace(workload.trace(5), ring())
    assert_same_trace(workload.trace(6), plain())
    assert workload.relative_peers == (True, False)
    assert workload.group_rules == {"tensor": GroupRule(2, 1)}
    files = [path, folder / "a.et", folder / "b.et"]
    assert workload.inputs == tuple(
        (str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files
    )


@pytest.mark.parametrize("name", ["job.workload.json", "job.json", "job"])
def test_a_manifest_is_known_by_its_name_or_its_content(folder: Path, name: str) -> None:
    assert read_workload(written(folder, content(), name)).ranks == 8


def test_templates_may_be_compressed_and_shared(folder: Path) -> None:
    write_trace(ring(), folder / "sub" / "c.et.gz")
    entries = [
        {"file": "sub/c.et.gz", "ranks": "0-6/2", "peers": "distances"},
        {"file": "sub/c.et.gz", "ranks": "1-7/2", "peers": "ranks"},
    ]
    workload = read_workload(written(folder, content(templates=entries)))
    assert workload.template_of_rank.tolist() == [0, 1] * 4
    assert workload.templates[0] is workload.templates[1]
    assert len(workload.inputs) == 2


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    rule, ranks = draw(group_rules())
    templates = [ring(1), ring(2), plain(1), plain(2)][: draw(st.integers(1, 4))]
    of_rank = draw(st.lists(st.integers(0, len(templates) - 1), min_size=ranks, max_size=ranks))
    relative = draw(st.lists(st.booleans(), min_size=len(templates), max_size=len(templates)))
    rules = {"tensor": rule} if draw(st.booleans()) else {}
    return workload_of(of_rank, templates, relative, group_rules=rules)


@given(workload=workloads())
def test_written_manifests_are_read_back(
    workload: Workload, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("round") / "w.workload.json"
    files = write_manifest(workload, path)
    again = read_workload(path)
    used = sorted(set(workload.template_of_rank.tolist()))
    assert len(files) == len(again.templates) + 1 == len(used) + 1
    assert again.group_rules == workload.group_rules
    for rank in range(workload.ranks):
        assert_same_trace(again.trace(rank), workload.trace(rank))
        template, other = int(workload.template_of_rank[rank]), int(again.template_of_rank[rank])
        assert again.has_relative_peers(other) == workload.has_relative_peers(template)


def test_equal_templates_are_written_once(tmp_path: Path) -> None:
    workload = workload_of([0, 1, 2], [plain(), plain(), plain()], [False, False, True])
    names = [path.name for path in write_manifest(workload, tmp_path / "w.workload.json")]
    assert names == ["w.workload.json", "w.template0.et", "w.template1.et"]


def test_ranks_that_alternate_are_written_briefly_and_a_million_read_in_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")  # loading machine code takes calls, too
    of_rank = np.arange(1 << 20, dtype=np.int32) % 2
    path = tmp_path / "w.workload.json"
    write_manifest(Workload((plain(1), plain(2)), of_rank), path)
    assert path.stat().st_size < 500
    read_workload(path)  # loads all modules of first use
    workload, calls = counted_calls(lambda: read_workload(path))
    assert calls < 100_000
    assert np.array_equal(workload.template_of_rank, of_rank)


def test_a_manifest_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "w.template0.et").mkdir()
    with pytest.raises(TraceError, match="cannot be written"):
        write_manifest(workload_of([0], [plain()], [False]), tmp_path / "w.workload.json")
    assert [path.name for path in tmp_path.iterdir()] == ["w.template0.et"]


@pytest.mark.parametrize("name", ["w.json", ".workload.json", "w"])
def test_a_manifest_is_not_written_under_a_name_without_its_ending(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match="is no name for a manifest"):
        write_manifest(workload_of([0], [plain()], [False]), tmp_path / name)


def entry(**changes: Any) -> dict[str, Any]:
    whole = {"file": "a.et", "ranks": "0-7", "peers": "ranks", **changes}
    return {key: value for key, value in whole.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"et_sim_workload": 2},
            'key "et_sim_workload" is 2 (this version of et-sim reads manifests of form 1',
        ),
        ({"et_sim_workload": True}, 'key "et_sim_workload" is true'),
        ({"et_sim_workload": None}, "is not a workload manifest"),
        ({"ranks": 10**12}, 'key "ranks" is 1000000000000: more than 16777216'),
        ({"ranks": 9}, "no template is for rank 8 (give every rank one template)"),
        ({"ranks": 12}, "no template is for 4 of 12 ranks: 8-11"),
        ({"ranks": 7}, "template 1 (b.et) has rank 7, and there are ranks 0 to 6"),
        ({"templates": [entry(ranks=7)]}, '"templates" index 0: key "ranks" is 7 (allowed: ranks and ranges'),
        ({"templates": [entry(ranks="0-3,x")]}, "index 0: key \"ranks\": ranks '0-3,x' cannot be understood"),
        ({"templates": [entry(ranks="3-0")]}, "has the empty range 3-0"),
        ({"templates": [entry(ranks="0-7/0")]}, "has a step of 0"),
        ({"templates": [entry(ranks="0-7,4")]}, "rank 4 is twice in template 0 (a.et)"),
        (
            {"templates": [entry(), entry(file="b.et", ranks="7")]},
            "rank 7 is in template 0 (a.et) and in template 1 (b.et)",
        ),
        ({"templates": [entry(file="c.et")]}, "c.et, and there is no such file"),
        ({"groups": {"tensor": {"step": 8}}}, '"groups": "tensor": key "step" is not known'),
        (
            {"groups": {"tensor": {"size": 3}}},
            'group rule "tensor" (size 3, stride 1) does not divide 8 ranks',
        ),
        ({"groups": {"tensor": {"size": 4, "stride": 4}}}, "(size 4, stride 4) does not divide 8 ranks"),
        (
            {"groups": {"dp": {"size": [2, 2], "stride": [1]}}},
            '"groups": "dp": size (2, 2) has 2 axes and stride (1,) has 1',
        ),
        (
            {"groups": {"ends": {"size": 2, "stride": 6, "every": 6}}},
            '"groups": "ends": every is 6, and groups span 7 ranks in patterns of 12',
        ),
        (
            {"groups": {"ends": {"size": 2, "stride": 4, "every": 6}}},
            'group rule "ends" (size 2, stride 4, every 6) does not divide 8 ranks',
        ),
        ({"groups": {"0": {"size": 2}}}, 'a group rule cannot be called "0"'),
        ({"groups": {"07": {"size": 2}}}, 'a group rule cannot be called "07"'),
    ],
)
def test_a_wrong_manifest_is_refused_in_a_sentence(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(TraceError) as caught:
        read_workload(written(folder, content(**changes)))
    assert message in str(caught.value)
    assert "job.workload.json" in caught.value.place
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON: it is empty"),
        ("[1]", "is not a workload manifest"),
        ('{"et_sim_workload": 1, "ranks": 8, "ranks": 8}', 'key "ranks" is given more than once'),
        ('{"et_sim_workload": 1,}', "line 1, column"),
    ],
)
def test_a_text_that_is_no_manifest_is_refused(folder: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=r"job\.workload\.json") as caught:
        read_workload(written(folder, text))
    assert message in str(caught.value)
    assert caught.value.remedy


def test_bytes_that_are_no_text_are_refused(folder: Path) -> None:
    path = folder / "job.workload.json"
    path.write_bytes(b'{"et_sim_workload": 1, "\xff": 1}')
    with pytest.raises(TraceError, match="byte 24 is not UTF-8 text"):
        read_workload(path)


def test_another_number_of_ranks_than_wanted_is_refused(folder: Path) -> None:
    path = written(folder, content())
    assert read_workload(path, 8).ranks == 8
    for ranks in (4, 16):
        with pytest.raises(TraceError, match=f"has 8 ranks, but the machine has {ranks} NPUs"):
            read_workload(path, ranks)


def test_a_manifest_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"job\.workload\.json: cannot be read"):
        read_workload(tmp_path / "job.workload.json")


def test_the_prefix_of_a_manifest_leads_to_it(folder: Path) -> None:
    manifest = written(folder, content())
    assert read_workload(folder / "job").inputs == read_workload(manifest).inputs


def test_a_damaged_template_is_refused_with_its_own_name(folder: Path) -> None:
    (folder / "a.et").write_bytes((folder / "a.et").read_bytes()[:-3])
    with pytest.raises(TraceError) as caught:
        read_workload(written(folder, content()))
    assert "a.et" in caught.value.place


def test_a_workload_with_inconsistent_parts_is_refused() -> None:
    with pytest.raises(TraceError, match="relative_peers has 1 entry, and there are 2 templates"):
        workload_of([0, 1], [plain(1), plain(2)], [True])
    with pytest.raises(TraceError, match="does not divide 2 ranks"):
        workload_of([0, 0], [plain()], [False], group_rules={"x": GroupRule(3)})


@pytest.mark.parametrize("other", ["b.et", "c.et"], ids=["good", "missing"])
def test_a_broken_template_is_named_before_any_other_template(folder: Path, other: str) -> None:
    (folder / "a.et").write_bytes((folder / "a.et").read_bytes()[:-3])
    entries = [
        {"file": "a.et", "ranks": "0-5", "peers": "distances"},
        {"file": other, "ranks": "6-7", "peers": "ranks"},
    ]
    (folder / "job.workload.json").write_text(json.dumps(content(templates=entries)))
    with pytest.raises(TraceError) as caught:
        read_workload(folder / "job.workload.json")
    assert str(folder / "a.et") in str(caught.value)
    assert other not in str(caught.value)
