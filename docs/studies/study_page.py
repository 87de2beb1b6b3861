"""The output of a study's script: texts between markers of its page, and pictures beside the page.

    <!-- NAME: begin -->
    whatever the script writes
    <!-- NAME: end -->

Not here: how pictures are drawn (`plots`), and what a study finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def with_texts(page: str, texts: Mapping[str, str]) -> str:
    """Return the page with these texts between the markers of their names."""
    for name, text in texts.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the page has no markers <!-- {name}: begin --> and <!-- {name}: end -->")
        page = f"{before}{begin}{text.rstrip()}\n{end}{after}"
    return page


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown; the first column is text, and the others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write_study(page: Path, texts: Mapping[str, str], pictures: Mapping[str, str]) -> None:
    """Write the texts on the page, and each picture as a file beside it."""
    written = with_texts(page.read_text(encoding="utf-8"), texts)
    page.write_text(written, encoding="utf-8")
    for name, svg in pictures.items():
        (page.parent / name).write_text(svg, encoding="utf-8")
