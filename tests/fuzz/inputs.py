"""Inputs to damage: a small sound one for every reader, and the commands that read it.

A case is a folder with sound files, the file to damage, a kind of damage, and the commands that then read it.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import NamedTuple

from hosts import INFRASTRUCTURE, ROCPROF, TOPOLOGY
from mutations import Damage, damage_bytes, damage_json, damage_nodes, damage_words
from nccl_reports import Work, report
from night import write_dumps
from nsys_files import device_events, nsys_file, nsys_folder
from rocpd_files import rocpd_file
from xplane_files import small_profile

from converters.cli import main as converter
from et_sim.cli import main
from et_sim.trace import TraceBuilder, Workload, write_workload
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.manifest import write_manifest

RANKS = 4
LISTS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
SYSTEM = {
    **{f"{name}-implementation": ["ring"] for name in LISTS},
    "scheduling-policy": "FIFO",
    "collective-optimization": "baseline",
    "endpoint-delay": 10,
    "preferred-dataset-splits": 2,
    "active-chunks-per-dimension": 2,
    "local-mem-bw": 50.0,
    "roofline-enabled": 1,
    "peak-perf": 10,
    "track-local-mem": 1,
    "profile": "corrected",
    "model-shared-bus": 1,
    "L": 1,
    "o": 1,
    "g": 1,
    "G": 0.1,
    "injection-scale": 1.5,
    "corrections": {"eager-sends": False},
    "stragglers": [{"ranks": "1-2", "compute": 1.5, "delay": 10, "jitter": 0.1, "seed": 1}],
    "time-factors": [{"ranks": "0-2", "kernels": 0.5, "gaps": 0}],
}
NETWORK = {"topology": ["Ring"], "npus_count": [RANKS], "bandwidth": ["50GB/s"], "latency": [500.0]}
LINKS = [{"dimension": 0, "from": 0, "to": 1, "bandwidth": 10, "latency": "1us"}]
MEMORY = {"memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 10}
MEMORY_OF_NODES = MEMORY | {"num-nodes": 2, "num-npus-per-node": 2}
GROUPS = {"1": [0, 1], "last two": [3, 2]}
SYSTEM_1 = """scheduling-policy: LIFO
endpoint-delay: 10
active-chunks-per-dimension: 1
preferred-dataset-splits: 2
all-reduce-implementation: ring
all-gather-implementation: ring
reduce-scatter-implementation: ring
all-to-all-implementation: ring
collective-optimization: localBWAware
num-passes: 1
comm-scale: 1
compute-scale: 1
"""
NETWORK_1 = {
    "topology-name": "Hierarchical",
    "topologies-per-dim": ["Ring"],
    "dimension-type": ["N"],
    "dimensions-count": 1,
    "units-count": [RANKS],
    "links-count": [2],
    "link-latency": [500],
    "link-bandwidth": [25],
    "nic-latency": [1],
    "router-latency": [1],
    "hbm-latency": [1],
    "hbm-bandwidth": [500],
    "hbm-scale": [1],
}
LAYERS = """HYBRID_TRANSFORMER model_parallel_NPU_group: 2
2
first -1 100 ALLGATHER 1024 100 ALLREDUCE 1024 100 ALLREDUCE 4096 10
second -1 100 ALLGATHER 1024 100 NONE 0 100 ALLREDUCE 4096 10
"""
PROGRAM = """<algo name="a" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" inplace="1"
 coll="allreduce">
<gpu id="0" i_chunks="2" o_chunks="2" s_chunks="1"><tb id="0" send="1" recv="1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="rrc" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb></gpu><gpu id="1" i_chunks="2" o_chunks="2" s_chunks="1"><tb id="0" send="0" recv="0" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb></gpu></algo>"""
VIEWS = (
    "summary",
    "ranks",
    "groups",
    "ops",
    "phases",
    "critical-path",
    "links",
    "memory",
    "stalls",
    "notices",
)
SAMPLES = Path(__file__).parents[2] / "traces" / "layers"
RECORDINGS = Path(__file__).parents[1] / "converters" / "pytorch_traces"


class Case(NamedTuple):
    """`file` is damaged; each command line then reads it."""

    file: str
    damage: Damage
    commands: tuple[tuple[str, ...], ...]


MACHINE = ("--system", "system.json", "--network", "network.yml", "--memory", "memory.json")
WHOLE = (*MACHINE, "--groups", "groups.json")
CHECK = ("et-sim", "check", "job", *WHOLE)
MACHINE_1 = ("--system", "system.txt", "--network", "network1.json")
CUSTOM = ("et-sim", "check", "ar", "--system", "custom.json", "--network", "network.yml")


def write_inputs(folder: Path) -> None:
    """Write all sound files; the working folder must be this one."""
    write_workload(_workload(), folder / "job")
    write_workload(_messages(), folder / "prog")
    write_workload(_collectives(), folder / "ar")
    write_manifest(_ruled(), folder / "ruled.workload.json")
    for name, content in (
        *(
            ("system.json", SYSTEM),
            ("network.yml", NETWORK | {"links": LINKS}),
            ("memory.json", MEMORY_OF_NODES),
        ),
        *(("groups.json", GROUPS), ("network1.json", NETWORK_1)),
        ("custom.json", SYSTEM | {"all-reduce-implementation-custom": ["prog"]}),
    ):
        (folder / name).write_text(json.dumps(content))
    for name, text in (("system.txt", SYSTEM_1), ("layers.txt", LAYERS), ("algo.xml", PROGRAM)):
        (folder / name).write_text(text)
    (folder / "lines.yml").write_text(
        "".join(f"{key}: {json.dumps(value)}\n" for key, value in NETWORK.items())
    )

    for name in ("et", "kineto"):
        packed = (RECORDINGS / "simple_add" / f"{name}.json.gz").read_bytes()
        (folder / f"{name}.json").write_bytes(gzip.decompress(packed))
    shutil.copy(SAMPLES / "mlp.csv", folder)
    _write_recordings(folder)
    assert converter(["unjson", "job.0.et", "-o", "jobs"]) == 0


def _write_recordings(folder: Path) -> None:
    """Write what jobs leave behind: dumps of a hang, profiles, and descriptions of hosts."""
    dumps = RECORDINGS.parent / "data" / "flight_recorder"
    shutil.copytree(dumps / "order", folder / "hang")
    shutil.copytree(dumps / "json" / "missing", folder / "hang_json")
    shutil.copytree(dumps / "missing", folder / "missing")
    head = {"id": "0x1", "rank": 0, "n_ranks": 2, "nnodes": 1}
    version = {"inspector_output_format_version": "v4.0", "hostname": "h", "pid": 1}
    done = {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": 50}
    record = {"header": head, "metadata": version, "coll_perf": done}
    (folder / "inspector.log").write_text(json.dumps(record) + "\n" + json.dumps(record) + "\n")
    nsys_file(device_events(RECORDINGS / "device_only" / "event_sync.json.gz"), folder / "report.sqlite")
    nsys_folder(folder / "report.sqlite", folder / "report_pqtdir")
    for inline, name in ((True, "results.db"), (False, "apart.db")):
        rocpd_file(ROCPROF, folder / name, inline=inline)
    shutil.copy(RECORDINGS.parents[1] / "validation" / "data" / "mlperf" / "result_0.txt", folder)
    _write_nccl(folder)
    (folder / "rocprof.json").write_text(json.dumps(ROCPROF))
    (folder / "host.xplane.pb").write_bytes(small_profile())
    (folder / "host.xml").write_text(TOPOLOGY)
    (folder / "infrastructure.json").write_text(json.dumps(INFRASTRUCTURE))


def _write_nccl(folder: Path) -> None:
    """Write what has sizes or clocks of NCCL: a report, records of two hosts, dumps with times."""
    work = [Work(10_000, 15_000), Work(15_000, 25_000, 7, "ncclAllReduce", 0xABC, 4096)]
    (folder / "nccl").mkdir()
    for rank in range(2):
        report(folder / "nccl" / f"rank_{rank}.sqlite", rank, work, [(0xABC, 2, rank)])
        nsys_folder(folder / "nccl" / f"rank_{rank}.sqlite", folder / "nccl_pqtdir" / f"rank_{rank}")
    (folder / "hosts").mkdir()
    for rank in range(2):
        lines = []
        for number in range(4):
            done = {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 1 << 20}
            times = {"kernel_events": [{"kernel_stop_ts": 1_700_000_000_000_000 + 1000 * number + rank}]}
            head = {"id": "0x1", "rank": rank, "n_ranks": 2, "nnodes": 2}
            version = {"inspector_output_format_version": "v4.0", "hostname": f"n{rank}", "pid": 1}
            done |= {"coll_exec_time_us": 50, "event_trace_ts": times}
            lines.append(json.dumps({"header": head, "metadata": version, "coll_perf": done}))
        (folder / "hosts" / f"n{rank}.log").write_text("\n".join(lines) + "\n")
    write_dumps(folder / "night")
    logs = RECORDINGS.parents[1] / "validation" / "data" / "mlperf_v51" / "AMD"
    shutil.copytree(logs, folder / "submission")


def _workload() -> Workload:
    traces = []
    for rank in range(RANKS):
        build = TraceBuilder(source=f"job.{rank}.et")
        last = build.compute("matmul", micros=3, num_ops=1000, tensor_bytes=1 << 10, outputs={"x": 64})
        group = "1" if rank < 2 else "last two"
        last = build.collective("all_reduce", 1 << 12, group, after=[last])
        last = build.collective("all_gather", 1 << 10, after=[last], inputs={"x": 64})
        last = build.load(1 << 12, after=[last])
        build.send((rank + 1) % RANKS, 100, 1, after=[last])
        build.receive((rank - 1) % RANKS, 100, 1, after=[last])
        traces.append(build.build())
    return Workload.of(traces)


def _messages() -> Workload:
    traces = []
    for rank in range(RANKS):
        build = TraceBuilder(source=f"prog.{rank}.et")
        sent = build.send((rank + 1) % RANKS, 1024, 1)
        build.compute(micros=1, after=[sent, build.receive((rank - 1) % RANKS, 1024, 1)])
        traces.append(build.build())
    return Workload.of(traces)


def _collectives() -> Workload:
    build = TraceBuilder(source="ar")
    build.collective("all_reduce", 1 << 12)
    return Workload.of([build.build()] * RANKS)


def _ruled() -> Workload:
    build = TraceBuilder(source="ruled")
    build.collective("all_reduce", 1 << 12, "pairs")
    whole = Workload.of([build.build()] * RANKS)
    return Workload(whole.templates, whole.template_of_rank, group_rules={"pairs": GroupRule(2, 2)})


def write_run(folder: Path) -> None:
    """Write the directory of a run with every file."""
    write_inputs(folder)
    line = ["run", "job", *WHOLE, "--out", str(folder / "run"), "--detail", "phases,messages,links,path"]
    assert main(line) == 0
    shutil.copytree(folder / "run", folder / "sound")


def convert(*arguments: str) -> tuple[str, ...]:
    """Return a command line of the converter."""
    return ("et-convert", *arguments)


def recording(file: str) -> tuple[str, ...]:
    """Return the command line that converts a recording."""
    return convert("recording", file, "-o", "recorded")


SHOWN = (convert("show", "job.1.et"), convert("unjson", "job.1.et", "-o", "out.json"))
RULED = ("et-sim", "check", "ruled", *MACHINE)
LAYERED = ("et-sim", "check", "layers.txt", *MACHINE_1)
MLPERF = ("et-sim", "validate", "result_0.txt")
PAIR = convert("pytorch", "--host", "et.json", "--device", "kineto.json", "-o", "pytorch.et")
CASES = {
    "trace": Case("job.1.et", damage_bytes, (CHECK, *SHOWN)),
    "nodes": Case("job.1.et", damage_nodes, (CHECK, *SHOWN)),
    "nodes of a template": Case("ruled.template0.et", damage_nodes, (RULED,)),
    "nodes of a custom program": Case("prog.1.et", damage_nodes, (CUSTOM,)),
    "all ranks": Case("ar.0.et", damage_nodes, (("et-sim", "check", "ar", *WHOLE),)),
    "manifest": Case("ruled.workload.json", damage_json, (RULED,)),
    "template": Case("ruled.template0.et", damage_bytes, (RULED,)),
    "system": Case("system.json", damage_json, (CHECK,)),
    "network": Case("network.yml", damage_json, (CHECK,)),
    "network in YAML": Case(
        "lines.yml", damage_words, (("et-sim", "check", "ar", "--network", "lines.yml"),)
    ),
    "memory": Case("memory.json", damage_json, (CHECK,)),
    "groups": Case("groups.json", damage_json, (CHECK,)),
    "system of 1.0": Case("system.txt", damage_words, (LAYERED,)),
    "network of 1.0": Case("network1.json", damage_json, (LAYERED,)),
    "layer file": Case("layers.txt", damage_words, (LAYERED,)),
    "custom program": Case("prog.1.et", damage_bytes, (CUSTOM,)),
    "MSCCL": Case("algo.xml", damage_words, (convert("msccl", "algo.xml", "-o", "msccl"),)),
    "products": Case("mlp.csv", damage_words, (convert("gemm", "mlp.csv", "-o", "l.txt", "--ranks", "4"),)),
    "trace as JSON": Case("jobs.0.jsonl", damage_words, (convert("json", "jobs.0.jsonl", "-o", "again"),)),
    "execution trace": Case("et.json", damage_json, (PAIR,)),
    "timeline of Kineto": Case("kineto.json", damage_json, (PAIR,)),
    "dump of a hang": Case("hang/trace_rank_1", damage_bytes, (convert("recording", "hang"),)),
    "dump as JSON": Case("hang_json/trace_rank_1.json", damage_json, (convert("recording", "hang_json"),)),
    "Inspector": Case("inspector.log", damage_bytes, (convert("recording", "inspector.log"),)),
    "report of nsys": Case("report.sqlite", damage_bytes, (recording("report.sqlite"),)),
    "report with NCCL": Case("nccl/rank_1.sqlite", damage_bytes, (recording("nccl"),)),
    "payloads in Parquet": Case(
        "nccl_pqtdir/rank_1/NVTX_EVENTS.parquet", damage_bytes, (recording("nccl_pqtdir"),)
    ),
    "records of hosts": Case("hosts/n1.log", damage_words, (convert("recording", "hosts"),)),
    "dump with times": Case("night/trace_rank_5", damage_bytes, (convert("recording", "night"),)),
    "system of MLPerf": Case(
        "submission/systems/MI355X_EPYC_9575F_pytorch.json",
        damage_json,
        (("et-sim", "validate", "submission", "--plan", "tp3", "--precision", "fp8"),),
    ),
    "XPlane": Case("host.xplane.pb", damage_bytes, (recording("host.xplane.pb"),)),
    "Parquet of nsys": Case(
        "report_pqtdir/CUPTI_ACTIVITY_KIND_KERNEL.parquet", damage_bytes, (recording("report_pqtdir"),)
    ),
    "database of rocprof": Case("results.db", damage_bytes, (recording("results.db"),)),
    "database with tables of times": Case("apart.db", damage_bytes, (recording("apart.db"),)),
    "log of MLPerf": Case("result_0.txt", damage_words, (MLPERF,)),
    "job of a hang": Case("hang_json/trace_rank_1.json", damage_json, (recording("hang_json"),)),
    "job of a hang in pickles": Case("missing/trace_rank_1", damage_bytes, (recording("missing"),)),
    "results of rocprof": Case("rocprof.json", damage_json, (recording("rocprof.json"),)),
    "host of NCCL": Case("host.xml", damage_words, (("et-sim", "machine", "from", "host.xml"),)),
    "InfraGraph": Case(
        "infrastructure.json", damage_json, (("et-sim", "machine", "from", "infrastructure.json"),)
    ),
}
RUN_COMMANDS = (
    *(("et-sim", "inspect", "run", view) for view in VIEWS),
    ("et-sim", "inspect", "run", "picture", "--svg", "picture.svg"),
    ("et-sim", "compare", "run", "sound"),
    ("et-sim", "compare", "run", "sound", "--html", "compared.html"),
    ("et-sim", "sql", "run", "SELECT kind, count(*) FROM timeline JOIN actors USING (actor) GROUP BY kind"),
    ("et-sim", "export", "run", "--perfetto", "p.pftrace", "--chrome", "chrome.json"),
    ("et-sim", "report", "run", "--html", "page.html"),
)
