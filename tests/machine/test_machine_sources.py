"""Files and dicts as sources: hashes, missing files, syntax errors, files passed with the wrong option."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import RING_4

from et_sim.basics.errors import MachineError, UsageError
from et_sim.documents.recognise import SIMULATOR, FileKind, kind_of, refuse_misplaced
from et_sim.machine import read_machine
from et_sim.machine.network_file import NETWORK_KEYS
from et_sim.machine.remote_memory import MEMORY_KEYS
from et_sim.machine.sources import MachineFile, as_given, load
from et_sim.machine.system_file import SYSTEM_KEYS

NETWORK_TEXT = "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n"
OLD_NETWORK = {"topology-name": "Hierarchical", "dimensions-count": 1, "topologies-per-dim": ["Ring"]}
SYSTEM = {"scheduling-policy": "LIFO", "endpoint-delay": 10, "preferred-dataset-splits": 4}
MEMORY = {"memory-type": "MEMORY_POOL", "remote-mem-bw": 100}
GROUPS = {"1": [0, 1]}


def written(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(**given: Any) -> str:
    with pytest.raises(MachineError) as caught:
        read_machine(**({"system": SYSTEM, "network": RING_4} | given))
    return str(caught.value)


def test_every_input_is_recorded_with_its_hash(tmp_path: Path) -> None:
    paths = {
        "network": written(tmp_path, "net.yml", NETWORK_TEXT),
        "system": written(tmp_path, "sys.json", SYSTEM),
        "memory": written(tmp_path, "mem.json", MEMORY),
        "groups": written(tmp_path, "groups.json", GROUPS),
    }
    machine = read_machine(**paths)
    assert machine.inputs == tuple(
        (str(path), hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths.values()
    )
    assert machine == read_machine(**{role: str(path) for role, path in paths.items()})


def test_a_dict_is_recorded_by_the_hash_of_its_canonical_json() -> None:
    machine = read_machine(system={"peak-perf": 1, "endpoint-delay": 2}, network=RING_4)
    assert machine.inputs == read_machine(system={"endpoint-delay": 2, "peak-perf": 1}, network=RING_4).inputs
    canonical = b'{"endpoint-delay":2,"peak-perf":1}'
    assert machine.inputs[1] == ("<system>", hashlib.sha256(canonical).hexdigest())


def test_files_and_dicts_with_the_same_keys_describe_the_same_machine(tmp_path: Path) -> None:
    from_files = read_machine(
        system=written(tmp_path, "sys.json", SYSTEM), network=written(tmp_path, "net.yml", NETWORK_TEXT)
    )
    from_dicts = read_machine(system=SYSTEM, network=RING_4)
    assert (from_files.system, from_files.network) == (from_dicts.system, from_dicts.network)


def test_numpy_values_and_tuples_are_taken_like_plain_ones() -> None:
    network = {
        "topology": ("Ring",),
        "npus_count": np.array([4]),
        "bandwidth": [np.float64(50)],
        "latency": [np.int64(500)],
    }
    plain = read_machine(system=SYSTEM, network=RING_4)
    assert read_machine(system=SYSTEM, network=network).network == plain.network


def test_a_missing_file_is_answered_with_the_nearest_name_in_its_folder(tmp_path: Path) -> None:
    written(tmp_path, "system.json", SYSTEM)
    path = tmp_path / "sytem.json"
    assert refusal(system=path) == f"{path}: the system file does not exist (did you mean 'system.json'?)"
    lost = tmp_path / "nowhere" / "system.json"
    assert f"the folder '{lost.parent}' does not exist" in refusal(system=lost)


def test_a_folder_and_a_binary_file_are_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(system=tmp_path)
    path = tmp_path / "binary.json"
    path.write_bytes(b'{"a": "\xff"}')
    assert "byte 7 is not UTF-8 text" in refusal(system=path)
    assert "cannot be read" in refusal(system="a\x00b")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('{"endpoint-delay": 10,}', "line 1, column 23: not valid JSON"),
        (
            '{\n  "endpoint-delay" 10\n}',
            "line 2, column 20: not valid JSON: Expecting ':' delimiter (correct it there)",
        ),
        ('{"L": 1, "L": 2}', 'key "L" is given more than once (keep one of them)'),
        ('["ring"]', "the system file holds a list at its top level"),
        ("3", "the system file holds a number at its top level"),
        ("null", "the system file is empty"),
        ("", "the system file is empty"),
        ("[" * 100_000, "the content is nested too deeply"),
        ('{"L": ' + "1" * 5000 + "}", "a number has 5000 digits"),
        ('{"L": NaN}', 'key "L" is NaN (allowed: an integer >= 0, in ns)'),
    ],
)
def test_unreadable_json_is_refused_with_its_place(text: str, cause: str, tmp_path: Path) -> None:
    path = written(tmp_path, "system.json", text)
    assert refusal(system=path).startswith(f"{path}: {cause}")


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = written(tmp_path, "system.json", "\ufeff" + json.dumps(SYSTEM))
    assert read_machine(system=path, network=RING_4).system.splits == 4


@pytest.mark.parametrize(
    ("expected", "content", "actual"),
    [
        ("system", NETWORK_TEXT, "network"),
        ("system", RING_4, "network"),
        ("system", OLD_NETWORK, "network"),
        ("system", MEMORY, "memory"),
        ("system", GROUPS, "groups"),
        ("network", SYSTEM, "system"),
        ("network", MEMORY, "memory"),
        ("memory", SYSTEM, "system"),
        ("memory", NETWORK_TEXT, "network"),
        ("groups", SYSTEM, "system"),
        ("groups", MEMORY, "memory"),
    ],
)
def test_a_file_passed_with_the_wrong_option_is_recognised(
    expected: str, content: Any, actual: str, tmp_path: Path
) -> None:
    path = written(tmp_path, "file", content)
    text = refusal(**{expected: path})
    assert text == f"{path}: this looks like a {actual} file (pass it with --{actual}, not --{expected})"


KEYS_OF_FILES = sorted(
    {key.name for key in (*SYSTEM_KEYS, *NETWORK_KEYS, *MEMORY_KEYS)} | {"jobs", "axes", "topology"}
)


def test_a_group_may_have_the_name_of_any_key(tmp_path: Path) -> None:
    assert {"g", "rings", "compute"} <= {*KEYS_OF_FILES}
    for name in KEYS_OF_FILES:
        path = written(tmp_path, "groups.json", {name: [0, 1], "other": [2, 3]})
        groups = read_machine(system=SYSTEM, network=RING_4, groups=path).groups
        assert {*groups} == {name, "other"}, name
        refuse_misplaced({"groups": path}, SIMULATOR)
        assert kind_of(Path(path)) is FileKind.GROUPS


def test_a_dict_passed_as_the_wrong_argument_is_recognised() -> None:
    text = refusal(system=RING_4)
    assert text == "<system>: this looks like a network description (pass it as network=, not system=)"


def test_a_value_that_is_neither_path_nor_dict_is_refused() -> None:
    with pytest.raises(UsageError, match="system must be a path or a dict, not list"):
        read_machine(system=[], network=RING_4)  # type: ignore[arg-type]
    assert "a value of type object is not allowed in a configuration" in refusal(system={"L": object()})
    assert "the most are 2000" in refusal(system={"L": 10**5000})
    looped: dict[str, Any] = {}
    looped["L"] = looped
    assert "contains itself" in refusal(system=looped)


def test_a_topology_in_place_within_a_file_is_given_again_link_by_link() -> None:
    links = [{"source": 0, "target": 1, "bandwidth": "50GB/s", "latency": "500ns"}]
    nodes = [{"id": number, "type": "npu"} for number in range(2)]
    source = load({"nodes": nodes, "links": links}, MachineFile.NETWORK, "points.yml: network")
    again = as_given(source)
    assert "import" not in again.get("graph", {})
    assert load(again, MachineFile.NETWORK).content == again
