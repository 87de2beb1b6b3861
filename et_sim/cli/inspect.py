"""`et-sim inspect`: view a run that was written earlier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from et_sim.basics.declared_options import Argument, Command, Option
from et_sim.basics.errors import UsageError
from et_sim.basics.files import in_shell
from et_sim.cli.options import Json
from et_sim.cli.styled import show
from et_sim.views.view import DRAWN, VIEWS, View

if TYPE_CHECKING:
    from et_sim.views.run.directory import RunDirectory
    from et_sim.views.run.selection import Selection

OF_RUNS = (
    "csv",
    "ranks",
    "job",
    "window",
    "verify",
    "vary",
    "network_model",
)  # options that sweeps do not support
DRAW = f"draw a sweep, or the view, as {{form}} into a file (views: {', '.join(DRAWN)})"

SERVING_TOO = ("svg", "png", "top")  # nor do servings support these


class Options(Command):
    description = (
        "Look at a run that et-sim run wrote, or at a sweep, which has one view.\n\nviews of runs:\n"
        + "\n".join(f"  {name:<13} {view.about}" for name, view in VIEWS.items())
    )
    late = "view"
    directory: Annotated[str, "directory that et-sim run, sweep or serve wrote", "RUN"]
    view: Annotated[str | None, "", "VIEW", Argument(choices=tuple(VIEWS))] = None
    json: Json = False
    csv: Annotated[Path | None, "where the layers go as the result files of ASTRA-sim 1.0", "DIR"] = None
    ranks: Annotated[str | None, 'only these ranks, such as "0-3,6"'] = None
    job: Annotated[str | None, "only the ranks of this job of a job file", "NAME"] = None
    window: Annotated[str | None, "only this time, such as 10ms:20ms", "FROM:TO"] = None
    top: Annotated[int | None, "no more than N lines of each table", "N"] = None
    verify: Annotated[bool, "of the critical path: simulate again what it predicts"] = False
    vary: Annotated[
        Sequence[str] | None,
        "of the critical path: simulate again with figures of the machine changed, such as "
        '"endpoint delay=2"; without any, with each of them a tenth more and less',
        "FIGURE=FACTOR",
        Option(words="*"),
    ] = None
    network_model: Annotated[
        str | None,
        "with --vary or --verify: the network model of yours that the run was simulated with",
        "NAME",
    ] = None
    svg: Annotated[Path | None, DRAW.format(form="SVG"), "FILE"] = None
    png: Annotated[Path | None, DRAW.format(form="PNG"), "FILE"] = None


def run(options: Options) -> int:
    """Print one view of a run, or the view of a sweep or a serving."""
    from et_sim.views.goodput import is_goodput
    from et_sim.views.run.directory import is_serving
    from et_sim.views.sweep.directory import is_sweep

    if is_sweep(options.directory):
        _show_sweep(options)
    elif is_goodput(options.directory):
        _show_goodput(options)
    elif is_serving(options.directory):
        _show_serving(options)
    else:
        _show_run(options)
    return 0


def _show_run(options: Options) -> None:
    """Print one view of a run, simulate it again, or write its layers."""
    from et_sim.views import open_run
    from et_sim.views.run.selection import selection

    view = VIEWS[options.view or "summary"]
    _refuse_misplaced(options, view)
    if options.job is not None:
        options.ranks = _ranks_of_job(options, options.job)
    _check_cuts(options, view)
    directory, top, model = options.directory, options.top, options.network_model
    if options.vary is not None:
        from et_sim.cli.again import vary_text

        print(vary_text(directory, options.vary, top, model, as_json=options.json))
    elif options.verify:
        from et_sim.cli.again import verify_text

        print(verify_text(directory, top, model, as_json=options.json))
    elif options.csv is not None and not _is_drawn(options):
        from et_sim.views.summary.layers import Layers, write_csv

        for path in write_csv(Layers(open_run(directory)), options.csv):
            print(f"written: {path}")
    else:
        present(view, open_run(directory), selection(options.ranks, options.window, top), options)


def _refuse_misplaced(options: Options, view: View) -> None:
    """Refuse the first option that the view or another option does not support."""
    is_drawn, varies = _is_drawn(options), options.vary is not None
    inspect = f"et-sim inspect {in_shell(options.directory)}"
    for option, able in (("csv", "layers"), ("verify", "critical-path"), ("vary", "critical-path")):
        if getattr(options, option) not in (None, False) and view.name != able:
            raise UsageError(f"--{option} belongs to the view {able}", remedy=f"{inspect} {able} --{option}")
    for is_wrong, cause, remedy in (
        (
            view.name == "picture" and not is_drawn,
            "the picture view needs --svg FILE or --png FILE",
            f"{inspect} picture --svg timeline.svg",
        ),
        (
            is_drawn and not view.picture,
            f"the view {view.name} cannot be drawn",
            f"views that can: {', '.join(DRAWN)}",
        ),
        (is_drawn and options.json, "a picture cannot be printed as JSON", "leave out --json"),
        (options.csv and options.json, "--csv and --json cannot be combined", "leave one of them out"),
        (varies and options.verify, "--vary and --verify cannot be combined", "leave one of them out"),
        (
            options.network_model is not None and not varies and not options.verify,
            "--network-model belongs to --vary and --verify",
            "leave it out",
        ),
    ):
        if is_wrong:
            raise UsageError(cause, remedy=remedy)


class FormOptions(Protocol):
    """Options for the form of a view."""

    json: bool
    svg: Path | None
    png: Path | None


def _is_drawn(options: FormOptions) -> bool:
    return options.svg is not None or options.png is not None


def present(view: View, run: RunDirectory, part: Selection, options: FormOptions) -> None:
    """Show a view in the requested form: drawn into files, as data, or as text."""
    if _is_drawn(options):
        from et_sim.views.drawing.scene import write_picture

        write_picture(view.drawn(run, part), options.svg, options.png)
    if view.name == "summary" and options.json:
        print(run.summary_text().removesuffix("\n"))
    elif options.json:
        print(json.dumps(view.data(run, part), indent=2, ensure_ascii=False))
    elif not _is_drawn(options):
        from et_sim.views.text import terminal_width

        show(view.text(run, part, terminal_width()))


def _show_goodput(options: Options) -> None:
    """Print or draw the months of a job."""
    _refuse_views(options, "is what et-sim goodput wrote", "leave it out")
    from et_sim.views.goodput import goodput_text, read_summary
    from et_sim.views.text import terminal_width

    if _is_drawn(options):
        from et_sim.views.drawing.months import months_picture
        from et_sim.views.drawing.scene import write_picture

        write_picture(months_picture(options.directory), options.svg, options.png)
    elif options.json:
        print(json.dumps(read_summary(options.directory), indent=2, ensure_ascii=False))
    else:
        show(goodput_text(options.directory, terminal_width()))


def _show_serving(options: Options) -> None:
    """Print the one view of a serving."""
    _refuse_views(options, "is what et-sim serve wrote", "query its tables with et-sim sql", SERVING_TOO)
    from et_sim.views.run.directory import open_serving
    from et_sim.views.serving import serving_text
    from et_sim.views.text import terminal_width

    opened = open_serving(options.directory)
    if options.json:
        print(opened.summary_text().removesuffix("\n"))
    else:
        show(serving_text(opened, terminal_width()))


def _refuse_views(options: Options, description: str, remedy: str, too: Sequence[str] = ()) -> None:
    """Refuse options that only runs support."""
    names = [name for name in (*OF_RUNS, *too) if getattr(options, name) not in (None, False)]
    given = [f"--{name.replace('_', '-')}" for name in names]
    given += [options.view] if options.view not in (None, "summary") else []
    if given:
        cause = f"this {description}, and {given[0]} is about a run"
        raise UsageError(cause, place=options.directory, remedy=remedy)


def _show_sweep(options: Options) -> None:
    """Print the one view of a sweep."""
    from et_sim.views.sweep.directory import open_sweep
    from et_sim.views.sweep.summary import sweep_json, sweep_text

    remedy = f"look at a run in {options.directory}/runs, which et-sim sweep --keep writes"
    _refuse_views(options, "is a sweep", remedy)
    sweep = open_sweep(options.directory)
    if _is_drawn(options):
        for name in ("json", "top"):
            if getattr(options, name):
                raise UsageError(f"a picture does not support --{name}", remedy=f"leave out --{name}")
        from et_sim.views.drawing.scene import write_picture
        from et_sim.views.sweep.charts import sweep_picture

        write_picture(sweep_picture(sweep), options.svg, options.png)
    elif options.json:
        print(sweep_json(sweep, options.top))
    else:
        show(sweep_text(sweep, options.top))


def _ranks_of_job(options: Options, job: str) -> str:
    """Return the ranks of a job, in the form of --ranks."""
    from et_sim.views import open_run
    from et_sim.views.summary.jobs import ranks_of_job

    if options.ranks is not None:
        raise UsageError("--job and --ranks both choose ranks", remedy="leave one of them out")
    return ranks_of_job(open_run(options.directory), job)


def _check_cuts(options: Options, view: View) -> None:
    """Refuse options that a view does not support."""
    for name in ("ranks", "window", "top"):
        if getattr(options, name) is None:
            continue
        option = "job" if name == "ranks" and options.job is not None else name
        if name not in view.cuts:
            able = ", ".join(other.name for other in VIEWS.values() if name in other.cuts)
            cause = f"the view {view.name} does not support --{option}"
            raise UsageError(cause, remedy=f"views that do: {able}")
        if view.name == "summary" and options.json:
            raise UsageError(
                f"--json is the whole summary.json and does not support --{option}",
                remedy=f"et-sim inspect {in_shell(options.directory)} ranks --json"
                f" --{option} {getattr(options, option)}",
            )
    if options.window is not None:
        from et_sim.views import open_run
        from et_sim.views.run.selection import selection

        selection(window=options.window).check_window(open_run(options.directory))
