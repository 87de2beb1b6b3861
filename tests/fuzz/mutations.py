"""Damage to files, by chance: bytes, JSON values, and words of a text.

Every function takes a `random.Random`, so that a seed gives the same damage again.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from typing import Any

from converters.records import frame, parse, split

NUMBERS = (-1, 0, 1, 2, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63), 0.5, -0.0, 1e-300)
LONG = ("9" * 5000, "x" * 20_000, "word " * 5000, "../" * 3000)
VALUES: tuple[Any, ...] = (
    *NUMBERS,
    *(1e308, float("inf"), float("-inf"), float("nan"), 10**4000),
    *("", "0", "ring", "\0", "\ud83d\ude00", "0-3", "1-0", "1e400", "5 parsecs", "NaN", *LONG),
    *(None, True, False, [], {}, [[]], [None], {"": 0}, [0] * 5000),
)
WORDS = (
    "",
    "-1",
    "0",
    "1e999",
    ".inf",
    "nan",
    "99999999999999999999",
    "true",
    "[",
    "{",
    ":",
    "\0",
    "\n",
    *LONG,
)

Damage = Callable[[bytes, random.Random], bytes]


def damage_bytes(content: bytes, chance: random.Random) -> bytes:
    """Change, remove, double or move a few bits, bytes or stretches."""
    out = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(out) + 1)
        end = min(at + chance.choice((1, 1, 2, 8, 64, 512)), len(out))
        match chance.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(out):
                out[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 2:
                del out[at:end]
            case 3:
                out[at:at] = out[at:end] * chance.choice((1, 2, 50))
            case 4:
                del out[at:]
            case 5:
                out[at:at] = bytes([0xFF] * chance.choice((1, 9, 10))) + b"\x01"
            case _:
                out[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 8))))
        if not out:
            break
    return bytes(out)


def damage_nodes(content: bytes, chance: random.Random) -> bytes:
    """Change figures in records of a trace, or remove, double or move records, which stay valid."""
    records = list(split(content))
    nodes = list(parse(iter(records), "a trace"))
    for _ in range(chance.choice((1, 1, 2, 4))):
        node = chance.choice(nodes[1:])
        match chance.randrange(6):
            case 0:
                node.id = chance.choice((0, 1, 2**64 - 1, chance.randrange(2**64)))
            case 1:
                node.type = chance.choice((*range(9), 77))
            case 2:
                node.data_deps.append(chance.choice((0, 1, 2, node.id, 2**63)))
            case 3:
                node.duration_micros = chance.choice((0, 2**53, 2**63, 2**64 - 1))
            case _ if node.attr:
                _other_figure(chance.choice(node.attr), chance)
            case _:
                del nodes[-1]
                if len(nodes) < 2:
                    break
    return frame(nodes)


def _other_figure(attribute: Any, chance: random.Random) -> None:
    """Set another value, rarely of another type."""
    kind = attribute.WhichOneof("value") or "int64_val"
    if chance.random() < 0.2:
        kind = chance.choice(("int64_val", "uint64_val", "double_val", "string_val", "bool_val"))
    value: Any = chance.choice([number for number in NUMBERS if isinstance(number, int)])
    limits = {"int32_val": 2**31, "uint32_val": 2**32, "int64_val": 2**63, "uint64_val": 2**64}
    if kind in limits:
        value = max(min(value, limits[kind] - 1), 0 if kind.startswith("u") else -limits[kind])
    elif kind == "string_val":
        value = chance.choice(("", "0", "\0", *LONG))
    elif kind == "bool_val":
        value = chance.random() < 0.5
    elif kind == "double_val":
        value = chance.choice((float("nan"), float("inf"), -1.0, 1e300))
    else:
        return
    setattr(attribute, kind, value)


def damage_json(content: bytes, chance: random.Random) -> bytes:
    """Replace, leave out, rename or copy values; rarely, damage the text itself."""
    if chance.random() < 0.1:
        return damage_bytes(content, chance)
    value = json.loads(content)
    for _ in range(chance.choice((1, 1, 2, 4))):
        value = _changed(value, chance)
    return json.dumps(value).encode(errors="surrogatepass")


def _changed(value: Any, chance: random.Random) -> Any:
    """Return the value with one place in it changed."""
    inside = value if isinstance(value, dict | list) and value else None
    if inside is None or chance.random() < 0.1:
        return copy.deepcopy(chance.choice(VALUES))
    key = chance.choice(list(inside)) if isinstance(inside, dict) else chance.randrange(len(inside))
    match chance.randrange(10):
        case 0:
            del inside[key]
        case 1 if isinstance(inside, dict):
            inside[chance.choice([str(name) for name in VALUES[:20]] + [f"{key}s", *LONG])] = inside.pop(key)
        case 2 if isinstance(inside, list):
            inside.insert(key, copy.deepcopy(chance.choice(VALUES)))
        case 3:
            other = chance.choice(list(inside)) if isinstance(inside, dict) else chance.randrange(len(inside))
            inside[key] = copy.deepcopy(inside[other])
        case _:
            inside[key] = _changed(inside[key], chance)
    return value


def damage_words(content: bytes, chance: random.Random) -> bytes:
    """Replace, leave out, double or swap words of a text."""
    if chance.random() < 0.1:
        return damage_bytes(content, chance)
    words = re.split(r"(\s+|[\[\]<>=\",:])", content.decode())
    for _ in range(chance.choice((1, 1, 2, 4))):
        at, other = chance.randrange(len(words)), chance.randrange(len(words))
        match chance.randrange(5):
            case 0:
                words[at] = ""
            case 1:
                words[at], words[other] = words[other], words[at]
            case 2:
                words[at] *= 2
            case _:
                words[at] = chance.choice(WORDS)
    return "".join(words).encode()
