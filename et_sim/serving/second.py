"""A second model on the machine, with replicas of its own behind those of the first one.

Transfers of both models share the links of the network. Requests name their model, or a share
of them, drawn at random, is for the second one. Options of engine, batching and numbers hold for both.
"""

from __future__ import annotations

from msgspec import Struct

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.workloads.models.model import Model

SHARE, REPLICAS, PREFILL, DECODE = "share", "replicas", "prefill-replicas", "decode-replicas"
PLANNED = {"tp": "tensor", "dp": "data", "ep": "expert", "pp": "pipeline"}  # fields of the plan
COUNTS = (REPLICAS, PREFILL, DECODE, *PLANNED)
EXAMPLE = "llama3-8b,share=0.3,tp=2,replicas=2"


class SecondModel(Struct, frozen=True):
    """A second model, the share of requests for it, and its replicas."""

    model: Model
    share: float | None = None  # None: requests name their models
    replicas: int = 1  # for tokens
    prefill_replicas: int = 0  # 0: all replicas do both
    tensor: int = 1
    data: int = 1
    expert: int = 1
    pipeline: int = 1


def words_of(given: str) -> tuple[str, dict[str, str]]:
    """Return the name and the values of the option."""
    name, *words = given.split(",")
    known, values = (SHARE, *COUNTS), dict[str, str]()
    for word in words:
        key, sign, value = word.partition("=")
        if key not in known or not sign:
            remedy = did_you_mean(key, known) or f"known: {', '.join(known)}, as in {EXAMPLE}"
            remedy = f"give {key}=VALUE, as in {EXAMPLE}" if key in known else remedy
            raise UsageError(f"--second-model has no {word!r}", remedy=remedy)
        if key in values:
            raise UsageError(f"--second-model has {key} twice", remedy="leave one of them out")
        values[key] = value
    return name, values


def second_of(model: Model, values: dict[str, str]) -> SecondModel:
    """Return the second model of an option's values."""
    counts = {key: _count(key, values[key]) for key in COUNTS if key in values}
    if (PREFILL in counts) != (DECODE in counts) or (REPLICAS in counts and PREFILL in counts):
        raise UsageError(
            f"--second-model needs {REPLICAS}, or both {PREFILL} and {DECODE}", remedy=f"as in {EXAMPLE}"
        )
    return SecondModel(
        model,
        _share(values[SHARE]) if SHARE in values else None,
        counts.get(DECODE, counts.get(REPLICAS, 1)),
        counts.get(PREFILL, 0),
        **{field: counts.get(key, 1) for key, field in PLANNED.items()},
    )


def _count(key: str, word: str) -> int:
    if not (word.isascii() and word.isdigit() and 1 <= int(word[:10]) <= 10**6):
        raise UsageError(
            f"{key} of --second-model is {word!r}", remedy="give a whole number from 1 to 1,000,000"
        )
    return int(word)


def _share(word: str) -> float:
    try:
        share = float(word)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        remedy = "give a part of the requests, from 0 to 1, such as 0.3"
        raise UsageError(f"{SHARE} of --second-model is {word!r}", remedy=remedy)
    return share
