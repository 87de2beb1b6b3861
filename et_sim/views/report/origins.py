"""The parts of the page about where the figures come from: coverage, notices, inputs."""

from __future__ import annotations

from typing import Any

from et_sim.basics.units import plural
from et_sim.tables.registry import table_named
from et_sim.views.report.markup import bar, more, section, table, tag, text
from et_sim.views.run.directory import RunDirectory
from et_sim.views.summary.facts import factors_text
from et_sim.views.text import share

TREATMENTS = (
    ("modelled", "from the machine"),
    ("replayed", "as the trace recorded it"),
    ("defaulted", "1 ns: the trace records no duration"),
    ("instant", "takes no time"),
    ("not_executed", "never issued"),
)
COULD_SHOW = (
    ("path", "the critical path"),
    ("phases", "dimensions in use over time"),
    ("links", "links in use over time"),
    ("memory", "local memory"),
)
OF_PACKETS = ("queues", "queues and pauses")
MOST_LETTERS = 60  # of a fact that shares a line with others


def coverage_section(run: RunDirectory) -> str:
    """How the time of each node came about, and what was warned of."""
    coverage, summary = run.summary["coverage"], run.summary
    nodes = coverage["nodes"]
    rows = [
        (text(name.replace("_", " ")), text(meaning), f"{coverage[name]:,}", share(coverage[name], nodes))
        for name, meaning in TREATMENTS
        if coverage[name]
    ]
    parts = [(f"treatment-{name}", name.replace("_", " "), coverage[name]) for name, _ in TREATMENTS]
    said = [_notices("warning", summary["warnings"], folded=False), _notices("default", summary["defaults"])]
    ignored = coverage["ignored_attributes"]
    if ignored:
        listed = "".join(
            tag("li", f"{text(name)}: {count:,} nodes") for name, count in sorted(ignored.items())
        )
        said.append(
            more(
                plural(len(ignored), "attribute that nothing reads", "attributes that nothing reads"),
                tag("ul", listed),
            )
        )
    return section(
        "coverage",
        "Coverage",
        tag("p", "how the time of each node came about", class_="note"),
        bar(parts, nodes),
        table("", ("", "its time comes", "nodes", ""), rows, "<<>>"),
        *said,
    )


def _notices(what: str, notices: list[dict[str, Any]], *, folded: bool = True) -> str:
    if not notices:
        return ""
    rows = [(text(one["place"]), text(one["key"]), text(one["text"])) for one in notices]
    content = table("", ("where", "key", what), rows, "<<<")
    title = {"warning": "warning", "default": "default taken"}[what]
    return (
        more(plural(len(notices), title, {"warning": "", "default": "defaults taken"}[what]), content)
        if folded
        else (tag("h3", text(plural(len(notices), title))) + content)
    )


def configuration_section(run: RunDirectory) -> str:
    """What went in: enough to repeat the run."""
    manifest, summary = run.manifest, run.summary
    corrections = ", ".join(summary["corrections"]) or "none"
    facts = [
        ("et-sim", manifest["et_sim"]),
        ("network model", summary["model"]),
        ("profile", summary["profile"]),
        ("corrections", corrections),
        ("ranks", f"{summary['ranks']:,}"),
        ("distinct traces", f"{manifest['distinct_traces']:,}"),
        (
            "uneven",
            f"{plural(summary['uneven']['ranks'], 'rank')}, {plural(summary['uneven']['links'], 'link')}",
        ),
        *(("what if", said) for said in [factors_text(run)] if said),
    ]
    listed = "".join(_fact(name, str(value)) for name, value in facts)
    inputs = manifest["inputs"]
    rows = [(text(one["file"]), tag("code", text(one["sha256"]))) for one in inputs]
    files = more(plural(len(rows), "input file"), table("", ("file", "SHA-256"), rows, "<<")) if rows else ""
    facts_of_run = tag("dl", listed, class_="facts")
    return section("configuration", "Configuration", facts_of_run, files, _not_recorded(run))


def _fact(name: str, value: str) -> str:
    wide = {"class_": "wide"} if len(value) > MOST_LETTERS else {}
    return tag("div", tag("dt", text(name)) + tag("dd", text(value)), **wide)


def _not_recorded(run: RunDirectory) -> str:
    """What the page could also show, and how to get it."""
    could_show = COULD_SHOW if run.summary["packets"] is None else (*COULD_SHOW, OF_PACKETS)
    lacking = [(what, table_named(name).how_to_get_it) for name, what in could_show if not run.holds(name)]
    listed = "; ".join(f"{what}: {remedy}" for what, remedy in lacking)
    return tag("p", text(f"Not recorded: {listed}."), class_="note") if lacking else ""
