"""Records of NCCL's Inspector calibrate the machine that made them, and show which rank comes late."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import et_sim
from converters.cli import main as convert
from et_sim.basics.errors import InputError
from et_sim.calibrate.inspector import WHOLE, read_inspector
from et_sim.calibrate.logs import read_all
from et_sim.cli import main
from et_sim.machine.presets import preset
from et_sim.trace import TraceBuilder, Workload

RANKS, SIZES = 8, [1 << power for power in range(13, 29)]
AGAIN = 1000  # added to the number of an operation that follows at once
LABELS = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter"}
SAMPLE = """{
  "header": {"id": "0xe6", "rank": 4, "n_ranks": 8, "nnodes": 1},
  "metadata": {"inspector_output_format_version": "v4.0", "hostname": "h", "pid": 1},
  "coll_perf": {"coll": "ReduceScatter", "coll_sn": 1231, "coll_msg_size_bytes": 2147483648,
    "coll_exec_time_us": 41057, "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 418.439467,
    "event_trace_ts": {"kernel_events": [{"channel_id": 0, "kernel_start_ts": 1}]}
  }
}
"""


def header(rank: int, ranks: int = RANKS, name: str = "0x7f") -> dict[str, Any]:
    return {"id": name, "rank": rank, "n_ranks": ranks, "nnodes": 1, "comm_name": ""}


def metadata(rank: int, version: str) -> dict[str, Any]:
    return {"inspector_output_format_version": version, "hostname": "host", "pid": 100 + rank}


def performance(kind: str, number: int, size: int, us: float, ranks: int = RANKS) -> dict[str, Any]:
    own = size // ranks if kind in WHOLE else size
    return {
        "coll": LABELS.get(kind, kind),
        "coll_sn": number,
        "coll_msg_size_bytes": own,
        "coll_exec_time_us": us,
    }


Performed = Sequence[tuple[int, dict[str, Any]]]  # rank and what it recorded


def write(folder: Path, performed: Performed, version: str = "v4.0", dropped: int = 0) -> None:
    """Write a file for each rank; from version 4.3 on, with one header in each."""
    folder.mkdir(exist_ok=True)
    for rank in sorted({rank for rank, _ in performed}):
        own = [entry for of, entry in performed if of == rank]
        head = {"header": header(rank), "metadata": metadata(rank, version)}
        if version == "v4.3":
            stats = {"dump_stats": {"colls_dropped_total": dropped, "colls_dropped_since_last_dump": 1}}
            records: list[Any] = [head | stats, *({"coll_perf": entry} for entry in own)]
        else:
            records = [head | {"coll_perf": entry} for entry in own]
        (folder / f"host-pid{rank}.log").write_text("".join(json.dumps(record) + "\n" for record in records))


def operations(seed: int) -> Iterator[tuple[int, str, int]]:
    """Yield numbers, kinds and sizes, in a random order."""
    calls = [(kind, size) for kind in LABELS for size in SIZES]
    random.Random(seed).shuffle(calls)
    for number, (kind, size) in enumerate(calls):
        yield number, kind, size


def simulated(seed: int) -> list[tuple[int, dict[str, Any]]]:
    """Return the records of a simulated run in which ranks come late: each rank's time from start to end."""
    shuffled, builders = random.Random(seed), [TraceBuilder(source=f"rank {rank}") for rank in range(RANKS)]
    before: dict[int, list[int]] = {rank: [] for rank in range(RANKS)}
    for number, kind, size in operations(seed):
        for rank, builder in enumerate(builders):
            work = builder.compute("work", micros=shuffled.randrange(1, 400), after=before[rank])
            own = size // RANKS if kind == "all_gather" else size  # traces have what each rank puts in
            late = builder.collective(kind, own, name=f"{number} {kind} {size}", after=[work])
            switch = builder.collective(
                "all_reduce", 1 << 22, name="sync", after=[late]
            )  # ends at once for all
            again = builder.collective(kind, own, name=f"{number + AGAIN} {kind} {size}", after=[switch])
            before[rank] = [again]
    machine = preset(f"h100-dgx:{RANKS}")
    workload = Workload.of([builder.build() for builder in builders])
    run = et_sim.simulate(workload, system=machine.system, network=machine.network, fold=False)
    rows = run.table("timeline").to_pylist()
    performed = []
    for row in rows:
        words = row["name"].split()
        if len(words) == 3:
            us = (row["end_ns"] - row["start_ns"]) / 1000
            performed.append((row["actor"], performance(words[1], int(words[0]), int(words[2]), us)))
    return performed


@pytest.mark.parametrize("version", ["v4.0", "v4.3"])
def test_records_of_a_run_calibrate_the_machine_that_made_them(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "logs", simulated(1), version)
    assert main(["calibrate", "nccl", str(tmp_path / "logs"), "--machine", "h100-dgx", "--json"]) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert fitted["fitted"]["all"]["rows"] == len(LABELS) * len(SIZES)
    assert fitted["fitted"]["all"]["e"] <= 1.0


def test_the_rank_that_comes_late_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    performed = [
        (rank, performance("all_reduce", number, 1 << 20, 50.0 if rank == 5 else 350.0 + rank))
        for number in range(20)
        for rank in range(RANKS)
    ]
    write(tmp_path / "logs", performed)
    assert convert(["recording", str(tmp_path / "logs"), "--json"]) == 0
    (late,) = json.loads(capsys.readouterr().out)["late"]
    assert (late["rank"], late["last_in"], late["of"], late["late_us"]) == (5, 20, 20, 307.0)
    assert late["process"] == "host, process 105"


def test_ranks_that_come_together_are_not_late_but_their_operations_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def us(rank: int, number: int) -> float:
        if number % 2:
            return 50.0 if rank == 5 else 350.0
        return 350.0 - (rank == 3) / 2  # within 1 us, as clocks of ranks may differ

    performed = [
        (rank, performance("all_reduce", number, 1 << 20, us(rank, number)))
        for number in range(20)
        for rank in range(RANKS)
    ]
    write(tmp_path / "logs", performed)
    assert convert(["recording", str(tmp_path / "logs"), "--json"]) == 0
    (late,) = json.loads(capsys.readouterr().out)["late"]
    assert (late["rank"], late["last_in"], late["of"], late["late_us"]) == (5, 10, 20, 300.0)


def test_only_complete_operations_to_which_ranks_came_together_are_measures(tmp_path: Path) -> None:
    performed = [
        (rank, performance("all_gather", 0, 1 << 20, 40.0 + (rank > 2) / 2)) for rank in range(RANKS)
    ]
    performed += [(rank, performance("all_gather", 1, 1 << 20, 20.0 + 10 * rank)) for rank in range(RANKS)]
    performed += [(rank, performance("all_gather", 2, 1 << 20, 7.0)) for rank in range(RANKS - 1)]
    performed += [(rank, performance("all_reduce", 3, 1 << 20, 20.0 + 10 * rank)) for rank in range(RANKS)]
    performed += [(0, performance("all_reduce", 4, 1 << 21, 20.0))]
    write(tmp_path / "logs", performed)
    rows, left = read_all([tmp_path / "logs"])
    found = [(row.call.kind, row.call.ranks, row.call.size, row.us) for row in rows]
    assert found == [("all_gather", RANKS, 1 << 20, 40.25)]
    assert "1,048,576 bytes: in each operation, ranks came apart" in left[0]
    assert "2,097,152 bytes: no operation has records of all ranks" in left[1]


def test_the_example_of_the_plug_in_has_the_bytes_of_all_ranks(tmp_path: Path) -> None:
    path = tmp_path / "sample.log"
    path.write_text(SAMPLE)
    ((key, times),) = read_inspector([path]).table()
    assert key == ("reduce_scatter", 8, 1, 8 << 31)
    assert times.us.tolist() == [41057.0]
    assert key[3] / 41057e-6 / 1e9 == pytest.approx(418.439467, rel=1e-4)  # as the plug-in states


def test_drops_and_damage_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "logs", [(0, performance("all_reduce", 1, 1 << 20, 5.0))], "v4.3", dropped=12)
    file = tmp_path / "logs" / "host-pid0.log"
    more = {"coll_perf": performance("Gather", 2, 1 << 20, 5.0)}, {"p2p_perf": {"p2p": "Send"}}
    file.write_text(
        file.read_text() + '{"coll_perf": 3}\n' + "".join(json.dumps(one) + "\n" for one in more) + "{"
    )
    notes = "; ".join(read_inspector([file]).notes())
    for text in (
        "dropped 12 records",
        "2 objects cannot be read",
        "1 records are of other",
        "1 records are of sends",
    ):
        assert text in notes


@pytest.mark.parametrize("missing", ["coll_sn", "coll_msg_size_bytes", "coll_exec_time_us"])
def test_a_record_without_one_of_its_figures_is_damaged(missing: str, tmp_path: Path) -> None:
    whole = [(rank, performance("all_reduce", 1, 1 << 20, 5.0)) for rank in range(RANKS)]
    part = {key: value for key, value in performance("all_reduce", 2, 1 << 20, 5.0).items() if key != missing}
    write(tmp_path / "logs", [*whole, (0, part)])
    log = read_inspector(sorted((tmp_path / "logs").iterdir()))
    assert (log.damaged, len(log.number)) == (1, RANKS)


@pytest.mark.parametrize("missing", ["rank", "n_ranks"])
def test_a_header_without_its_rank_or_their_number_is_damaged(missing: str, tmp_path: Path) -> None:
    write(tmp_path, [(rank, performance("all_reduce", 1, 1 << 20, 5.0)) for rank in range(RANKS)])
    first, *others = sorted(tmp_path.iterdir())
    record = json.loads(first.read_text())
    del record["header"][missing]
    first.write_text(json.dumps(record) + "\n")
    log = read_inspector([first, *others])
    assert (log.damaged, sorted(log.rank)) == (1, [*range(1, RANKS)])


@pytest.mark.parametrize("text", ['{"header": 3}\n', '{"coll_perf": {"coll": "AllReduce"}}\n', "{" * 5000])
def test_a_file_without_records_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.log"
    path.write_text(text)
    with pytest.raises(InputError, match="no record of a collective"):
        read_inspector([path])


def test_damaged_gzipped_records_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "host-pid0.log.gz"
    packed = bytearray(gzip.compress(SAMPLE.encode() * 100, mtime=0))
    packed[10:20] = bytes(10 * [255])  # the first bytes behind the header
    path.write_bytes(packed)
    with pytest.raises(InputError, match="cannot be read"):
        read_inspector([path])


def test_records_without_a_whole_operation_are_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "logs", [(0, performance("all_reduce", 1, 1 << 20, 5.0))])
    path = tmp_path / "logs" / "host-pid0.log"
    assert main(["calibrate", "nccl", str(path), "--machine", "h100-dgx", "-o", "never.json"]) == 2
    printed = capsys.readouterr().err
    assert str(path) in printed
    assert "no operation has records of all ranks" in printed
    assert convert(["recording", str(path)]) == 0
    assert "next: record all ranks" in capsys.readouterr().out
