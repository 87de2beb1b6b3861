"""The object `accuracy` of the system file.

Not here: what is known where a file says nothing (`accuracy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from et_sim.basics.uncertainty import BASES, WHOLE, Term
from et_sim.documents.keys import Key, Remarks, Section, read_keys
from et_sim.documents.kinds import CHOICE, NUMBER, OBJECT, TEXT
from et_sim.machine.accuracy import (
    COMMUNICATION,
    DEFAULTS,
    DEVICE,
    FAMILY,
    HOST,
    KERNELS,
    LIBRARY,
    MEMORY,
    RECORDED,
    TABLES,
    Accuracy,
)

ACCURACY = "accuracy"
MOST = 3  # of a logarithm: a factor of twenty
_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        KERNELS: "Kernels that a model times; a kind of operation, such as `gemm`, may have its own entry. "
        "Of `gemm`, those with a side below 1,024 may have one apart, `small_gemm`; of `attention`, those of "
        "fewer than 2,048 queries, `short_attention`.",
        TABLES: "Kernels whose times stand in a table of measured times.",
        RECORDED: "Kernels, copies and communication that take the times of a recording.",
        COMMUNICATION: "Transfers that nothing hides; a kind, such as `all_reduce`, may have its own entry.",
        LIBRARY: "Collectives that the machine's collective library chooses; those of less than 64 MiB, "
        "and of groups on several nodes, may have entries apart: `small_library`, `library_between_nodes`.",
        HOST: "Time in which the device waits for its host.",
        MEMORY: "Time of remote memory that nothing hides.",
        WHOLE: "What all times share: other software, clocks (`common`), and what differs from one run to "
        "the next (`random`). `basis` says nothing here.",
    }
)

TERM_KEYS = (
    Key(
        "basis",
        CHOICE,
        "What times rest on: `measured`, `calibrated` (fitted to measurements of the device), `modelled`, or "
        "`assumed`.",
        choices=BASES,
    ),
    Key(
        "random",
        NUMBER,
        "The standard error that each kind and size has of its own, of the logarithm.",
        maximum=MOST,
    ),
    Key("common", NUMBER, "The standard error that all of the class share.", maximum=MOST),
    Key(
        "bias",
        NUMBER,
        "By how much true times exceed predicted ones on average, as a logarithm; below 0: they are shorter.",
        minimum=-MOST,
        maximum=MOST,
    ),
)

ACCURACY_KEYS = (
    Key(DEVICE, TEXT, "What errors are of: two runs have the same ones if they name the same."),
    *(
        Key(name, OBJECT, text, choices=tuple(key.name for key in TERM_KEYS))
        for name, text in _MEANINGS.items()
    ),
)


def read_accuracy(given: dict[str, Any] | None, section: Section, remarks: Remarks) -> Accuracy | None:
    """What the object says; None where there is none."""
    if given is None:
        return None
    section = section.entry(ACCURACY, given)
    known = {key.name: key for key in ACCURACY_KEYS}
    for name in FAMILY:
        known[name] = replace(known[KERNELS], name=name)
    terms = dict(DEFAULTS)
    for name, value in read_keys(section, tuple(known.values()), remarks).items():
        if name != DEVICE:
            read = read_keys(section.entry(name, value), TERM_KEYS, remarks)
            usual = DEFAULTS[FAMILY.get(name, name)]
            terms[name] = Term(**{**usual.as_dict(), **read})
    return Accuracy(given.get(DEVICE, ""), MappingProxyType(terms))
