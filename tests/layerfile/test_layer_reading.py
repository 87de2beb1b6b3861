"""Layer files are read as by 1.0, and refused where 1.0 would silently read them wrong."""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path

import pytest
from golden_1x import records
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from et_sim.basics.errors import TraceError
from et_sim.layerfile import (
    Keyword,
    Layer,
    LayerFile,
    PhaseWork,
    looks_like_layer_file,
    parse_layer_file,
    read_layer_file,
)
from et_sim.layerfile.layer_file import PER_LAYER, layer_file_text
from et_sim.trace import CollectiveKind

ROW = "conv1 -1 10 NONE 0 11 NONE 0 12 ALLREDUCE 64 5"
TWO = f"{ROW}\n{ROW}"
CHECKPOINTS = "HYBRID_TRANSFORMER_FWD_IN_BCKWD g: 2"


def test_a_file_has_the_content_of_its_columns() -> None:
    text = "HYBRID_CUSTOMIZED\n1\nl0 -1 1 ALLGATHER 2 3 REDUCESCATTER 4 5 ALLTOALL 6 7 MODEL\n"
    assert parse_layer_file(text, "f") == LayerFile(
        Keyword.HYBRID_CUSTOMIZED,
        (
            Layer(
                "l0",
                PhaseWork(1, CollectiveKind.ALL_GATHER, 2),
                PhaseWork(3, CollectiveKind.REDUCE_SCATTER, 4),
                PhaseWork(5, CollectiveKind.ALL_TO_ALL, 6),
                7,
                Keyword.MODEL,
            ),
        ),
        source="f",
    )


def test_words_after_the_keyword_are_read() -> None:
    head = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 checkpoints: 2 1 0 initiates: 1 2 3"
    file = parse_layer_file(f"{head} {ROW} {ROW} {ROW}")
    assert (file.model_group, file.checkpoints, file.initiates) == (4, (0, 1), (2,))
    assert parse_layer_file(f"HYBRID_DLRM 1 2 {TWO}").last_bottom_layer == 1


@pytest.mark.parametrize("case", records("loops.jsonl.xz"), ids=lambda case: case["id"])
def test_line_breaks_and_tabs_mean_nothing(case: dict[str, str]) -> None:
    text = case["workload"]
    file = parse_layer_file(text)
    assert parse_layer_file(" ".join(text.split())) == file
    assert parse_layer_file("\r\n".join(text.split())) == file
    assert parse_layer_file(layer_file_text(file)) == file


def test_a_layer_may_be_called_like_a_keyword() -> None:
    file = parse_layer_file(f"DATA 2 {ROW} MODEL -1 1 NONE 0 1 NONE 0 1 NONE 0 0")
    assert [layer.name for layer in file.layers] == ["conv1", "MODEL"]


REFUSED = [
    ("", "f: the file is empty"),
    (" \n\t", "f: the file is empty"),
    (f"DATTA 1 {ROW}", "f, line 1, column 1: a keyword should stand here; found \"DATTA\" (did"),
    (f"data 1 {ROW}", "did you mean 'DATA'?"),
    ("DATA", "line 1: the file ends where the number of layers should stand"),
    ("DATA x", 'line 1, column 6: the number of layers should stand here, an integer; found "x"'),
    ("DATA 0", "the number of layers is 0 (it must be from 1 to"),
    (f"DATA 2\n{ROW}", "line 1, column 6: the number of layers is 2, and the file ends after 1"),
    (f"DATA 1\n{TWO}", "line 3, column 1: the number of layers is 1 (line 1), and the file has 2 layers"),
    (f"DATA 1\n{ROW}\nrest", 'line 3, column 1: the number of layers is 1 (line 1), and the file has more'),
    (f"DATA 1\n{ROW[:-2]}", 'line 2: the file ends where the update time of layer 0 ("conv1") should stand'),
    (f"DATA 2\n{ROW[:-2]}\n{ROW}", "line 3, column 1: the update time of layer 0"),
    (f"DATA 2\n{ROW[:-2]}\n{ROW}", "the layer that begins on line 2 seems to have fewer"),
    (f"DATA 2\n{ROW} DATA\n{ROW}", 'line 2, column 48: layer 0 ("conv1") has a 13th word, DATA, '),
    (f"DATA 1\n{ROW} DATA", "has a 13th word"),
    (f"DATA 2\n{ROW} 13th\n{ROW}", "line 2 seems to have more"),
    (f"DATA 1\n{ROW.replace('10', '-10')}", "line 2, column 10: the forward time of layer 0"),
    (f"DATA 1\n{ROW.replace('10', '1.5')}", 'an integer; found "1.5"'),
    (f"DATA 1\n{ROW}".replace("10", "\u0661"), "an integer; found"),
    (f"DATA 1\n{ROW.replace('64', '-64')}", "the weight gradient bytes of layer 0 (\"conv1\") is -64"),
    (f"DATA 1\n{ROW.replace('64', '9' * 5000)}", "999... (it must be from 0 to 9,007,199,254,740,992)"),
    (f"DATA 1\n{ROW.replace('ALLREDUCE', 'ALL_REDUCE')}", "column 33: the weight gradient collective"),
    (f"DATA 1\n{ROW.replace('ALLREDUCE', 'ALL_REDUCE')}", "did you mean 'ALLREDUCE'?"),
    (f"DATA 1\n{ROW.replace('ALLREDUCE', 'MAX')}", "NONE, ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL"),
    (f"DATA 1\n{ROW.replace('ALLREDUCE', 'ALLREDUCEALLTOALL')}", "which nothing can run"),
    (f"HYBRID_CUSTOMIZED 1\n{ROW}", "the file ends where the keyword of layer 0"),
    (f"HYBRID_CUSTOMIZED 2\n{TWO}", 'line 3, column 1: the keyword of layer 0 ("conv1") should '),
    (f"HYBRID_CUSTOMIZED 1\n{ROW} MODLE", "did you mean 'MODEL'?"),
    (f"HYBRID_CUSTOMIZED 1\n{ROW} HYBRID_TRANSFORMER", "does not define the dimensions of one layer"),
    (f"HYBRID_TRANSFORMER 1\n{ROW}", "the size of the model-parallel group should stand here"),
    (f"HYBRID_TRANSFORMER g: 0 1 {ROW}", "the size of the model-parallel group is 0"),
    (f"HYBRID_DLRM 1\n{ROW}", "the number of layers should stand here"),
    (f"HYBRID_DLRM 2 2 {TWO}", "column 13: the last bottom layer is layer 2, and there are layers 0 to 1"),
    (f"{CHECKPOINTS} c: 1 3 i: 1 1 2 {TWO}", "checkpoint is layer 3, and there are layers 0 to 1"),
    (f"{CHECKPOINTS} c: 1 0 i: 1 2 2 {TWO}", "checkpoint initiate is layer 2, and there are"),
    (f"{CHECKPOINTS} c: 1 1 i: 1 0 2 {TWO}", "starts at layer 0, and no checkpoint is at or below it"),
    (f"{CHECKPOINTS} c: 1 1 i: 1 1 2 {TWO}", "is a checkpoint itself"),
    (f"{CHECKPOINTS} c: 1 0 i: 2 1 2 3 {TWO} {ROW}", "meets initiate 1 on its way"),
    (f"{CHECKPOINTS} c: 2 0", "the file ends where layer 2 of 2 checkpoints should stand"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_text_that_1_0_would_misread_is_refused_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(TraceError) as refusal:
        parse_layer_file(text, "f")
    assert sentence in str(refusal.value)
    assert refusal.value.remedy


def test_binary_and_wrongly_encoded_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "f.txt"
    file.write_bytes(b"DATA 1 \0")
    with pytest.raises(TraceError, match="byte 7 is 0: not a text"):
        read_layer_file(file)
    file.write_bytes(b"DATA 1 caf\xe9")
    with pytest.raises(TraceError, match="byte 10 is not UTF-8"):
        read_layer_file(file)
    with pytest.raises(TraceError, match="cannot be read"):
        read_layer_file(tmp_path / "missing.txt")


def test_layer_files_are_recognised_by_content(tmp_path: Path) -> None:
    file = tmp_path / "workload"
    for content, is_one in (
        (f"DATA\n1\n{ROW}".encode(), True),
        (f"\ufeffHYBRID_DLRM 1\n1\n{ROW}".encode(), True),
        (gzip.compress(b"MICRO\n1"), True),
        (b"HYBRID_DATA_MODLE\n1", True),
        (b"Data 1", True),
        (b"", False),
        (b'{"et_sim_workload": 1}', False),
        (b"topology: [Ring]", False),
        (b"Layer,m,n,k", False),
        (b"\x0a\x05DATA 1\0", False),
        (b"date\n", False),
        (b"a\n", False),
    ):
        file.write_bytes(content)
        assert looks_like_layer_file(file) is is_one, content
    assert not looks_like_layer_file(tmp_path)
    assert not looks_like_layer_file(tmp_path / "missing")


sizes = st.integers(0, 2**53)
works = st.builds(PhaseWork, sizes, st.sampled_from([None, *list(CollectiveKind)[::2][:1]]), sizes)
names = st.text("abcXYZ01_./é-", min_size=1, max_size=8)
layers = st.lists(
    st.builds(Layer, names, works, works, works, sizes, st.none(), st.integers(-5, 5)), min_size=1, max_size=4
)


@given(st.sampled_from(list(Keyword)), layers, st.sampled_from(PER_LAYER))
def test_written_files_are_read_back(keyword: Keyword, found: list[Layer], own: str) -> None:
    if keyword == Keyword.HYBRID_CUSTOMIZED:
        found = [structs.replace(layer, keyword=Keyword(own)) for layer in found]
    file = LayerFile(
        keyword,
        tuple(found),
        3 if "TRANSFORMER" in keyword else None,
        last_bottom_layer=0 if "DLRM" in keyword else None,
        source="<text>",
    )
    assert parse_layer_file(layer_file_text(file)) == file


@given(st.text("DATA 1\nNONE-x0ALLREDUCE\t", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(TraceError):
        parse_layer_file(text, "f")
