"""On which network dimensions do a layer's collectives run?

A keyword names a *reach* for each phase: everybody, the first dimension, and so on; a machine's dimensions
turn it into flags. The transformer keywords divide the NPUs into groups that share a model, and may split a
dimension in two for that: their flags are over *logical* dimensions.

Not here: the size of the collectives, and when they are issued.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from math import prod

from msgspec import Struct

from et_sim.basics.errors import InputError
from et_sim.layerfile.layer_file import DLRMS, TRANSFORMERS, Keyword, Phase

FLAGS = 10  # dimensions of a mask of 1.0


class Reach(Enum):
    """Whom a collective reaches."""

    NOBODY = auto()
    EVERYBODY = auto()
    FIRST = auto()  # along dimension 0
    OTHERS = auto()  # along all dimensions but the first
    MODEL = auto()  # who shares the model
    DATA = auto()  # who has the same part of the model

    @property
    def words(self) -> str:
        """`of all NPUs`."""
        return _WORDS[self]


_WORDS = {
    Reach.NOBODY: "of nobody",
    Reach.EVERYBODY: "of all NPUs",
    Reach.FIRST: "along dimension 0",
    Reach.OTHERS: "along dimensions 1 and above",
    Reach.MODEL: "within model groups",
    Reach.DATA: "within data groups",
}
# (forward and input gradient, weight gradient)
_REACHES = {
    Keyword.MICRO: (Reach.NOBODY, Reach.EVERYBODY),
    Keyword.DATA: (Reach.NOBODY, Reach.EVERYBODY),
    Keyword.DATA_REORDER: (Reach.NOBODY, Reach.EVERYBODY),
    Keyword.MODEL: (Reach.EVERYBODY, Reach.NOBODY),
    Keyword.DISTRIBUTED_INFERENCE: (Reach.EVERYBODY, Reach.NOBODY),
    Keyword.HYBRID_DATA_MODEL: (Reach.FIRST, Reach.OTHERS),
    Keyword.HYBRID_MODEL_DATA: (Reach.OTHERS, Reach.FIRST),
    Keyword.HYBRID_DLRM: (Reach.NOBODY, Reach.EVERYBODY),
    Keyword.HYBRID_DLRM_ENHANCED: (Reach.NOBODY, Reach.EVERYBODY),
    Keyword.HYBRID_TRANSFORMER: (Reach.MODEL, Reach.DATA),
    Keyword.HYBRID_TRANSFORMER_FWD_IN_BCKWD: (Reach.MODEL, Reach.DATA),
}


def reach_of(keyword: Keyword, layer: int, own_keyword: Keyword | None, phase: Phase) -> Reach:
    """Whom the collective of a layer's phase reaches; `own` is the layer's keyword in HYBRID_CUSTOMIZED."""
    if keyword in DLRMS and layer == 0:  # the embedding's all-to-alls
        return Reach.EVERYBODY
    return _REACHES[own_keyword or keyword][phase == Phase.WEIGHT_GRADIENT]


class LogicalDimensions(Struct, frozen=True):
    """A machine's dimensions as model- and data-parallel collectives see them."""

    sizes: tuple[int, ...]
    physical: tuple[int, ...]  # of each, the dimension of the machine that it is (a part of)
    model: tuple[bool, ...]
    data: tuple[bool, ...]


def logical_dimensions(sizes: Sequence[int], group: int) -> LogicalDimensions:
    """Return the dimensions, of which the first multiply to `group`; one is split if it must be.

    A group of 1, or of more than there are NPUs, leaves no model-parallel dimension. A group that does not
    divide is refused where 1.0 would simulate more or fewer NPUs than there are, and never end.
    """
    if group == 1 or group > prod(sizes):
        return _divided(list(sizes), list(range(len(sizes))), 0)
    before = 1
    for at, size in enumerate(sizes):
        if before * size == group:
            return _divided(list(sizes), list(range(len(sizes))), at + 1)
        if before * size > group:
            inner = group // before
            outer = size // inner
            if inner * outer != size:
                raise InputError(
                    f"a model-parallel group of {group} NPUs would split dimension {at}, which has {size},"
                    f" into {inner} and {outer}",
                    place="layer file",
                    remedy=f"let the group be a product of dimensions {tuple(sizes)} from the first one on,"
                    " the last of which may be a divisor of the dimension",
                )
            split = [*sizes[:at], inner, outer, *sizes[at + 1 :]]
            physical = [*range(at + 1), *range(at, len(sizes))]
            return _divided(split, physical, at + 1)
        before *= size
    raise AssertionError("a group of no more NPUs than there are ends in some dimension")


def _divided(sizes: list[int], physical: list[int], model: int) -> LogicalDimensions:
    is_model = tuple(at < model for at in range(len(sizes)))
    return LogicalDimensions(tuple(sizes), tuple(physical), is_model, tuple(not flag for flag in is_model))


def flags_of(reach: Reach, count: int, logical: LogicalDimensions | None = None) -> tuple[bool, ...]:
    """One flag per dimension; `logical` is needed for model and data groups."""
    if logical is not None and reach in (Reach.MODEL, Reach.DATA):
        return logical.model if reach == Reach.MODEL else logical.data
    chosen = {
        Reach.EVERYBODY: range(count),
        Reach.FIRST: range(min(count, 1)),
        Reach.OTHERS: range(1, count),
    }.get(reach, range(0))
    return tuple(at in chosen for at in range(count))


def has_groups(keyword: Keyword) -> bool:
    """Return whether the keyword divides NPUs into groups of a size that the file gives."""
    return keyword in TRANSFORMERS
