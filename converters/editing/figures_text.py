"""Figures of traces for people and for programs. Not here: the counting (`statistics`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from converters.editing.statistics import Figures, Tally
from et_sim.basics.units import exact_bytes, format_bytes, format_ns, plural

_LABEL_WIDTH = 14
_LONGEST_NAME = 48


def as_lines(figures: Figures, top: int) -> Iterator[str]:
    """The figures under a title that the caller prints; tables are cut after `top` rows."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in figures.nodes.items())
    host = f"; {figures.host_nodes:,} on the host" if figures.host_nodes else ""
    yield _row("nodes", f"{figures.nodes.total():,}: {kinds}{host}" if figures.nodes else "none")
    listed = ", ".join(f"{count:,} {kind}" for kind, count in figures.dependencies.items()) or "none"
    ends = f"{plural(figures.first_nodes, 'node')} at the beginning, {figures.last_nodes:,} at the end"
    yield _row("dependencies", f"{listed}; {ends}")
    if figures.nodes:
        yield _row("depth", _depth(figures))
    if figures.span_us:
        begin, end = (format_ns(1000 * at) for at in figures.span_us)
        yield _row("recorded", f"from {begin} to {end}: {format_ns(1000 * _span(figures))}")
    for kind, tally in figures.durations.items():
        yield _row("time", f"{kind}: {_spent(tally)}; longest {format_ns(tally.longest_ns)}, {tally.longest}")
    yield from _memory(figures)
    yield from _communication(figures, top)
    yield from _names(figures, top)


def as_plain(figures: Figures) -> dict[str, Any]:
    """The same for programs, with nothing left out."""
    return {
        "ranks": figures.ranks,
        "nodes": dict(figures.nodes),
        "host_nodes": figures.host_nodes,
        "dependencies": dict(figures.dependencies),
        "first_nodes": figures.first_nodes,
        "last_nodes": figures.last_nodes,
        "depth": figures.depth,
        "path_ns": figures.path_ns,
        "recorded_us": list(figures.span_us) if figures.span_us else None,
        "durations": {kind: _plain_tally(tally) for kind, tally in figures.durations.items()},
        "names": {name: _plain_tally(tally) for name, tally in _by_time(figures)},
        "collectives": [
            {"group": group, "type": kind, "bytes": size, "nodes": count}
            for (group, kind, size), count in _by_bytes(figures)
        ],
        "messages": [{"bytes": size, "sends": count} for size, count in sorted(figures.messages.items())],
        "loaded_bytes": figures.loaded_bytes,
        "stored_bytes": figures.stored_bytes,
        "tensors": figures.tensors,
        "tensor_bytes": figures.tensor_bytes,
    }


def _depth(figures: Figures) -> str:
    if not figures.depth:
        return "none: nodes wait for each other in a circle, which et-sim check names"
    path = f"; longest way by recorded durations {format_ns(figures.path_ns)}" if figures.path_ns else ""
    return f"{plural(figures.depth, 'node')} one after the other{path}"


def _memory(figures: Figures) -> Iterator[str]:
    if figures.loaded_bytes or figures.stored_bytes:
        loaded, stored = format_bytes(figures.loaded_bytes), format_bytes(figures.stored_bytes)
        yield _row("memory", f"{loaded} loaded, {stored} stored")
    if figures.tensors:
        each = " on the rank with most" if figures.ranks > 1 else ""
        yield _row("tensors", f"{figures.tensors:,}, {format_bytes(figures.tensor_bytes)} in all{each}")


def _communication(figures: Figures, top: int) -> Iterator[str]:
    ordered = _by_bytes(figures)
    if ordered:
        rows = [
            (group or "all ranks", kind, f"{count:,}", exact_bytes(size), format_bytes(size * count))
            for (group, kind, size), count in ordered[:top]
        ]
        yield from _table(("group", "collective", "nodes", "each", "together"), rows, len(ordered))
    if figures.messages:
        listed = sorted(figures.messages.items(), key=lambda item: (-item[0] * item[1], item[0]))
        cells = [
            (f"{count:,}", exact_bytes(size), format_bytes(size * count)) for size, count in listed[:top]
        ]
        yield from _table(("sends", "each", "together"), cells, len(listed))


def _names(figures: Figures, top: int) -> Iterator[str]:
    ordered = _by_time(figures)
    rows = []
    for name, tally in ordered[:top]:
        text = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        times = (format_ns(span) for span in (tally.total_ns, tally.total_ns / tally.nodes, tally.longest_ns))
        rows.append((" ".join(text.split()), f"{tally.nodes:,}", *times))
    if rows:
        yield from _table(("name", "nodes", "time", "mean", "longest"), rows, len(ordered))


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], count: int) -> Iterator[str]:
    """Text to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    is_text = [heading in ("group", "collective", "name") for heading in headings]
    for cells in (headings, *rows):
        columns = (
            f"{cell:<{width}}" if left else f"{cell:>{width}}"
            for cell, width, left in zip(cells, widths, is_text, strict=True)
        )
        yield f"  {'  '.join(columns)}".rstrip()
    if count > len(rows):
        yield f"  … {count - len(rows):,} more"


def _by_bytes(figures: Figures) -> list[tuple[tuple[str, str, int], int]]:
    return sorted(figures.collectives.items(), key=lambda item: (-item[0][2] * item[1], item[0]))


def _by_time(figures: Figures) -> list[tuple[str, Tally]]:
    return sorted(figures.names.items(), key=lambda item: (-item[1].total_ns, item[0]))


def _span(figures: Figures) -> int:
    begin, end = figures.span_us or (0, 0)
    return end - begin


def _spent(tally: Tally) -> str:
    return f"{format_ns(tally.total_ns)} in {plural(tally.nodes, 'node')}"


def _plain_tally(tally: Tally) -> dict[str, Any]:
    return {"nodes": tally.nodes, "total_ns": tally.total_ns, "longest_ns": tally.longest_ns}


def _row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}} {text}"
