"""Random machines that give every key, with a mistake in one of their files, as command lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from random_commands import Line
from random_keys import KEYED

from et_sim.trace import write_workload

SEEDS, SHARE = 48, 0.6  # of each kind of machine; of its keys that are given
LEFT_OUT = {"libraries", "own-programs", "layers"}  # those take long, or their files are others
FILES = {"system": "system.json", "network": "network.yml", "memory": "memory.json"}


def mistakes(draw: Random) -> Line:
    """Return a run or a check of a machine of one of the kinds of random keys, mostly with a mistake."""
    kind, seed = draw.choice(sorted({*KEYED} - LEFT_OUT)), draw.randrange(SEEDS)
    words = draw.choice(("run job {} --out run/r", "run job {} --out run/r", "check job {}"))
    model = draw.choice(("analytical", "link", "flow", "packet", "loggops"))
    given = " ".join(f"--{name} {file}" for name, file in FILES.items())
    line = words.format(f"{given} --network-model {model}")
    return Line(line, draw.choice((0, 0, 1)), build=partial(_written, kind, seed))


def _written(kind: str, seed: int, draw: Random) -> None:
    """Write the workload and the machine of a seed."""
    drawn = KEYED[kind](seed)
    options = {"memory": {"memory-type": "NO_MEMORY_EXPANSION"}}
    keys = {name: value for name, value in drawn.keys.items() if draw.random() < SHARE}
    options |= drawn.options | drawn.with_keys(keys)
    write_workload(drawn.workload, Path("job"))
    wrong = draw.choice(("system", "system", "network", "network", "network", "memory", ""))
    for name, file in FILES.items():
        content = json.loads(json.dumps(options[name]))
        if name == wrong:
            _mistake(draw, content)
        Path(file).write_text(json.dumps(content, indent=1), encoding="utf-8")


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each object or list in a content, with each of its keys."""
    left = [content]
    while left:
        inside = left.pop()
        for key in inside if isinstance(inside, dict) else range(len(inside)):
            yield inside, key
            if isinstance(inside[key], dict | list):
                left.append(inside[key])


def _mistake(draw: Random, content: dict[str, Any]) -> None:
    """Change, misname, double or leave out one value of a content."""
    inside, key = draw.choice([*_places(content)])
    value = inside[key]
    changes: tuple[Callable[[], Any], ...] = (lambda: inside.pop(key),)
    if isinstance(inside, dict):
        changes += (lambda: inside.update({f"{key}s": inside.pop(key)}),)
    else:
        changes += (lambda: inside.append(value),)
    others: tuple[Any, ...] = ("x", -1, [value], None)
    if isinstance(value, int | float):
        others = (-1, 0, value + 1, value * 2, -value, 1e99, 0.5, f"{value}", [value])
    elif isinstance(value, str):
        others = (f"{value}s", value[:-1], "", 7, value.upper(), f"-{value}")
    changes += tuple(partial(inside.__setitem__, key, other) for other in others) * 2
    draw.choice(changes)()
