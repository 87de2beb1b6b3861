"""Random looks at folders of many kinds, as command lines: views, pages, comparisons and exports."""

from __future__ import annotations

from random import Random
from typing import Any

from random_commands import A_WRONG_ONE, FILES, SYSTEM, VIEWS, Line
from random_measured import TEXT
from random_models import SMALL_MIXTRAL

from et_sim.views.view import DRAWN

RING_8 = {"topology": ["Ring"], "npus_count": [8], "bandwidth": [50], "latency": [500]}
VARIED = [
    {"kind": "kernel", "level": "element", "family": "log-normal", "spread": 0.05},
    {"kind": "kernel", "level": "event", "family": "gamma", "spread": 0.1, "correlation": 0.4},
]
JOBS = {
    "jobs": [
        {"name": "job", "workload": "job", "npus": "0-3"},
        {"name": "other", "workload": "small", "npus": "4-7", "start": "5us"},
    ]
}
PIPELINE = (
    "make llm --model gpt2 --layers 4 --sequence 32 --vocabulary 128 --pp 2 --tp 2 --micro-batches 3"
    " --schedule {schedule} -o job"
)
# Commands that make a folder to look at, and what is looked at.
SCENES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pipeline": (
        (
            PIPELINE,
            "run job --machine h100-dgx:4 --detail {detail} --out r0",
            "run job --machine a100-dgx-80gb:4 --detail {detail} --out r1",
        ),
        VIEWS,
    ),
    "experts": (
        (
            "make llm --model model.json --sequence 32 --dp 4 --ep 2 --zero 1 --micro-batches 2 -o job",
            "run job --machine h100-dgx:4 --detail {detail} --out r0",
            "run job --machine h100-dgx:4,node=2 --detail {detail} --out r1",
        ),
        VIEWS,
    ),
    "samples": (
        (
            PIPELINE,
            "run job --system varied.json --network network.yml --samples 5 --seed 1 --out r0",
            "run job --system varied.json --network network.yml --samples 6 --seed 2 --out r1",
        ),
        ("samples", "samples", "summary", "ranks"),
    ),
    "jobs": (
        (
            "make all_reduce --ranks 4 --bytes 300KB --repeat 2 --compute-us 3 -o job",
            "make all_to_all --ranks 4 --bytes 100KB --repeat 3 -o small",
            "run jobs.yml --system system.json --network eight.yml --detail {detail} --out r0",
            "run jobs.yml --system other.json --network eight.yml --detail {detail} --out r1",
        ),
        ("summary", "jobs", "jobs", "groups", "timeline", "waits", "links", "idle", "critical-path"),
    ),
    "flows": (
        (
            "make all_to_all --ranks 4 --bytes 1MB --repeat 2 -o job",
            "run job --system system.json {graph} --detail {detail} --out r0",
            "run job --system other.json {graph} --detail {detail} --out r1",
        ),
        ("flows", "links", "queues", "topology", "bandwidth", "phases", "groups", "summary", "waits"),
    ),
    "packets": (
        (
            "make all_to_all --ranks 4 --bytes 200KB -o job",
            "run job --system system.json --network graph.yml --network-model packet --detail ports --out r0",
            "run job --system system.json --network graph.yml --network-model packet --detail links --out r1",
        ),
        ("queues", "queues", "links", "flows", "summary"),
    ),
    "layers": (
        (
            "run layers.txt --system system.json --network network.yml --detail {detail} --out r0",
            "run layers.txt --system other.json --network network.yml --detail {detail} --out r1",
        ),
        ("layers", "layers", "summary", "ops", "idle", "timeline"),
    ),
    "stalled": (
        (
            "make all_reduce --ranks 4 --bytes 64KiB -o job",
            "make send_receive --ranks 4 --bytes 64KiB -o small",
            "run job --system system.json --network broken.yml --network-model flow --out r0",
            "run small --system system.json --network network.yml --out r1",
        ),
        ("summary", "ranks", "waits", "groups", "timeline", "topology"),
    ),
    "sweeps": (("sweep points.yml --workers 1 --out r0", "sweep others.yml --workers 1 --out r1"), ("",)),
    "servings": (
        (
            "serve poisson:300,6,200,4 --model gpt2 --layers 2 --machine h100-dgx:4 --out r0",
            "serve closed:90,4,6 --concurrency 2 --model gpt2 --machine h100-dgx:4 --replicas 2 --out r1",
        ),
        ("",),
    ),
}
DETAILS = ("phases,messages,links,path", "phases", "messages,path", "links")
LOOKED = {
    "ranks": ("0-1", "1", "0,3", "2,3"),
    "window": ("0:10us", "3us:9us", "5us:2ms", "0:1s"),
    "job": ("job", "other", "third"),
    "top": ("1", "2", "5"),
    "svg": ("run/picture.svg",),
    "threshold": ("0", "2%", "1000%"),
    "html": ("run/page.html",),
    "csv": ("run/table.csv",),
    "arrow": ("run/table.arrow",),
    "network-model": ("analytical", "link"),
}
NOT_ALONE = {"job", "network-model", "csv", "svg", "html", "groups"}  # they belong to some views or commands
BROKEN = {
    "topology": ["Ring"],
    "npus_count": [4],
    "bandwidth": [50],
    "latency": [500],
    "failures": [{"gpu": 1, "at": "3us"}],
}
POINTS: dict[str, Any] = {
    "base": {
        "workload": {"make": "all_reduce", "ranks": 4, "bytes": 65536},
        "system": "system.json",
        "network": "network.yml",
    },
    "axes": {
        "bandwidth": {"field": "network.bandwidth[0]", "values": [25, 50, 100]},
        "splits": {"field": "system.preferred-dataset-splits", "values": [1, 2, 4]},
    },
}


DELAYS = {"delay": {"field": "system.endpoint-delay", "values": [0, 90]}}


def looks(draw: Random) -> Line:
    """Return a look at a folder of one of many kinds: a view, a page, a comparison or an export."""
    scene = draw.choice(sorted(SCENES))
    makes, views = SCENES[scene]
    drawn = {
        "schedule": draw.choice(("1f1b", "gpipe", "zero-bubble")),
        "detail": draw.choice(DETAILS),
        "graph": f"--network graph.yml --network-model {draw.choice(('link', 'flow', 'packet'))}",
    }
    view = draw.choice(views)
    svg = "--svg run/picture.svg" if not view or view in DRAWN or draw.random() < 0.1 else ""
    of_folders = [f"inspect r0 {view} {form}" for form in ("", "", "--json", svg * (scene != "servings"))]
    of_sweeps = [f"compare r0 r1 {form}" for form in ("", "--json")]
    of_runs = [f"compare r0 r1 {form}" for form in ("--html run/page.html", "--svg run/p.svg")]
    of_runs += ["export r0 --chrome run/t.json", "export r0 --perfetto run/t.pftrace", "show r0"]
    of_both = of_sweeps * (scene != "servings") + of_runs * bool(view)
    words = draw.choice([*of_folders, *of_both, "report r0 --html run/page.html"])
    if draw.random() < A_WRONG_ONE:
        words = draw.choice(of_runs)
    axes = POINTS["axes"] | draw.choice(({}, DELAYS))
    others = POINTS | {"axes": {name: axes[name] for name in draw.sample(sorted(axes), 2)}}
    given = {
        "model.json": SMALL_MIXTRAL,
        "layers.txt": TEXT.format(how="DATA", nanos=700, size=4096, kind="ALLGATHER"),
        "varied.json": SYSTEM | {"variation": draw.sample(VARIED, draw.randint(1, 2))},
        "jobs.yml": JOBS,
        "eight.yml": RING_8,
        "broken.yml": BROKEN,
        "points.yml": POINTS,
        "others.yml": others,
    }
    before = tuple(make.format(**drawn) for make in makes)
    if "r1" not in words:
        before = before[:-1]
    without = NOT_ALONE if view else NOT_ALONE | {"ranks", "window"}
    return Line(words, 2, before=before, files=FILES | given, values=LOOKED, without=without, may_stall=True)
