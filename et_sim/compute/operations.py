"""Operations and bytes of an operation, from its shape: closed forms, one for each kind of operation.

The attribute `layer_shape` gives the shape in words, such as `gemm 4096 4096 1024`. A multiplication and an
addition are two operations. Every tensor is read or written once, without regard to caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, TraceError, did_you_mean
from et_sim.basics.kernel_names import (
    ATTENTION_KERNELS,
    BLOCK_SCALES,
    DECODE_ATTENTION,
    FP8_CACHE,
    FULL_SUMS,
    GEMM_BLOCKS,
    GROUPED_BLOCKS,
    GROUPED_NARROW,
    LATENT_ATTENTION,
    NARROW_WEIGHTS,
    STRIDED,
)
from et_sim.basics.units import plural

LARGEST = 1 << 40  # limit of one number
MOST_OPERATIONS = 1 << 62
CAUSAL = "causal"
TIMES = "x"  # after a shape, before its count
INDEX_BYTES = 8
PRODUCT_KERNELS = (FULL_SUMS, BLOCK_SCALES)
GROUPED_KERNELS = (*PRODUCT_KERNELS, NARROW_WEIGHTS)
OWN_FORMS = {  # of products, by kind and kernel
    ("gemm", BLOCK_SCALES): GEMM_BLOCKS,
    ("grouped_gemm", BLOCK_SCALES): GROUPED_BLOCKS,
    ("grouped_gemm", NARROW_WEIGHTS): GROUPED_NARROW,
}
WIDEST_HEAD = 256  # wider keys with narrower values in one head are a compressed cache (MLA)
UNQUANTISED_BYTES = 2  # bytes of a number in 16 bits

# Operations for each element; docs/compute.md lists them.
LAYER_NORM, RMS_NORM, SOFTMAX, QUANTISE = 7, 4, 5, 2


class Product(Struct, frozen=True):
    """Products of `rows` x `inner` and `inner` x `columns`, `count` of them."""

    rows: int
    columns: int
    inner: int
    count: int = 1

    @property
    def operations(self) -> int:
        """Return the operations of all products."""
        return 2 * self.rows * self.columns * self.inner * self.count


class Operation(Struct, frozen=True):
    """The work of a shape."""

    kind: str
    operations: int
    elements: int  # read and written, in the operation's datatype
    products: tuple[Product, ...] = ()  # products of matrices
    other_bytes: int = 0  # read and written, independent of the datatype
    kernel: str = ""  # name of the kernel, if it is not the best of the device
    form: str = ""  # a kind of its own, of which devices may have constants
    rows: int = 0  # of attention: queries of all heads that share keys

    def times(self, count: int) -> Operation:
        """Return the work of `count` such operations."""
        products = tuple(
            Product(product.rows, product.columns, product.inner, product.count * count)
            for product in self.products
        )
        return replace(
            self,
            operations=self.operations * count,
            elements=self.elements * count,
            products=products,
            other_bytes=self.other_bytes * count,
        )

    def bytes(self, bits: int) -> int:
        """Return the bytes read and written, with `bits` bits per number."""
        return -(-self.elements * bits // 8) + self.other_bytes


class ShapeForm(Struct, frozen=True):
    """The form of the shapes of a kind of operation."""

    numbers: tuple[str, ...]
    make: Callable[..., Operation]
    optional: int = 0  # number of optional numbers, the last ones
    repeats: bool = False  # the last number may stand any number of times
    may_be_causal: bool = False
    kernels: tuple[str, ...] = ()  # kernels that it may name

    @property
    def text(self) -> str:
        """Return the form as it is written."""
        required = len(self.numbers) - self.optional
        words = [*self.numbers[:required], *(f"[{number}]" for number in self.numbers[required:])]
        return " ".join(
            [
                *words,
                *(["…"] if self.repeats else []),
                *(["[causal]"] if self.may_be_causal else []),
                *(["[KERNEL]"] if len(self.kernels) > 1 else [f"[{name}]" for name in self.kernels]),
            ]
        )


def _gemm(rows: int, columns: int, inner: int) -> Operation:
    product = Product(rows, columns, inner)
    elements = rows * inner + inner * columns + rows * columns
    return Operation("gemm", product.operations, elements, (product,))


def _grouped_gemm(columns: int, inner: int, *rows: int) -> Operation:
    parts = [_gemm(row_count, columns, inner) for row_count in rows]
    return Operation(
        "grouped_gemm",
        sum(part.operations for part in parts),
        sum(part.elements for part in parts),
        tuple(product for part in parts for product in part.products),
    )


def _convolution(
    height: int,
    width: int,
    filter_height: int,
    filter_width: int,
    channels: int,
    filters: int,
    stride_height: int,
    stride_width: int,
) -> Operation:
    rows = ((height - filter_height) // stride_height + 1) * ((width - filter_width) // stride_width + 1)
    product = Product(rows, filters, filter_height * filter_width * channels)
    elements = height * width * channels + product.inner * filters + rows * filters
    return Operation("conv", product.operations, elements, (product,))


def causal_pairs(queries: int, keys: int) -> int:
    """Return the pairs of a query and a key not after it, if the last query sees all keys."""
    if keys >= queries:
        return queries * keys - queries * (queries - 1) // 2
    return keys * (keys + 1) // 2


def _attention(
    batch: int,
    heads: int,
    key_heads: int,
    queries: int,
    keys: int,
    width: int,
    value_width: int = 0,
    *,
    causal: bool = False,
) -> Operation:
    """Return scores and their product with the values; scores stay on the chip."""
    value_width = value_width or width
    pairs = causal_pairs(queries, keys) if causal else queries * keys
    elements = batch * heads * queries * (width + value_width)
    elements += cached_elements(batch, key_heads, keys, width, value_width)
    is_latent = _is_latent(key_heads, width, value_width)
    form = LATENT_ATTENTION if is_latent else DECODE_ATTENTION if queries == 1 else ""
    products = (
        Product(queries, keys, width, batch * heads),
        Product(queries, value_width, keys, batch * heads),
    )
    operations = 2 * batch * heads * pairs * (width + value_width)
    rows = queries * -(-heads // key_heads)
    return Operation("attention", operations, elements, products, form=form, rows=rows)


def cached_elements(batch: int, key_heads: int, keys: int, width: int, value_width: int = 0) -> int:
    """Return the numbers of keys and values; values of a compressed cache are a part of its keys."""
    value_width = value_width or width
    of_key = width if _is_latent(key_heads, width, value_width) else width + value_width
    return batch * key_heads * keys * of_key


def _is_latent(key_heads: int, width: int, value_width: int) -> bool:
    return key_heads == 1 and width > max(value_width, WIDEST_HEAD)


def _attention_backward(
    batch: int,
    heads: int,
    key_heads: int,
    queries: int,
    keys: int,
    width: int,
    value_width: int = 0,
    *,
    causal: bool = False,
) -> Operation:
    """Return five products: the scores again, and gradients of query, key, value and probabilities.

    Query, key, value, output and its gradient are read, three gradients written.
    """
    value_width = value_width or width
    pairs = causal_pairs(queries, keys) if causal else queries * keys
    count = batch * heads
    of_queries, of_keys = count * queries, batch * key_heads * keys
    elements = of_queries * (2 * width + 2 * value_width) + of_keys * 2 * (width + value_width)
    products = (
        Product(queries, keys, width, count),  # scores
        Product(queries, keys, value_width, count),  # gradient of the probabilities
        Product(keys, value_width, queries, count),  # of the values
        Product(queries, width, keys, count),  # of the queries
        Product(keys, width, queries, count),  # of the keys
    )
    operations = 2 * count * pairs * (3 * width + 2 * value_width)
    return Operation("attention_backward", operations, elements, products)


def _norm(kind: str, each: int, parameters: int) -> Callable[[int, int], Operation]:
    def make(rows: int, width: int) -> Operation:
        elements = 2 * rows * width + parameters * width
        return Operation(kind, each * rows * width, elements)

    return make


def _elementwise(elements: int, inputs: int = 1, operations: int = 1) -> Operation:
    return Operation("elementwise", operations * elements, (inputs + 1) * elements)


def _quantise(rows: int, width: int) -> Operation:
    """Return a quantisation: 16-bit numbers are read twice, for the maximum and the scaling, and written."""
    elements = rows * width
    return Operation("quantise", QUANTISE * elements, elements, other_bytes=2 * UNQUANTISED_BYTES * elements)


def _embedding(tokens: int, width: int) -> Operation:
    return Operation("embedding", 0, 2 * tokens * width, other_bytes=INDEX_BYTES * tokens)


_ATTENTION = ("BATCH", "HEADS", "KEY_HEADS", "QUERIES", "KEYS", "WIDTH", "VALUE_WIDTH")
_CONVOLUTION = (
    "HEIGHT",
    "WIDTH",
    "FILTER_HEIGHT",
    "FILTER_WIDTH",
    "CHANNELS",
    "FILTERS",
    "STRIDE_HEIGHT",
    "STRIDE_WIDTH",
)
FORMS: Mapping[str, ShapeForm] = MappingProxyType(
    {
        "gemm": ShapeForm(("M", "N", "K"), _gemm, kernels=PRODUCT_KERNELS),
        "grouped_gemm": ShapeForm(("N", "K", "M"), _grouped_gemm, repeats=True, kernels=GROUPED_KERNELS),
        "conv": ShapeForm(_CONVOLUTION, _convolution),
        "attention": ShapeForm(
            _ATTENTION, _attention, 1, may_be_causal=True, kernels=(*ATTENTION_KERNELS, FP8_CACHE)
        ),
        "attention_backward": ShapeForm(
            _ATTENTION, _attention_backward, 1, may_be_causal=True, kernels=ATTENTION_KERNELS
        ),
        "layernorm": ShapeForm(("ROWS", "WIDTH"), _norm("layernorm", LAYER_NORM, 2)),
        "rmsnorm": ShapeForm(("ROWS", "WIDTH"), _norm("rmsnorm", RMS_NORM, 1)),
        "softmax": ShapeForm(("ROWS", "WIDTH"), _norm("softmax", SOFTMAX, 0)),
        "elementwise": ShapeForm(
            ("ELEMENTS", "INPUTS", "OPERATIONS"), _elementwise, optional=2, kernels=(STRIDED,)
        ),
        "quantise": ShapeForm(("ROWS", "WIDTH"), _quantise),
        "embedding": ShapeForm(("TOKENS", "WIDTH"), _embedding),
    }
)


class Shape(Struct, frozen=True):
    """The checked words of a shape."""

    kind: str
    numbers: tuple[int, ...]
    count: int
    causal: bool = False
    kernel: str = ""  # by name

    @property
    def operation(self) -> Operation:
        """Return the operation of the shape."""
        form = FORMS[self.kind]
        options = {"causal": self.causal} if form.may_be_causal else {}
        operation = form.make(*self.numbers, **options)
        if self.kernel == FP8_CACHE:
            batch, _, key_heads, _, keys, *widths = self.numbers
            cached = cached_elements(batch, key_heads, keys, *widths)
            operation = replace(operation, elements=operation.elements - cached, other_bytes=cached)
        own = OWN_FORMS.get((self.kind, self.kernel), operation.form)
        return replace(operation.times(self.count), kernel=self.kernel, form=own)


def read_shape(text: str, place: str) -> Shape:
    """Parse the shape in a node's attribute."""
    word, *rest = text.split() or [""]
    if word not in FORMS:
        near = did_you_mean(word, tuple(FORMS)) or f"known: {', '.join(FORMS)};"
        remedy = f'{near} write "gemm M N K" or "conv …"'
        raise TraceError(f"layer_shape is {text!r}", place=place, remedy=remedy)
    form, count = FORMS[word], 1
    if len(rest) > 1 and rest[-2] == TIMES:
        count, rest = _size(rest[-1], text, place), rest[:-2]
    kernel = rest[-1] if rest and rest[-1] in form.kernels else ""
    rest = rest[:-1] if kernel else rest
    causal = form.may_be_causal and rest[-1:] == [CAUSAL]
    sizes = rest[:-1] if causal else rest
    least, most = len(form.numbers) - form.optional, len(form.numbers)
    if len(sizes) < least or (len(sizes) > most and not form.repeats):
        has = f"{word} has {most if least == most else f'{least} to {most}'}: {word} {form.text}"
        if form.repeats:
            has = f"{word} has {least} or more: {word} {form.text}"
        raise TraceError(f"layer_shape {text!r} has {plural(len(sizes), 'number')}", place=place, remedy=has)
    shape = Shape(word, tuple(_size(size, text, place) for size in sizes), count, causal, kernel)
    operation = shape.operation
    if shape.kind == "conv":
        refuse_large_filter(shape.numbers, place, TraceError)
    if max(operation.operations, operation.elements) > MOST_OPERATIONS:
        raise TraceError(
            f"layer_shape {text!r} has more than 2^62 operations or elements",
            place=place,
            remedy="correct its sizes",
        )
    return shape


def refuse_large_filter(sizes: Sequence[int], place: str, error: type[EtSimError]) -> None:
    """Refuse a filter that is larger than the image."""
    for side, image, window in (("height", sizes[0], sizes[2]), ("width", sizes[1], sizes[3])):
        if window > image:
            raise error(
                f"the filter's {side} {window} is larger than the ifmap's, {image}",
                place=place,
                remedy="make the ifmap at least as large as the filter, padding included",
            )


def _size(size: str, text: str, place: str) -> int:
    if not (size.isascii() and size.isdigit() and 1 <= int(size[:30]) <= LARGEST):
        raise TraceError(
            f"layer_shape {text!r} has the size {size}",
            place=place,
            remedy=f"sizes are whole numbers from 1 to {LARGEST:,}",
        )
    return int(size)
