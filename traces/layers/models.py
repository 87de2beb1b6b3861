"""Published models as lists of matrix products: `python models.py FOLDER` writes MODEL.csv there.

A convolution is the product of its output positions with its filters. The README says where shapes are from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

Row = tuple[str, int, int, int, str]  # layer, m, n, k, strategy


def convolution(name: str, batch: int, side: int, kernel: int, inputs: int, outputs: int) -> Row:
    """`side`: of the output, in pixels."""
    return name, batch * side * side, outputs, kernel * kernel * inputs, "DATA"


def resnet50(batch: int) -> Iterator[Row]:
    """Four stages of bottleneck blocks; the first block of a stage has a projection beside it."""
    yield convolution("conv1", batch, 112, 7, 3, 64)
    inputs = 64
    for stage, (blocks, side, width) in enumerate(
        [(3, 56, 64), (4, 28, 128), (6, 14, 256), (3, 7, 512)], start=2
    ):
        for block in range(blocks):
            name = f"conv{stage}_{block + 1}"
            yield convolution(f"{name}_1x1a", batch, side, 1, inputs, width)
            yield convolution(f"{name}_3x3", batch, side, 3, width, width)
            yield convolution(f"{name}_1x1b", batch, side, 1, width, 4 * width)
            if block == 0:
                yield convolution(f"{name}_projection", batch, side, 1, inputs, 4 * width)
            inputs = 4 * width
    yield "fc", batch, 1000, inputs, "DATA"


def vgg16(batch: int) -> Iterator[Row]:
    """Configuration D: thirteen 3x3 convolutions and three fully connected layers."""
    inputs = 3
    for stage, (count, side, width) in enumerate(
        [(2, 224, 64), (2, 112, 128), (3, 56, 256), (3, 28, 512), (3, 14, 512)], start=1
    ):
        for number in range(count):
            yield convolution(f"conv{stage}_{number + 1}", batch, side, 3, inputs, width)
            inputs = width
    for number, (wide, outputs) in enumerate([(512 * 7 * 7, 4096), (4096, 4096), (4096, 1000)], start=6):
        yield f"fc{number}", batch, outputs, wide, "DATA"


def gpt3(sequences: int) -> Iterator[Row]:
    """The largest one: 96 blocks; scores and context of attention are products of every head."""
    length, width, heads, vocabulary = 2048, 12_288, 96, 50_257
    tokens = sequences * length
    for block in range(96):
        yield f"block{block}_qkv", tokens, 3 * width, width, "COLUMN"
        yield f"block{block}_scores", tokens * heads, length, width // heads, "LOCAL"
        yield f"block{block}_context", tokens * heads, width // heads, length, "LOCAL"
        yield f"block{block}_projection", tokens, width, width, "ROW"
        yield f"block{block}_up", tokens, 4 * width, width, "COLUMN"
        yield f"block{block}_down", tokens, width, 4 * width, "ROW"
    yield "head", tokens, vocabulary, width, "COLUMN"


def dlrm(batch: int) -> Iterator[Row]:
    """26 tables with one lookup each, an MLP for the dense features, their dot products, and the top MLP."""
    tables, vector = 26, 128
    yield "embedding", batch, tables * vector, 1, "EMBEDDING"
    inputs = 13
    for number, outputs in enumerate((512, 256, vector)):
        yield f"bottom{number}", batch, outputs, inputs, "DATA"
        inputs = outputs
    yield "interaction", batch * (tables + 1), tables + 1, vector, "LOCAL"
    inputs = vector + (tables + 1) * tables // 2
    for number, outputs in enumerate((1024, 1024, 512, 256, 1)):
        yield f"top{number}", batch, outputs, inputs, "DATA"
        inputs = outputs


def mlp(batch: int) -> Iterator[Row]:
    """A deep perceptron for images of 28 x 28 pixels."""
    widths = (784, 2500, 2000, 1500, 1000, 500, 10)
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        yield f"layer{number}", batch, outputs, inputs, "HYBRID_DATA_MODEL"


def write_lists(folder: Path) -> None:
    """All of them, with the batches that the layer files beside have."""
    models = {
        "resnet50": resnet50(2048),
        "vgg16": vgg16(2048),
        "gpt3": gpt3(1536),
        "dlrm": dlrm(65_536),
        "mlp": mlp(4096),
    }
    for name, rows in models.items():
        lines = ["Layer,m,n,k,strategy", *(",".join(map(str, row)) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_lists(Path(sys.argv[1]))
