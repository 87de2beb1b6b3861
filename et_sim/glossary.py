"""Words that summaries, tables and pages print; `python -m et_sim.glossary FILE` writes them as a page."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import msgspec

PAGE = """# Words

Every word that a summary, a table or a page of et-sim prints. `et-sim explain WORD` finds each of them, and
keys, columns and options as well. (`python -m et_sim.glossary` makes this page.)

| word | meaning |
|---|---|
"""


class Term(msgspec.Struct, frozen=True):
    """A word, its meaning, and other words for it."""

    name: str
    text: str
    also: tuple[str, ...] = ()


def terms() -> list[Term]:
    """Return the words in alphabetical order."""
    content = (files("et_sim") / "glossary.json").read_bytes()
    return msgspec.json.decode(content, type=list[Term])


def page() -> str:
    """Return the words as a page in Markdown."""
    rows = (f"| {', '.join((f'**{term.name}**', *term.also))} | {term.text} |\n" for term in terms())
    return PAGE + "".join(rows)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
