"""Indented JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any


def indented(content: Any, indent: str = "\n") -> str:
    """Return the text of `json.dumps(content, indent=2, ensure_ascii=False)`, but faster.

    Contents without lists or objects, and lists of such objects, are encoded by the compiled encoder, which
    cannot indent by itself: a line never ends within a text.
    """
    inner = f"{indent}  "
    is_object = isinstance(content, dict)
    parts = content.values() if is_object else content if isinstance(content, list | tuple) else ()
    if not _are_nested(parts):
        text = _encoded(content, inner)
        return f"{text[0]}{inner}{text[1:-1]}{indent}{text[-1]}" if parts else text
    if not is_object and all(type(part) is dict and part for part in parts) and _are_flat(parts):
        deep = f"{inner}  "
        text = _encoded(content, deep).replace(f"}},{deep}{{", f"{inner}}},{inner}{{{deep}")
        return f"[{inner}{{{deep}{text[2:-2]}{inner}}}{indent}]"
    texts = [indented(part, inner) for part in parts]
    if is_object:
        texts = [f"{_key(key)}: {text}" for key, text in zip(content, texts, strict=True)]
    first, last = "{}" if is_object else "[]"
    return f"{first}{inner}{f',{inner}'.join(texts)}{indent}{last}"


def _are_nested(parts: Iterable[Any]) -> bool:
    return any(issubclass(kind, dict | list | tuple) for kind in {*map(type, parts)})


def _are_flat(objects: Iterable[Any]) -> bool:
    return not _are_nested(chain.from_iterable(content.values() for content in objects))


def _encoded(content: Any, indent: str) -> str:
    return json.JSONEncoder(ensure_ascii=False, separators=(f",{indent}", ": ")).encode(content)


def _key(key: Any) -> str:
    return json.dumps(key if isinstance(key, str) else json.dumps(key), ensure_ascii=False)
