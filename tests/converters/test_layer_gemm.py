"""`et-convert gemm`: the share of each NPU in a matrix product, and bad lists."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converters.cli import main
from converters.layers.gemm import STRATEGIES, LayerKernel, ProductSharing, layers_of, roofline_timer
from converters.layers.products import ProductLine, parse_convolutions, parse_products
from et_sim.basics.errors import TraceError
from et_sim.layerfile import Keyword, Layer, LayerFile, LayerPhase, read_layer_file
from et_sim.layerfile.layer_file import layer_file_text
from et_sim.layerfile.reading import parse_layer_file
from et_sim.trace import CollectiveKind

REDUCE, GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
SCATTER, EXCHANGE = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL


pytestmark = pytest.mark.usefixtures("in_a_folder")


def seen(product: ProductLine, shape: ProductSharing) -> tuple[list[LayerKernel], Layer]:
    """Return the kernels that are timed, and the layer."""
    kernels: list[LayerKernel] = []

    def timer(given: list[LayerKernel], _: int) -> list[int]:
        kernels.extend(given)
        return [7] * len(given)

    return kernels, layers_of([product], shape, timer, "f").layers[0]


# 1024 x 96 times 96 x 512 on 16 NPUs in 4 packages of 4, values of 2 bytes.
SHARES = [
    ("DATA", (64, 96, 512), None, None, (REDUCE, 96 * 512 * 2)),
    ("MODEL", (1024, 96, 32), (GATHER, 1024 * 512 * 2 // 16), (SCATTER, 1024 * 96 * 2), None),
    (
        "HYBRID_DATA_MODEL",
        (256, 96, 128),
        (GATHER, 1024 * 512 * 2 // 16),
        (SCATTER, 1024 * 96 * 2 // 4),
        (REDUCE, 96 * 512 * 2 // 4),
    ),
    (
        "HYBRID_MODEL_DATA",
        (256, 96, 128),
        (GATHER, 1024 * 512 * 2 // 16),
        (SCATTER, 1024 * 96 * 2 // 4),
        (REDUCE, 96 * 512 * 2 // 4),
    ),
    ("COLUMN", (256, 96, 128), None, (REDUCE, 1024 * 96 * 2 // 4), (REDUCE, 96 * 512 * 2 // 4)),
    ("ROW", (256, 24, 512), (REDUCE, 1024 * 512 * 2 // 4), None, (REDUCE, 96 * 512 * 2 // 4)),
    ("LOCAL", (64, 96, 512), None, None, None),
]


@pytest.mark.parametrize(("strategy", "share", *("forward", "inputs", "weights")), SHARES)
def test_every_npu_gets_its_share(
    strategy: str,
    share: tuple[int, int, int],
    forward: tuple[CollectiveKind, int] | None,
    inputs: tuple[CollectiveKind, int] | None,
    weights: tuple[CollectiveKind, int] | None,
) -> None:
    kernels, layer = seen(ProductLine("a", 1024, 512, 96, strategy), ProductSharing(16, 4))
    m, k, n = share
    assert kernels == [LayerKernel(m, k, n), LayerKernel(m, n, k), LayerKernel(k, m, n)]
    sent = [(layer.work(phase).collective, layer.work(phase).bytes) for phase in LayerPhase]
    assert sent == [exchange or (None, 0) for exchange in (forward, inputs, weights)]
    assert [layer.work(phase).compute_ns for phase in LayerPhase] == [7, 7, 7]
    assert layer.update_ns == 100


def test_packages_of_other_sizes_distinguish_the_two_hybrids() -> None:
    shape, product = ProductSharing(16, 2), ProductLine("a", 1024, 512, 96)
    outside, _ = seen(ProductLine("a", 1024, 512, 96, "HYBRID_DATA_MODEL"), shape)
    inside, _ = seen(ProductLine("a", 1024, 512, 96, "HYBRID_MODEL_DATA"), shape)
    assert outside[0] == LayerKernel(product.m // 2, 96, product.n // 8)
    assert inside[0] == LayerKernel(product.m // 8, 96, product.n // 2)


def test_uneven_shares_are_rounded_up_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.csv").write_text("Layer,m,n,k\na,10,3,5\nb,16,3,5\n", encoding="utf-8")
    assert main(["gemm", "m.csv", "-o", "m.txt", "--ranks", "4"]) == 0
    assert "  rounded up      1 of the layers, which cannot be shared evenly\n" in capsys.readouterr().out
    kernels, _ = seen(ProductLine("a", 10, 3, 5), ProductSharing(4))
    assert kernels[0].rows == 3


def test_the_roofline_times_products_by_arithmetic_or_by_traffic() -> None:
    timer = roofline_timer(1.0, 1.0)  # 1,000 operations and 1 byte per ns
    times = timer(
        [LayerKernel(100, 100, 100), LayerKernel(1, 1000, 1), LayerKernel(10, 5, 2, lookups=True)], 2
    )
    by_hand = [3 * 100 * 100 * 2, (1000 + 1000 + 1) * 2, 10 * 2 * 6 * 2]  # values of two bytes
    assert np.allclose(times, by_hand, rtol=0, atol=1)  # the roofline truncates
    assert roofline_timer(1.0, 1e6)([LayerKernel(100, 100, 100)], 2) == [2000]


def test_the_loop_follows_from_the_strategies() -> None:
    def loop(*strategies: str, **more: str) -> LayerFile:
        products = [ProductLine(f"l{at}", 8, 8, 8, strategy) for at, strategy in enumerate(strategies)]
        return layers_of(products, ProductSharing(8, 2, **more), roofline_timer(1, 1), "f")

    assert loop("", "").keyword == Keyword.DATA
    assert loop("LOCAL").keyword == Keyword.DATA
    assert loop("MODEL", "LOCAL").keyword == Keyword.MODEL
    mixed = loop("MODEL", "DATA", "LOCAL")
    assert (mixed.keyword, [layer.keyword for layer in mixed.layers]) == (
        Keyword.HYBRID_CUSTOMIZED,
        [Keyword.MODEL, Keyword.DATA, Keyword.DATA],
    )
    transformer = loop("COLUMN", "LOCAL", "ROW")
    assert (transformer.keyword, transformer.model_group) == (Keyword.HYBRID_TRANSFORMER, 4)
    dlrm = loop("EMBEDDING", "DATA", "DATA", last_bottom_layer="l1")
    assert (dlrm.keyword, dlrm.last_bottom_layer) == (Keyword.HYBRID_DLRM, 1)
    assert dlrm.layers[0].forward.collective == dlrm.layers[0].input_gradient.collective == EXCHANGE


@given(
    st.lists(
        st.builds(ProductLine, st.just("l"), *[st.integers(1, 5000)] * 3, st.sampled_from(STRATEGIES[:4])),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 64),
    st.integers(1, 16),
)
def test_written_layer_files_are_readable_and_complete(
    products: list[ProductLine], per_package: int, packages: int
) -> None:
    kernels: list[LayerKernel] = []

    def timer(given: list[LayerKernel], _: int) -> list[int]:
        kernels.extend(given)
        return [1] * len(given)

    shape = ProductSharing(per_package * packages, packages)
    made = layers_of(products, shape, timer, "<text>")
    assert parse_layer_file(layer_file_text(made)) == made
    for at, product in enumerate(products):
        for kernel in kernels[3 * at : 3 * at + 3]:
            share = kernel.rows * kernel.inner * kernel.columns
            assert share * shape.npus >= product.m * product.n * product.k


def test_a_list_becomes_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.csv").write_text(
        "Layer, M, N, K, Strategy,\na,64,32,16,MODEL,\n\nb,64,32,16,,\n", encoding="utf-8"
    )
    assert main(["gemm", "m.csv", "-o", "out/m.txt", "--ranks", "8", "--packages", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "input": "m.csv",
        "output": "out/m.txt",
        "loop": "HYBRID_CUSTOMIZED",
        "layers": 2,
        "ranks": 8,
        "packages": 2,
        "phases": {
            "forward": {"compute_ns": 1, "collectives": 1, "bytes": 512},
            "input gradient": {"compute_ns": 1, "collectives": 1, "bytes": 2048},
            "weight gradient": {"compute_ns": 1, "collectives": 1, "bytes": 1024},
        },
        "rounded_up": 0,
    }
    assert [layer.name for layer in read_layer_file("out/m.txt").layers] == ["a", "b"]


HEAD = "Layer,m,n,k,strategy\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m.csv, line 1: column \"layer\" is missing"),
        ("Layer,m,n\na,1,2", 'm.csv, line 1: column "k" is missing (the first line names the columns'),
        ("Layer,m,n,k,strat\n", "m.csv, line 1, column 5: there is no column \"strat\" (did you"),
        ("Layer,m,m,k\n", 'm.csv, line 1, column 3: column "m" is there twice'),
        (HEAD, "m.csv: there is no layer"),
        (f"{HEAD}a,1,2", 'm.csv, line 2: the line ends before column "k"'),
        (f"{HEAD}a,1,2,3,DATA,5", 'm.csv, line 2, column 6: "5" is one more than the header has'),
        (f"{HEAD}a,1,two,3", 'm.csv, line 2, column 3: n is "two" (give a whole number from 1'),
        (f"{HEAD}a,0,2,3", 'm.csv, line 2, column 2: m is "0"'),
        (f"{HEAD}a,1,2,3.5", 'm.csv, line 2, column 4: k is "3.5"'),
        (f"{HEAD}a b,1,2,3", 'm.csv, line 2, column 1: "a b" cannot be the name of a layer'),
        (f"{HEAD}a,1,2,3,DATE", "m.csv, line 2, column 5: there is no strategy \"DATE\" (did you"),
        (f'{HEAD}"a,1,2,3', "m.csv, line 2: is not CSV"),
        (f"{HEAD}a,1,2,3\nb,1,2,3,EMBEDDING", "m.csv, line 3: layer b is EMBEDDING (with"),
        (f"{HEAD}a,1,2,3,EMBEDDING\nb,1,2,3,ROW", "m.csv, line 3: layer b is ROW"),
        (f"{HEAD}a,1,2,3,ROW\nb,1,2,3,MODEL", "m.csv, line 3: layer b is MODEL, and others"),
        (f"{HEAD}a,1,2,3,EMBEDDING", "m.csv: the last layer of the bottom MLP is not given"),
        (f"{HEAD}a,1099511627776,1099511627776,9,DATA", "a product has"),
    ],
)  # fmt: skip
def test_bad_lists_are_refused_with_the_place_of_the_fault(
    text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.csv").write_text(text, encoding="utf-8")
    assert main(["gemm", "m.csv", "-o", "m.txt", "--ranks", "4"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("m.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ranks", "6", "--packages", "4"], "4 packages do not divide 6 NPUs"),
        (["--ranks", "0"], "npus is 0"),
        (["--ranks", "2", "--strategy", "modle"], "there is no strategy 'modle' (did you mean 'MODEL'?"),
        (["--ranks", "2", "--tflops", "0"], "the peak is 0.0"),
        (["--ranks", "2", "--memory-gbps", "nan"], "--memory-gbps is 'nan'"),
        (["--ranks", "2", "--value-bytes", "0"], "a value has 0 bytes"),
        (["--ranks", "2", "--update", "-1"], "update is -1"),
        (["--ranks", "2", "-o", "m.csv"], "would be overwritten, and it is an input"),
    ],
)
def test_impossible_options_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.csv").write_text(f"{HEAD}a,8,8,8", encoding="utf-8")
    assert main(["gemm", "m.csv", "-o", "m.txt", *arguments]) == 2
    assert message in capsys.readouterr().err


@given(st.text("Layer,mnk\n0159 \"';", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        products = parse_products(f"Layer,m,n,k\n{text}", "f", STRATEGIES)
    except TraceError:
        return
    assert all(min(product.m, product.n, product.k) >= 1 for product in products)


CONFIG = """[architecture_presets]
ArrayHeight: 256
ArrayWidth: 256
IfmapSramSzkB: 6144
FilterSramSzkB: 6144
OfmapSramSzkB: 2048
Dataflow: ws
[run_presets]
InterfaceBandwidth: CALC
"""
SYSTOLIC = ("--compute", "systolic", "--config", "google.cfg")


def test_a_systolic_array_times_products_in_cycles(capsys: pytest.CaptureFixture[str]) -> None:
    Path("google.cfg").write_text(CONFIG)
    Path("m.csv").write_text("Layer,m,n,k\na,512,64,256\n")
    arguments = ["gemm", "m.csv", "-o", "m.txt", "--ranks", "4", "--compute", "systolic", "--config"]
    assert main([*arguments, "google.cfg"]) == 0
    assert "systolic, google.cfg at 1 GHz" in capsys.readouterr().out
    works = [read_layer_file("m.txt").layers[0].work(phase).compute_ns for phase in LayerPhase]
    assert works == [893, 893, 1021]  # 128 x 64 x 256 is 893 cycles in SCALE-Sim, too
    assert main([*arguments, "google.cfg", "--clock-ghz", "2"]) == 0
    assert read_layer_file("m.txt").layers[0].work(LayerPhase.FORWARD).compute_ns == 446


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--compute", "systolic"], "lacks the array (name a configuration of SCALE-Sim: --config CFG)"),
        (["--config", "google.cfg"], "--config requires a systolic array (add --compute systolic)"),
        ([*SYSTOLIC, "--clock-ghz", "0"], "the clock is 0.0"),
        ([*SYSTOLIC, "--tflops", "3"], "--tflops and --memory-gbps require the roofline (leave them out"),
        (["--clock-ghz", "2"], "--clock-ghz requires a systolic array (add --compute systolic)"),
        (["--images", "2"], "m.csv, line 2: the row has 4 columns (a row has the columns name, IFMAP height"),
        (
            [*SYSTOLIC, "--strategy", "EMBEDDING", "--last-bottom-layer", "a"],
            "EMBEDDING is no product",
        ),
    ],
)
def test_an_array_that_cannot_time_the_model_is_refused(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("google.cfg").write_text(CONFIG)
    Path("m.csv").write_text("Layer,m,n,k\na,512,64,256\n")
    assert main(["gemm", "m.csv", "-o", "m.txt", "--ranks", "4", *options]) == 2
    assert sentence in capsys.readouterr().err


CONVOLUTIONS = "Layer,H,W,FH,FW,C,N,S,\nfirst,9,9,3,3,4,16,2,\n\nsecond,4,4,1,1,16,32,1,\n"


def test_convolutions_are_products_of_all_output_pixels_of_all_images() -> None:
    products = parse_convolutions(CONVOLUTIONS, "net.csv", 10)
    assert products == [ProductLine("first", 160, 16, 36, "", 2), ProductLine("second", 160, 32, 16, "", 4)]


def test_convolutions_are_timed_by_the_array_as_their_products_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("google.cfg").write_text(CONFIG)
    Path("net.csv").write_text(CONVOLUTIONS)
    Path("m.csv").write_text("Layer,m,n,k\nfirst,160,16,36\nsecond,160,32,16\n")
    for name, options in (("net", ["--images", "10"]), ("m", [])):
        assert main(["gemm", f"{name}.csv", "-o", f"{name}.txt", "--ranks", "4", *SYSTOLIC, *options]) == 0
    assert Path("net.txt").read_text() == Path("m.txt").read_text()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("content", "images", "sentence"),
    [
        (CONVOLUTIONS, "0", "--images is 0 (give how many images"),
        (CONVOLUTIONS.replace("second", "the second"), "1", 'line 4: "the second" cannot be the name'),
        (CONVOLUTIONS, str(1 << 40), "line 2: layer first has 17,592,186,044,416 output pixels"),
        (CONVOLUTIONS.replace("16,32,1", "16,0,1"), "1", "line 4: filters is '0'"),
    ],
)
def test_bad_convolutions_are_refused(
    content: str, images: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("net.csv").write_text(content)
    assert main(["gemm", "net.csv", "-o", "net.txt", "--ranks", "4", "--images", images]) == 2
    assert sentence in capsys.readouterr().err


def test_a_list_of_convolutions_without_images_reports_its_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("net.csv").write_text(CONVOLUTIONS)
    assert main(["gemm", "net.csv", "-o", "net.txt", "--ranks", "4"]) == 2
    assert "SCALE-Sim's list of convolutions is read with --images N" in capsys.readouterr().err


def test_a_product_that_an_array_cannot_time_is_named_by_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("small.cfg").write_text(CONFIG.replace("CALC", "USER").replace("Dataflow", "Bandwidth: 1\nDataflow"))
    Path("m.csv").write_text("Layer,m,n,k\na,512,64,256\nb,100000000,100000000,1000\n")
    arguments = ["gemm", "m.csv", "-o", "m.txt", "--ranks", "4", "--compute", "systolic"]
    assert main([*arguments, "--config", "small.cfg"]) == 2
    assert "m.csv, line 3: layer 25000000 x 1000 x 100000000 has" in capsys.readouterr().err
