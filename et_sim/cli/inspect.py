"""`et-sim inspect`: look at a run that was written earlier."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from et_sim.errors import UsageError

VIEWS = {
    "summary": "one screen: times, ranks, top operations, coverage (the default)",
    "ranks": "what every rank did with its time",
    "ops": "all operations, by total time",
    "layers": "a layer file's layers: computation and communication of each (also --csv)",
    "memory": "local memory at its fullest, and the largest tensors alive then",
    "stalls": "who waits for whom in a run that could not finish",
    "notices": "every warning and every default taken",
    "picture": "the timeline as an SVG picture, into the file given with --svg",
}


def add_parser(commands: Any) -> None:
    """Register the command."""
    views = "\n".join(f"  {name:<9} {meaning}" for name, meaning in VIEWS.items())
    parser = commands.add_parser(
        "inspect",
        help="look at a run",
        description=f"Look at a run that et-sim run wrote.\n\nviews:\n{views}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", metavar="RUN", help="directory that et-sim run wrote")
    parser.add_argument("view", nargs="?", choices=tuple(VIEWS), default="summary", metavar="VIEW")
    parser.add_argument("--json", action="store_true", help="print data instead of text")
    parser.add_argument(
        "--csv", type=Path, metavar="DIR", help="where the layers go as the result files of ASTRA-sim 1.0"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="where the picture goes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one view."""
    if (options.view == "picture") != (options.svg is not None):
        raise UsageError(
            "the picture view and --svg FILE belong together",
            remedy=f"et-sim inspect {options.directory} picture --svg timeline.svg",
        )
    if options.csv is not None and options.view != "layers":
        raise UsageError("--csv belongs to the layers view", remedy="et-sim inspect RUN layers --csv DIR")
    if options.view == "picture":
        return _draw(options)
    if options.csv is not None:
        return _write_csv(options)
    print(_data(options) if options.json else _text(options))
    return 0


def _text(options: argparse.Namespace) -> str:
    from et_sim.views import inspect

    views = {
        "summary": inspect.summary_text,
        "ranks": inspect.ranks_text,
        "ops": inspect.operations_text,
        "layers": inspect.layers_of,
        "memory": inspect.memory_text,
        "stalls": inspect.stalls_text,
        "notices": inspect.notices_text,
    }
    return views[options.view](options.directory)


def _data(options: argparse.Namespace) -> str:
    from et_sim.views import open_run
    from et_sim.views.memory import memory_peaks
    from et_sim.views.operations import operations

    run = open_run(options.directory)
    if options.view == "summary":
        return run.summary_text().removesuffix("\n")
    content: Any
    if options.view == "ranks":
        content = run.summary["per_rank"]
    elif options.view == "ops":
        content = [operation.as_dict() for operation in operations(run)]
    elif options.view == "memory":
        peaks = memory_peaks(run)
        content = None if peaks is None else [peak.as_dict() for peak in peaks]
    elif options.view == "layers":
        from et_sim.views.layers import Layers

        content = Layers(run).as_dict()
    elif options.view == "stalls":
        content = run.stall
    else:
        content = {name: run.summary[name] for name in ("warnings", "defaults")}
    return json.dumps(content, indent=2, ensure_ascii=False)


def _write_csv(options: argparse.Namespace) -> int:
    if options.json:
        raise UsageError("--csv and --json are two forms of one answer", remedy="leave one of them out")
    from et_sim.views import open_run
    from et_sim.views.layer_csv import write_csv
    from et_sim.views.layers import Layers

    for path in write_csv(Layers(open_run(options.directory)), options.csv):
        print(f"written: {path}")
    return 0


def _draw(options: argparse.Namespace) -> int:
    if options.json:
        raise UsageError("a picture cannot be printed as JSON", remedy="leave out --json")
    from et_sim.views import open_run
    from et_sim.views.picture import write_picture

    write_picture(open_run(options.directory), options.svg)
    return 0
