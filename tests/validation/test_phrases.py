"""Texts of sources: software by product and year, limits of power."""

from __future__ import annotations

import pytest

from et_sim.validation.phrases import phrases, power_of, software_of, year_of


@pytest.mark.parametrize(
    ("text", "source", "name"),
    [
        ("PyTorch FSDP2, torchtitan 2025-02 (compiled)", "", "torchtitan"),
        ("PyTorch FSDP2 2.5", "", "fsdp2"),
        ("PyTorch FSDP 2023", "", "fsdp1"),
        ("PyTorch FSDP1, fms-fsdp 2024 (compiled)", "", "fms-fsdp"),
        ("Composer + PyTorch FSDP", "mosaicml/llm-foundry", "fsdp1"),
        ("NeMo 24.12 (Megatron-Core, Transformer Engine)", "", "nemo-24.12"),
        ("NeMo 25.02", "", "megatron-bridge"),
        ("Megatron-Bridge 26.04.01", "", "megatron-bridge"),
        ("Megatron-LM of 2021", "", "megatron-2021"),
        ("Megatron-LM", "arXiv 2104.04473", "megatron-2021"),
        ("Megatron-LM of 2023", "", "megatron-2023"),
        ("Megatron-LM 2025", "", "megatron-core"),
        ("Megatron-LM with Transformer Engine, bf16", "", "megatron-core"),
        ("Megatron-DeepSpeed", "VIA-Research/vTrain", "megatron-2021"),
        ("DeepSpeed ZeRO-3 of 2021", "", "deepspeed-zero3"),
        ("JAX, MaxText v5p configs", "", "maxtext"),
        ("Megatronics", "", None),
        ("", "", None),
    ],
)
def test_software_is_read_by_product_and_year(text: str, source: str, name: str | None) -> None:
    product = software_of(text, source)
    assert (product and product.software) == name


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("NeMo 24.12", 2024),
        ("NeMo 24.12.1", 2024),
        ("arXiv 2205.05198", 2022),
        ("llama3_h100_202412", 2024),
        ("of 2021", 2021),
        ("version 1.3", 0),
        ("26.04.01", 2026),
        ("2500 GPUs", 0),
    ],
)
def test_a_year_is_that_of_a_date_a_release_or_a_paper(text: str, year: int) -> None:
    assert year_of(text) == year


@pytest.mark.parametrize(
    ("text", "power"),
    [("8 H100 (96GB,500W)", "500W"), ("1.2 kW boards", "1.2kW"), ("8 H100", ""), ("500 Watts", "")],
)
def test_hardware_may_state_its_limit_of_power(text: str, power: str) -> None:
    assert power_of(text) == power


def test_every_software_with_options_that_are_not_of_today_names_its_source() -> None:
    old = [product for product in phrases().software if {"fused_attention", "shard"} & {*product.plan}]
    assert old
    assert all(product.source for product in old)
