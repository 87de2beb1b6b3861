"""Small pieces of HTML; text is escaped in one place."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from et_sim.views.text import share


def tag(name: str, content: str, **attributes: str) -> str:
    """Return an element around markup; `class_` and the like lose the underscore."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(v)}"' for key, v in attributes.items())
    return f"<{name}{given}>{content}</{name}>"


def text(content: object) -> str:
    """Return text as markup."""
    return escape(str(content))


def cut_text(short: str, whole: str) -> str:
    """Return text as markup; cut text has the whole as a tooltip."""
    return text(short) if short == whole else tag("abbr", text(short), title=whole)


def bar(parts: Sequence[tuple[str, str, int]], whole: int) -> str:
    """Return parts of a whole, each with a class and a name, as a bar; empty ones are left out."""
    pieces = []
    for kind, name, amount in parts:
        if amount > 0:
            width = f"width:{100 * amount / max(whole, 1):.3f}%"
            pieces.append(tag("i", "", class_=kind, style=width, title=f"{name} {share(amount, whole)}"))
    description = ", ".join(f"{name} {share(amount, whole)}" for _, name, amount in parts if amount > 0)
    return tag("span", "".join(pieces), class_="bar", role="img", aria_label=description)


def section(name: str, title: str, *content: str) -> str:
    """Return a part of the page with a heading."""
    inner = tag("h2", text(title), id=f"{name}-title") + "\n".join(content)
    return tag("section", inner, id=name, aria_labelledby=f"{name}-title")


def absent(reason: str, remedy: str) -> str:
    """Return a sentence in place of content that the run does not hold."""
    return tag("p", f"{text(reason)}: {text(remedy)}.", class_="absent")


def more(summary: str, content: str) -> str:
    """Return long content that is folded."""
    return tag("details", tag("summary", text(summary)) + content)
