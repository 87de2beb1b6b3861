"""Keys of the object `accuracy`, of the system file, and of its entries.

Not here: reading them (`accuracy_object`), and what is known where a file says nothing (`accuracy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from et_sim.machine.accuracy import COMMUNICATION, DEVICE, HOST, KERNELS, LIBRARY, MEMORY, RECORDED, TABLES
from et_sim.machine.keys import Key, Kind
from et_sim.uncertainty import BASES, WHOLE

NAME = "accuracy"
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
        Kind.CHOICE,
        "What times rest on: `measured`, `calibrated` (fitted to measurements of the device), `modelled`, or "
        "`assumed`.",
        choices=BASES,
    ),
    Key(
        "random",
        Kind.NUMBER,
        "The standard error that each kind and size has of its own, of the logarithm.",
        maximum=MOST,
    ),
    Key("common", Kind.NUMBER, "The standard error that all of the class share.", maximum=MOST),
    Key(
        "bias",
        Kind.NUMBER,
        "By how much true times exceed predicted ones on average, as a logarithm; below 0: they are shorter.",
        minimum=-MOST,
        maximum=MOST,
    ),
)

ACCURACY_KEYS = (
    Key(DEVICE, Kind.TEXT, "What errors are of: two runs have the same ones if they name the same."),
    *(
        Key(name, Kind.OBJECT, text, choices=tuple(key.name for key in TERM_KEYS))
        for name, text in _MEANINGS.items()
    ),
)

ACCURACY_KEY = Key(
    NAME,
    Kind.OBJECT,
    "How far times may be off, of a machine that stands for a real one; then the summary has "
    "[a band](output.md#how-far-it-may-be-off).",
    "Not known there.",
    choices=tuple(key.name for key in ACCURACY_KEYS),
)
