"""Take the pictures of HTML pages that docs/pictures.md and docs/pages.md show, with the tests' browser.

python tests/views/screenshot.py        # writes docs/report.png and docs/pages/*.png
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from test_report_in_browser import QUIET, Opened, browser_program

import et_sim
from converters.cli import main as convert
from et_sim.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET, REFERENCES = REPOSITORY / "docs" / "report.png", REPOSITORY / "docs" / "pages"
RECORDINGS = REPOSITORY / "tests" / "converters" / "pytorch_traces"
SYSTEM = {
    "profile": "corrected",
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
}
SYSTEM |= {"reduce-scatter-implementation": ["ring"], "all-to-all-implementation": ["direct"]}
HEIGHT = 1800  # of the kept part of a page
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "1400": ("screen", {"viewport": {"width": 1400, "height": HEIGHT}, "device_scale_factor": 0.5}),
    "700-dark": (
        "screen",
        {"viewport": {"width": 700, "height": HEIGHT}, "device_scale_factor": 0.5, "color_scheme": "dark"},
    ),
    "printed": ("print", {"viewport": {"width": 1000, "height": HEIGHT}, "device_scale_factor": 0.5}),
}


def take(folder: Path) -> None:
    """Simulate, write the pages, and keep the part above the ranks of one, and the upper part of all."""
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=browser_program(), args=list(QUIET))
        _shown_in_pictures(browser, _page(_demo(folder)))
        REFERENCES.mkdir(exist_ok=True)
        for name, run in RUNS.items():
            page = _page(run(folder))
            for look, (medium, options) in LOOKS.items():
                opened = Opened(browser, page, **options)
                opened.page.emulate_media(media=medium, color_scheme=options.get("color_scheme"))
                opened.page.screenshot(path=REFERENCES / f"{name}-{look}.png")
                opened.close()
        browser.close()


def _shown_in_pictures(browser: Any, page: Path) -> None:
    opened = Opened(browser, page, viewport={"width": 1120, "height": 1600})
    opened.page.get_by_label("find").fill("layer 3 gradient")
    opened.page.keyboard.press("Enter")
    opened.page.get_by_label("find").fill("")
    opened.page.locator("#chosen").click()
    opened.settle()
    bottom = opened.page.locator("#ranks").bounding_box()["y"]
    clip = {"x": 0, "y": 0, "width": 1120, "height": bottom - 8}
    opened.page.screenshot(path=TARGET, clip=clip, full_page=True)
    opened.close()


def _page(run: Path) -> Path:
    page = run.with_suffix(".html")
    _done("report", run, "--html", page)
    return page


def _done(*words: object, status: int = 0) -> None:
    with redirect_stdout(StringIO()):
        assert main([str(word) for word in words]) == status, words


def _demo(folder: Path) -> Path:
    _done("demo", "--out", folder / "et-sim-demo")
    return folder / "et-sim-demo" / "run"


def _detailed_demo(folder: Path) -> Path:
    return _simulated(folder / "demo", folder / "et-sim-demo" / "traces" / "step", 8)


def _pipeline(folder: Path) -> Path:
    job = folder / "stages"
    _done("make", "llm", "--model", "gpt2", "--tp", 2, "--pp", 4, "--dp", 8, "--micro-batches", 8, "-o", job)
    return _simulated(folder / "pipeline", f"{job}.workload.json", 64)


def _recorded(name: str) -> Callable[[Path], Path]:
    def run(folder: Path) -> Path:
        with redirect_stdout(StringIO()):
            assert convert(["pytorch", str(RECORDINGS / name), "-o", str(folder / f"{name}-traces")]) == 0
        there = len([*folder.glob(f"{name}-traces.*.et")])
        return _simulated(folder / name, folder / f"{name}-traces", there)

    return run


def _stalled(folder: Path) -> Path:
    builders = [et_sim.TraceBuilder() for _ in range(4)]
    for rank, builder in enumerate(builders):
        builder.compute("forward", micros=20 + rank)
        builder.collective("all_reduce", 1 << 20)
        if rank:
            builder.receive(0, 4096, tag=rank)
    builders[0].send(1, 4096, tag=1)
    et_sim.write_workload(et_sim.Workload.of([builder.build() for builder in builders]), folder / "stuck")
    return _simulated(folder / "stalled", folder / "stuck", 4, status=1)


def _million(folder: Path) -> Path:
    job = folder / "many"
    plan = ("--tp", 8, "--pp", 8, "--dp", 16384, "--micro-batches", 8)
    _done("make", "llm", "--model", "gpt3-175b", *plan, "-o", job)
    return _simulated(folder / "million", f"{job}.workload.json", 8 * 8 * 16384)


def _simulated(run: Path, workload: object, ranks: int, status: int = 0) -> Path:
    network = {"topology": ["Ring"], "npus_count": [ranks], "bandwidth": ["200Gbps"], "latency": ["1us"]}
    if ranks > 8:
        network = {"topology": ["Switch", "Switch"], "npus_count": [8, ranks // 8]}
        network |= {"bandwidth": ["900GB/s", "400Gbps"], "latency": ["500ns", "2us"]}
    each = len(network["npus_count"])
    system = {key: value * each if isinstance(value, list) else value for key, value in SYSTEM.items()}
    for name, content in (("system.json", system), ("network.json", network)):
        (run.parent / name).write_text(json.dumps(content), encoding="utf-8")
    files = ("--system", run.parent / "system.json", "--network", run.parent / "network.json")
    _done("run", workload, *files, "--detail", "path,phases,links", "--out", run, status=status)
    return run


RUNS = {
    "demo": _detailed_demo,
    "pipeline": _pipeline,
    "megatron": _recorded("megatron_tp8"),
    "dlrm": _recorded("dlrm_8r"),
    "stalled": _stalled,
    "million": _million,
}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        take(Path(temporary))
