"""Layer files, the text workloads of ASTRA-sim 1.0: read, unrolled, and turned into traces.

    layer_file = read_layer_file("vgg16.txt")
    program = layer_program(layer_file, passes=2, dimensions=(4, 4))
    program.trace                               # the trace of every rank

Text becomes a `LayerFile` (`reading`), its training loop a list of steps (`loops`), the steps one trace
(`program`), and the times of a run of that trace a table by layer (`statistics`). `dimensions` selects the
network dimensions of collectives. `converters.layers` converts from and to layer files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.lazy_names import lazy_names

if TYPE_CHECKING:
    from et_sim.layerfile.dimensions import LogicalDimensions, logical_dimensions
    from et_sim.layerfile.layer_file import Keyword, Layer, LayerFile, LayerPhase, PhaseWork
    from et_sim.layerfile.passes import LayerProgram
    from et_sim.layerfile.program import layer_program, layer_workload
    from et_sim.layerfile.reading import looks_like_layer_file, parse_layer_file, read_layer_file
    from et_sim.layerfile.statistics import LayerTable, layer_table

__all__ = [
    "Keyword",
    "Layer",
    "LayerFile",
    "LayerPhase",
    "LayerProgram",
    "LayerTable",
    "LogicalDimensions",
    "PhaseWork",
    "layer_program",
    "layer_table",
    "layer_workload",
    "logical_dimensions",
    "looks_like_layer_file",
    "parse_layer_file",
    "read_layer_file",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    {
        "dimensions": ("LogicalDimensions", "logical_dimensions"),
        "layer_file": ("Keyword", "Layer", "LayerFile", "LayerPhase", "PhaseWork"),
        "passes": ("LayerProgram",),
        "program": ("layer_program", "layer_workload"),
        "reading": ("looks_like_layer_file", "parse_layer_file", "read_layer_file"),
        "statistics": ("LayerTable", "layer_table"),
    },
)
