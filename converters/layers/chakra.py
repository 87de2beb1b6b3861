"""The graphs that Chakra's text converter makes of layer files, node for node.

They differ from the loops of 1.0: collectives of zero bytes are nodes too; ticks, update times and groups are
missing; only data dependencies order passes; times are copied to the field for microseconds unchanged; and
ids continue from rank to rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from converters.records import frame
from et_sim.basics.errors import InputError
from et_sim.layerfile.layer_file import Keyword, LayerFile, LayerPhase
from et_sim.trace.columns import CollectiveKind, NodeKind
from et_sim.trace.schema import messages

SCHEMA = "1.0.2-chakra.1.0.0"


class ChakraNode(Struct, frozen=True):
    """A node of rank 0: a computation with its time, or a collective with its type and size."""

    name: str
    after: tuple[int, ...]
    duration: int = 0
    collective: tuple[int, int] | None = None


class ChakraGraph(Struct, frozen=True):
    """The nodes of rank 0 in the order of their ids, which count from 0, and the parts of the file in
    them.
    """

    nodes: list[ChakraNode]
    computed: set[tuple[int, LayerPhase]]  # layers and phases that have computations
    sent: set[tuple[int, LayerPhase]]  # those that have collectives


def chakra_graph(layer_file: LayerFile, passes: int) -> ChakraGraph:
    """Return the graph that Chakra's converter makes of a file, or raise its refusal."""
    loop = _LOOPS.get(layer_file.keyword)
    if loop is None:
        raise InputError(
            f"Chakra's text converter does not support {layer_file.keyword}",
            place=layer_file.source,
            remedy=f"leave --flavour out, or use one of {', '.join(_LOOPS)}",
        )
    graph = _Graph(layer_file)
    loop(graph, passes)
    return ChakraGraph(graph.nodes, graph.computed, graph.sent)


def chakra_file(nodes: list[ChakraNode], rank: int, text: str) -> bytes:
    """Return the file of a rank, with `text`, the content of the layer file, in its metadata."""
    schema, first = messages(), rank * len(nodes)
    metadata = schema.GlobalMetadata()
    for name, value in (("schema", SCHEMA), ("input_file", text)):
        metadata.attr.add(name=name, string_val=value)
    return frame([metadata, *(_record(node, first, at) for at, node in enumerate(nodes))])


def _record(node: ChakraNode, first: int, at: int) -> Any:
    kind = NodeKind.COMP if node.collective is None else NodeKind.COLL
    record = messages().Node(id=first + at, name=node.name, type=int(kind), duration_micros=node.duration)
    record.data_deps.extend(first + other for other in node.after)
    if node.collective is not None:
        for name, value in zip(("comm_type", "comm_size"), node.collective, strict=True):
            record.attr.add(name=name, int64_val=value)
    return record


class _Graph(Struct):
    """A builder of nodes; dependencies that are None are skipped."""

    file: LayerFile
    nodes: list[ChakraNode] = field(default_factory=list)
    computed: set[tuple[int, LayerPhase]] = field(default_factory=set)
    sent: set[tuple[int, LayerPhase]] = field(default_factory=set)

    def upwards(self) -> range:
        """Return the layers, the first one first."""
        return range(len(self.file.layers))

    def downwards(self) -> range:
        """Return the layers, the last one first."""
        return self.upwards()[::-1]

    def compute(self, at: int, phase: LayerPhase, after: Iterable[int | None]) -> int:
        layer = self.file.layers[at]
        self.computed.add((at, phase))
        name = f"COMP_NODE_{layer.name}_{_SUFFIXES[phase]}"
        return self._add(ChakraNode(name, _known(after), layer.work(phase).compute_ns))

    def communicate(self, at: int, phase: LayerPhase, after: Iterable[int | None], infix: str = "") -> int:
        layer = self.file.layers[at]
        work = layer.work(phase)
        self.sent.add((at, phase))
        name = f"COMM_COLL_NODE_{layer.name}_{infix}{work.word}"
        kind = CollectiveKind.ALL_REDUCE if work.collective is None else work.collective
        return self._add(ChakraNode(name, _known(after), collective=(int(kind), work.bytes)))

    def _add(self, node: ChakraNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


def _known(after: Iterable[int | None]) -> tuple[int, ...]:
    return tuple(node for node in after if node is not None)


_FORWARD, _INPUT, _WEIGHT = LayerPhase.FORWARD, LayerPhase.INPUT_GRADIENT, LayerPhase.WEIGHT_GRADIENT
_SUFFIXES = MappingProxyType({_FORWARD: "FWD", _INPUT: "BWD_IG", _WEIGHT: "BWD_WG"})


def _micro(graph: _Graph, passes: int) -> None:
    for _ in range(passes):
        for at in graph.upwards():
            graph.communicate(at, _WEIGHT, ())


def _data(graph: _Graph, passes: int) -> None:
    updated: dict[int, int] = {}  # layer -> predecessor of its next forward pass
    for _ in range(passes):
        last: int | None = None
        for at in graph.upwards():
            last = graph.compute(at, _FORWARD, (last, updated.get(at)))
        for at in graph.downwards():
            weight = graph.compute(at, _WEIGHT, (last,))
            updated[at] = graph.communicate(at, _WEIGHT, (weight,))
            if at:
                last = graph.compute(at, _INPUT, (weight,))


def _model(graph: _Graph, passes: int) -> None:
    is_hybrid = graph.file.keyword != Keyword.MODEL
    infix = "IG_COMM__" if graph.file.keyword == Keyword.HYBRID_DATA_MODEL else ""
    updated: dict[int, int] = {}
    for _ in range(passes):
        last: int | None = None
        for at in graph.upwards():
            after = (
                (updated.get(at), last) if is_hybrid else (last, updated.get(at))
            )  # the order in Chakra's converter
            last = graph.communicate(at, _FORWARD, (graph.compute(at, _FORWARD, after),))
        before: tuple[int | None, ...] = (last,)
        for at in graph.downwards():
            gradient = graph.compute(at, _INPUT, before)
            exchanged = graph.communicate(at, _INPUT, (gradient,), infix) if at else None
            weight = graph.compute(at, _WEIGHT, (gradient,))
            before = weight, exchanged
            updated[at] = graph.communicate(at, _WEIGHT, (weight,)) if is_hybrid else weight


def _dlrm(graph: _Graph, passes: int) -> None:
    layers, bottom = graph.file.layers, graph.file.last_bottom_layer or 0
    updated: dict[int, int] = {}
    for _ in range(passes):
        last: int | None = None
        rows: int | None = None  # the embedding's all-to-all
        gradients: int | None = None  # the same of its gradients
        for at in graph.upwards():
            last = graph.compute(at, _FORWARD, (updated.get(at), last, rows if at == bottom else None))
            if layers[at].forward.collective == CollectiveKind.ALL_TO_ALL:
                exchanged = graph.communicate(at, _FORWARD, (last,))
                rows = rows if at else exchanged
        for at in graph.downwards():
            weight = graph.compute(at, _WEIGHT, (last, None if at else gradients))
            updated[at] = weight
            if layers[at].weight_gradient.collective is not None:
                updated[at] = graph.communicate(at, _WEIGHT, (weight,))
            if at:
                last = graph.compute(at, _INPUT, (weight,))
            if at == bottom + 1:
                gradients = graph.communicate(0, _INPUT, (last,))


_LOOPS: MappingProxyType[Keyword, Callable[[_Graph, int], None]] = MappingProxyType(
    {
        Keyword.MICRO: _micro,
        Keyword.DATA: _data,
        Keyword.MODEL: _model,
        Keyword.HYBRID_DATA_MODEL: _model,
        Keyword.HYBRID_MODEL_DATA: _model,
        Keyword.HYBRID_DLRM: _dlrm,
        Keyword.HYBRID_DLRM_ENHANCED: _dlrm,
    }
)
