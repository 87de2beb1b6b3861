"""Content of a layer file as plain values, and its text.

A file names a training loop and lists layers. A layer has three phases, each a computation and perhaps a
collective. Times are nanoseconds and sizes are bytes of one NPU.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from et_sim.basics.alignment import aligned
from et_sim.basics.errors import TraceError
from et_sim.trace.columns import CollectiveKind

if TYPE_CHECKING:
    from collections.abc import Mapping


class Keyword(StrEnum):
    """Training loops, by their words in a file."""

    MICRO = "MICRO"
    DATA = "DATA"
    DATA_REORDER = "DATA_REORDER"
    MODEL = "MODEL"
    HYBRID_DATA_MODEL = "HYBRID_DATA_MODEL"
    HYBRID_MODEL_DATA = "HYBRID_MODEL_DATA"
    HYBRID_CUSTOMIZED = "HYBRID_CUSTOMIZED"
    HYBRID_TRANSFORMER = "HYBRID_TRANSFORMER"
    HYBRID_TRANSFORMER_FWD_IN_BCKWD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
    HYBRID_DLRM = "HYBRID_DLRM"
    HYBRID_DLRM_ENHANCED = "HYBRID_DLRM_ENHANCED"
    DISTRIBUTED_INFERENCE = "DISTRIBUTED_INFERENCE"


KEYWORDS = tuple(keyword.value for keyword in Keyword)
TRANSFORMERS = (Keyword.HYBRID_TRANSFORMER, Keyword.HYBRID_TRANSFORMER_FWD_IN_BCKWD)
DLRMS = (Keyword.HYBRID_DLRM, Keyword.HYBRID_DLRM_ENHANCED)
# Keywords that a layer of HYBRID_CUSTOMIZED may name: those that define the dimensions of collectives by
# themselves.
PER_LAYER = (
    Keyword.MICRO.value,
    Keyword.DATA.value,
    Keyword.MODEL.value,
    Keyword.HYBRID_DATA_MODEL.value,
    Keyword.HYBRID_MODEL_DATA.value,
    Keyword.DISTRIBUTED_INFERENCE.value,
)


class LayerPhase(IntEnum):
    """The three parts of a layer's work, in the order of a file's columns."""

    FORWARD = 0
    INPUT_GRADIENT = 1
    WEIGHT_GRADIENT = 2

    @property
    def words(self) -> str:
        """Return words such as `weight gradient`."""
        return self.name.lower().replace("_", " ")


NO_COLLECTIVE = "NONE"
COLLECTIVE_WORDS: Mapping[str, CollectiveKind | None] = MappingProxyType(
    {
        NO_COLLECTIVE: None,
        "ALLREDUCE": CollectiveKind.ALL_REDUCE,
        "ALLGATHER": CollectiveKind.ALL_GATHER,
        "REDUCESCATTER": CollectiveKind.REDUCE_SCATTER,
        "ALLTOALL": CollectiveKind.ALL_TO_ALL,
    }
)


class PhaseWork(Struct, frozen=True):
    """A computation, and the collective after it, if there is one."""

    compute_ns: int = 0
    collective: CollectiveKind | None = None
    bytes: int = 0

    @property
    def word(self) -> str:
        """Return the word of the collective in a file."""
        return next(word for word, kind in COLLECTIVE_WORDS.items() if kind == self.collective)


class Layer(Struct, frozen=True):
    """A record of a file. After each of its collectives, `update_ns` pass before others see it as
    complete.
    """

    name: str
    forward: PhaseWork = PhaseWork()
    input_gradient: PhaseWork = PhaseWork()
    weight_gradient: PhaseWork = PhaseWork()
    update_ns: int = 0
    keyword: Keyword | None = None  # HYBRID_CUSTOMIZED: selects the dimensions of its collectives
    reserved: int = -1  # unused

    def work(self, phase: LayerPhase) -> PhaseWork:
        """Return the work of one phase."""
        return (self.forward, self.input_gradient, self.weight_gradient)[phase]


class LayerFile(Struct, frozen=True):
    """A whole file. Fields of other keywords are None or empty."""

    keyword: Keyword
    layers: tuple[Layer, ...]
    model_group: int | None = None  # transformers: NPUs that share a model
    checkpoints: tuple[int, ...] = ()  # layers whose inputs are kept
    initiates: tuple[int, ...] = ()  # layers at whose input gradient recomputation starts
    last_bottom_layer: int | None = None  # DLRM
    source: str = "<python>"
    sha256: str = ""  # of the file on disk, if it is one

    def __post_init__(self) -> None:
        """Refuse layers made in Python that a file could not hold."""
        count = len(self.layers)
        for is_right, cause in (
            (count > 0, "there are no layers"),
            (
                self.keyword != Keyword.HYBRID_CUSTOMIZED or all(layer.keyword for layer in self.layers),
                "a layer has no keyword of its own",
            ),
            (
                self.keyword not in TRANSFORMERS or (self.model_group or 0) > 0,
                f"the model-parallel group is {self.model_group}",
            ),
            (
                self.keyword not in DLRMS or self.last_bottom_layer in range(count),
                f"the last bottom layer is {self.last_bottom_layer}",
            ),
            (
                all(
                    initiate < count and any(0 <= checkpoint < initiate for checkpoint in self.checkpoints)
                    for initiate in self.initiates
                ),
                f"recomputation at layers {self.initiates} from checkpoints {self.checkpoints}",
            ),
        ):
            if not is_right:
                remedy = f"{self.keyword} needs it: see docs/layer-files.md"
                raise TraceError(cause, place=self.source, remedy=remedy)


def layer_file_text(layer_file: LayerFile) -> str:
    """Return the text of a file with these layers in aligned columns, readable by ASTRA-sim 1.0."""
    rows = [_words(layer) for layer in layer_file.layers]
    table = aligned(rows, "<" * len(rows[0])) if rows else []
    return "\n".join([" ".join(_head(layer_file)), str(len(rows)), *table]) + "\n"


def _head(layer_file: LayerFile) -> list[str]:
    words = [layer_file.keyword.value]
    if layer_file.model_group is not None:
        words += ["model_parallel_NPU_group:", str(layer_file.model_group)]
    if layer_file.keyword == Keyword.HYBRID_TRANSFORMER_FWD_IN_BCKWD:
        for label, indices in (
            ("checkpoints:", layer_file.checkpoints),
            ("checkpoint_initiates:", layer_file.initiates),
        ):
            words += [label, str(len(indices)), *map(str, indices)]
    if layer_file.last_bottom_layer is not None:
        words.append(str(layer_file.last_bottom_layer))
    return words


def _words(layer: Layer) -> list[str]:
    words = [layer.name, str(layer.reserved)]
    for phase in LayerPhase:
        work = layer.work(phase)
        words += [str(work.compute_ns), work.word, str(work.bytes)]
    return [*words, str(layer.update_ns), *([layer.keyword.value] if layer.keyword else [])]
