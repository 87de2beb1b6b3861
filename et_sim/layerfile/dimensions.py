"""Network dimensions of a layer's collectives.

A keyword names a *reach* for each phase: all NPUs, the first dimension, and so on; a machine's dimensions
turn it into flags. The transformer keywords divide the NPUs into groups that share a model, and may split a
dimension in two for that: their flags refer to *logical* dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from math import prod

from msgspec import Struct

from et_sim.basics.errors import InputError
from et_sim.layerfile.layer_file import DLRMS, TRANSFORMERS, Keyword, LayerPhase

FLAGS = 10  # dimensions in a mask of 1.0


class CollectiveReach(Enum):
    """The NPUs that a collective connects."""

    NO_NPU = auto()
    ALL = auto()
    FIRST = auto()  # along dimension 0
    OTHERS = auto()  # along all dimensions but the first
    MODEL = auto()  # NPUs that share the model
    DATA = auto()  # NPUs with the same part of the model

    @property
    def words(self) -> str:
        """Return words such as `of all NPUs`."""
        return _WORDS[self]


_WORDS = {
    CollectiveReach.NO_NPU: "of no NPUs",
    CollectiveReach.ALL: "of all NPUs",
    CollectiveReach.FIRST: "along dimension 0",
    CollectiveReach.OTHERS: "along dimensions 1 and above",
    CollectiveReach.MODEL: "within model groups",
    CollectiveReach.DATA: "within data groups",
}
# (forward and input gradient, weight gradient)
_REACHES = {
    Keyword.MICRO: (CollectiveReach.NO_NPU, CollectiveReach.ALL),
    Keyword.DATA: (CollectiveReach.NO_NPU, CollectiveReach.ALL),
    Keyword.DATA_REORDER: (CollectiveReach.NO_NPU, CollectiveReach.ALL),
    Keyword.MODEL: (CollectiveReach.ALL, CollectiveReach.NO_NPU),
    Keyword.DISTRIBUTED_INFERENCE: (CollectiveReach.ALL, CollectiveReach.NO_NPU),
    Keyword.HYBRID_DATA_MODEL: (CollectiveReach.FIRST, CollectiveReach.OTHERS),
    Keyword.HYBRID_MODEL_DATA: (CollectiveReach.OTHERS, CollectiveReach.FIRST),
    Keyword.HYBRID_DLRM: (CollectiveReach.NO_NPU, CollectiveReach.ALL),
    Keyword.HYBRID_DLRM_ENHANCED: (CollectiveReach.NO_NPU, CollectiveReach.ALL),
    Keyword.HYBRID_TRANSFORMER: (CollectiveReach.MODEL, CollectiveReach.DATA),
    Keyword.HYBRID_TRANSFORMER_FWD_IN_BCKWD: (CollectiveReach.MODEL, CollectiveReach.DATA),
}


def reach_of(keyword: Keyword, layer: int, own_keyword: Keyword | None, phase: LayerPhase) -> CollectiveReach:
    """Return the reach of the collective of a layer's phase; `own_keyword` is that of HYBRID_CUSTOMIZED."""
    if keyword in DLRMS and layer == 0:  # the embedding's all-to-alls
        return CollectiveReach.ALL
    return _REACHES[own_keyword or keyword][phase == LayerPhase.WEIGHT_GRADIENT]


class LogicalDimensions(Struct, frozen=True):
    """Dimensions of a machine as model- and data-parallel collectives use them."""

    sizes: tuple[int, ...]
    physical: tuple[int, ...]  # the dimension of the machine that each is (a part of)
    model: tuple[bool, ...]
    data: tuple[bool, ...]


def logical_dimensions(sizes: Sequence[int], group: int) -> LogicalDimensions:
    """Return the dimensions, the first of which multiply to `group`; one is split if necessary.

    A group of 1, or of more NPUs than there are, leaves no model-parallel dimension. A group that does not
    divide the NPUs is refused where 1.0 would simulate more or fewer NPUs, and never end.
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


def flags_of(
    reach: CollectiveReach, count: int, logical: LogicalDimensions | None = None
) -> tuple[bool, ...]:
    """Return one flag per dimension; `logical` is required for model and data groups."""
    if logical is not None and reach in (CollectiveReach.MODEL, CollectiveReach.DATA):
        return logical.model if reach == CollectiveReach.MODEL else logical.data
    chosen = {
        CollectiveReach.ALL: range(count),
        CollectiveReach.FIRST: range(min(count, 1)),
        CollectiveReach.OTHERS: range(1, count),
    }.get(reach, range(0))
    return tuple(at in chosen for at in range(count))


def has_groups(keyword: Keyword) -> bool:
    """Return whether the keyword divides NPUs into groups of a size that the file gives."""
    return keyword in TRANSFORMERS
