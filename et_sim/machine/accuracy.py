"""The uncertainty of a machine's times: the object `accuracy` of the system file, and its defaults.

Only machines that stand for real ones have it: presets, and files with this object. Each class of time has a
standard error that each kind and size draws on its own, and one that the whole class shares; both are of
logarithms. A class that the file leaves out has the default below:

- kernels: presets that were fitted to nothing were off by E 24 to 45 % on products of A100 and H100, by 9 to
  12 % on large ones; on devices whose products were not measured, whole runs are slower still: published runs
  of MI300X reach about 47 % of its peak, where the preset predicts 74 %;
- communication: collectives of DGX A100, H100, H200 and B200 from 64 MiB on, simulated without a library,
  were off by 10 to 44 %, most of it in common, and smaller ones by more;
- library: NCCL's own model is 4 to 30 % too fast; where it is fitted to a machine, collectives on group sizes
  that were left out are off by E 6.1 and 6.2 %;
- the whole: the same run repeated differs by E 1.3 to 2 %, large collectives of other labs on the same device
  by 0.4 to 2.1 %; other software differs by 3 to 12 %, which is in the classes of kernels;
- recordings repeat within a few percent; hosts and remote memory were not measured;
- a training step as a whole: its software besides kernels, and plans unlike the measured ones.

The terms of training steps, of libraries (on a node by kind of collective, between nodes by kind of network)
and of some kernels of single devices are fitted by `docs/studies/fit_bands.py`
(`et_sim/machine/presets/bands.json`); the values here are those of other machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.uncertainty import (
    ASSUMED,
    ASSUMED_SOFTWARE,
    BASES,
    MEASURED,
    MODELLED,
    SOFTWARE,
    UNMEASURED,
    WHOLE,
    Composition,
    ErrorTerm,
    Trait,
)
from et_sim.documents.keys import Key, Remarks, Section, read_keys
from et_sim.documents.kinds import CHOICE, INTEGER, NUMBER, OBJECT, TEXT
from et_sim.machine.datatypes import BITS

DEVICE = "device"
KERNELS, COMMUNICATION, RECORDED, TABLES = "kernels", "communication", "recorded", "measured"
HOST, MEMORY = "host", "memory"
TRAITS: Mapping[str, str] = MappingProxyType(  # of plans, by the word of a step's `kinds`
    {
        "experts": "experts",
        "long-sequences": "long_sequences",
    }
)
TRAINING = "training"
NOT_STATED = "not stated"
SMALL_COMMUNICATION = f"small_{COMMUNICATION}"
LIBRARY, SMALL_LIBRARY, BETWEEN_NODES = "library", "small_library", "library_between_nodes"
SMALL_BETWEEN_NODES = f"small_{BETWEEN_NODES}"
SMALL_GEMM, SHORT_ATTENTION = "small_gemm", "short_attention"
LARGE_SIDE, LONG_SEQUENCE = 1024, 2048  # products and attention from these sizes on are in neither class
LARGE_BYTES = 1 << 26  # as nccl-tests counts; collectives from this size on are not `small_library`
OPERATIONS = (
    *("gemm", "grouped_gemm", "conv", "attention", "attention_backward"),
    *(SMALL_GEMM, SHORT_ATTENTION),
    *("layernorm", "rmsnorm", "softmax", "elementwise", "quantise", "embedding"),
)
EXCHANGES = (
    *("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all"),
    *("reduce_scatter", "reduce_scatter_block", "barrier", "send", "receive"),
)
FAMILY = MappingProxyType(
    {
        **dict.fromkeys(OPERATIONS, KERNELS),
        **dict.fromkeys(EXCHANGES, COMMUNICATION),
        SMALL_COMMUNICATION: COMMUNICATION,
        **dict.fromkeys((SMALL_LIBRARY, BETWEEN_NODES, SMALL_BETWEEN_NODES), LIBRARY),
    }
)
DEFAULTS: Mapping[str, ErrorTerm] = MappingProxyType(
    {
        KERNELS: ErrorTerm(ASSUMED, 0.2, 0.2),
        TABLES: ErrorTerm(MEASURED, 0.03, 0.03),
        RECORDED: ErrorTerm(MEASURED, 0.03, 0.03),
        COMMUNICATION: ErrorTerm(MODELLED, 0.25, 0.25),
        LIBRARY: ErrorTerm(MODELLED, 0.25, 0.25),
        SMALL_LIBRARY: ErrorTerm(ASSUMED, 0.1, 0.2, 0.07),
        HOST: ErrorTerm(ASSUMED, 0.1, 0.3),
        MEMORY: ErrorTerm(ASSUMED, 0.25, 0.25),
        WHOLE: ErrorTerm(ASSUMED, 0.02, 0.03),
        UNMEASURED: ErrorTerm(ASSUMED, 0.2, 0.25, 0.2),
        SOFTWARE: ErrorTerm(ASSUMED, 0.05, 0.15),
        ASSUMED_SOFTWARE: ErrorTerm(ASSUMED, 0.1, 0.3, 0.2),
        "experts": ErrorTerm(ASSUMED, 0.15, 0.2),
        "long_sequences": ErrorTerm(ASSUMED, 0.15, 0.25),
    }
)


class Accuracy(Struct, frozen=True, dict=True):
    """The classes of time of a machine with their errors."""

    device: str
    terms: Mapping[str, ErrorTerm]  # every key of DEFAULTS, and further classes of the file

    @property
    def whole(self) -> ErrorTerm:
        """Return the error that all times share."""
        return self.terms[WHOLE]

    def of_kernel(self, shape: str, datatype: str = "") -> str:
        """Return the class of kernels of a shape; a class of its datatype is preferred."""
        kinds = [kind for kind in (small_kind(shape), shape.partition(" ")[0]) if kind in OPERATIONS]
        of_datatype = [f"{kind} {datatype}" for kind in kinds if datatype]
        known = next((kind for kind in (*of_datatype, *kinds) if kind in self.terms), "")
        return known or (KERNELS if self.has_measured_products else UNMEASURED)

    @property
    def has_measured_products(self) -> bool:
        """Check whether products on the device, or on one like it, were measured."""
        return "gemm" in self.terms

    def traits(self, kinds: str, software: str, job: str = "") -> tuple[Trait, ...]:
        """Return the properties of a run that its errors depend on; `software` is empty if not stated.

        Runs with the same `job` share the errors of these properties.
        """
        words = kinds.split()
        if TRAINING not in words:
            return ()
        own = self.terms.get(of_software(software), self.terms[SOFTWARE])
        named = Trait(SOFTWARE, software, own, job)
        assumed = Trait(ASSUMED_SOFTWARE, NOT_STATED, self.terms[ASSUMED_SOFTWARE], job)
        of_plan = (Trait(name, name, self.terms[name], job) for word, name in TRAITS.items() if word in words)
        return (named if software else assumed, *of_plan)

    def of_kernel_alone(self, shape: str, datatype: str = "") -> Composition | None:
        """Return the parts of the time of a kernel of a shape."""
        kind = self.of_kernel(shape, datatype)
        return Composition.of(self.device, self.whole, self.terms, {(kind, shape): 1.0})

    def of_exchange(self, kind: str, size: int) -> str:
        """Return the class of transfers of a kind and a size that no library performs."""
        known = SMALL_COMMUNICATION if size < LARGE_BYTES else COMMUNICATION
        classes = (kind, of_kind(known, kind), known, COMMUNICATION)
        return next(name for name in classes if name in self.terms)

    def of_library(self, kind: str, size: int, *, is_on_one_node: bool) -> str:
        """Return the class of a library's collectives of a size in bytes as nccl-tests counts them."""
        known = library_class(size, is_on_one_node=is_on_one_node)
        classes = (of_kind(known, kind), known, "" if is_on_one_node else BETWEEN_NODES)
        return next(name for name in (kind, *classes, LIBRARY) if name in self.terms)

    @cached_property
    def written(self) -> dict[str, Any]:
        """Return the classes as in the manifest of a run and in system files; nothing may change them."""
        return {DEVICE: self.device, **{name: term.as_dict() for name, term in self.terms.items()}}

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Accuracy:
        """Read the dictionary that `written` returns."""
        terms = {name: ErrorTerm.read(term) for name, term in content.items() if name != DEVICE}
        return Accuracy(content[DEVICE], terms)


def of_software(name: str, device: str = "") -> str:
    """Return the class of training steps of one software, perhaps on one device only."""
    return f"{SOFTWARE} {name} on {device}" if device else f"{SOFTWARE} {name}"


def of_device(name: str, device: str) -> str:
    """Return a class on one device only."""
    return f"{name} on {device}"


def of_network(name: str, kind: str) -> str:
    """Return a class of libraries over one kind of network between nodes, of any generation."""
    return f"{name} on {kind.partition('-')[0]}"


def of_kind(name: str, kind: str) -> str:
    """Return a class for one kind of collective, which a library on a node performs, or none."""
    return f"{name} {kind}"


def of_other_machines(name: str) -> str:
    """Return the class of a library whose constants were fitted to another machine."""
    return f"{name} {MODELLED}"


def library_class(size: int, *, is_on_one_node: bool) -> str:
    """Return the class of a library's collectives, assuming that every class is stated."""
    if not is_on_one_node:
        return SMALL_BETWEEN_NODES if size < LARGE_BYTES else BETWEEN_NODES
    return SMALL_LIBRARY if size < LARGE_BYTES else LIBRARY


def small_kind(shape: str) -> str:
    """Return the class of small kernels that a shape belongs to, or an empty string.

    Launches and tiles decide the times of small kernels, which models predict less well.
    """
    kind, *words = shape.split()
    sizes = [int(word) for word in words[:4] if word.isascii() and word.isdecimal()]
    if kind == "gemm" and len(sizes) >= 3 and min(sizes[:3]) < LARGE_SIDE:
        return SMALL_GEMM
    if kind == "attention" and len(sizes) >= 4 and sizes[3] < LONG_SEQUENCE:
        return SHORT_ATTENTION
    return ""


ACCURACY = "accuracy"
MOST = 3  # of a logarithm: a factor of twenty
MOST_ROWS = 10**9
_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        KERNELS: "Kernels that a model times; a kind of operation, such as `gemm`, may have its own entry. "
        "Products with a side below 1,024 may have the entry `small_gemm`, attention of fewer than 2,048 "
        "queries `short_attention`, and each kind one for a datatype: `gemm fp8`.",
        TABLES: "Kernels whose times are in a table of measured times.",
        RECORDED: "Kernels, copies and communication that take the times of a recording.",
        COMMUNICATION: "Transfers that nothing hides; a kind, such as `all_reduce`, may have its own entry, "
        "those of less than 64 MiB `small_communication`, and a kind of one size `communication all_reduce`.",
        LIBRARY: "Collectives that the machine's collective library chooses; those of less than 64 MiB, "
        "and of groups on several nodes, may have entries apart: `small_library`, `library_between_nodes`, "
        "`small_library_between_nodes`; on a node, a kind may have its own: `small_library all_gather`.",
        HOST: "Time in which the device waits for its host.",
        MEMORY: "Time of remote memory that nothing hides.",
        UNMEASURED: "Kernels of a device whose products were not measured, except for kinds with an entry.",
        SOFTWARE: "A training step as a whole, in software that is described: copies, launches, overlap; one "
        "software may have its own entry: `software torchtitan`.",
        ASSUMED_SOFTWARE: "A training step as a whole, in software that is not stated.",
        "experts": "A training step of a model with experts.",
        "long_sequences": "A training step of 32,768 tokens and more, or with context parallelism.",
        WHOLE: "The error that all times share: clocks and other labs (`common`), and differences between "
        "runs (`random`). `basis` has no effect here.",
    }
)

TERM_KEYS = (
    Key(
        "basis",
        CHOICE,
        "The basis of the times: `measured`, `calibrated` (fitted to measurements of the device), "
        "`modelled`, or `assumed`.",
        choices=BASES,
    ),
    Key(
        "random",
        NUMBER,
        "The standard error of the logarithm for each kind and size.",
        maximum=MOST,
    ),
    Key("common", NUMBER, "The standard error of the logarithm, shared by the class.", maximum=MOST),
    Key(
        "bias",
        NUMBER,
        "The mean logarithm of true by predicted times; below 0: true times are shorter.",
        minimum=-MOST,
        maximum=MOST,
    ),
    Key("rows", INTEGER, "The number of measurements behind these errors; 0: not stated.", maximum=MOST_ROWS),
)

ACCURACY_KEYS = (
    Key(
        DEVICE, TEXT, "The device that the errors belong to: runs that name the same device share its errors."
    ),
    *(
        Key(name, OBJECT, text, choices=tuple(key.name for key in TERM_KEYS))
        for name, text in _MEANINGS.items()
    ),
)


def read_accuracy(given: dict[str, Any] | None, section: Section, remarks: Remarks) -> Accuracy | None:
    """Read the object `accuracy`; return None if there is none."""
    if given is None:
        return None
    section = section.entry(ACCURACY, given)
    known = {key.name: key for key in ACCURACY_KEYS}
    like = {name: KERNELS for name in given if _is_of_datatype(name)}
    like |= {name: name.partition(" ")[0] for name in given if _is_of_kind(name)}
    like |= {name: SOFTWARE for name in given if name.startswith(of_software("")) and name.isprintable()}
    for name in (*FAMILY, *like):
        known[name] = replace(known[like.get(name, KERNELS)], name=name)
    terms = dict(DEFAULTS)
    for name, value in read_keys(section, tuple(known.values()), remarks).items():
        if name != DEVICE:
            read = read_keys(section.entry(name, value), TERM_KEYS, remarks)
            base = like.get(name, name)
            usual = DEFAULTS[base if base in DEFAULTS else FAMILY[base]]
            terms[name] = ErrorTerm(**{**usual.as_dict(), **read})
    return Accuracy(given.get(DEVICE, ""), MappingProxyType(terms))


def _is_of_kind(name: str) -> bool:
    """Check whether a class is of one kind of collective and of a size: `small_library all_gather`."""
    size, _, kind = name.partition(" ")
    return kind in EXCHANGES and size in (COMMUNICATION, SMALL_COMMUNICATION, LIBRARY, SMALL_LIBRARY)


def _is_of_datatype(name: str) -> bool:
    """Check whether a class is of an operation in one datatype: `gemm fp8`."""
    operation, _, datatype = name.partition(" ")
    return operation in OPERATIONS and datatype in BITS
