"""Models: their weights are those of the published checkpoints, and invalid descriptions are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from et_sim.basics.errors import EtSimError
from et_sim.workloads import read_model
from et_sim.workloads.models.configuration import PRESETS, preset_names

# Sums of the sizes of all tensors of the published checkpoints; for GPT-3, of the table in its paper. If a
# checkpoint has another part, only the language model counts (`test_model_families`).
WEIGHTS = {
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "deepseek-v3": 671_026_419_200,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt3-1.3b": 1_315_723_264,
    "gpt3-6.7b": 6_658_404_352,
    "gpt3-175b": 174_604_259_328,
    "megatron-530b": 529_600_819_200,  # 529.6 and 1,008.0 billion in the paper
    "megatron-1t": 1_008_038_758_400,
    "msft-1t": 1_084_643_546_112,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "gemma3-1b": 999_885_952,
    "gemma3-4b": 3_880_263_168,
    "gemma3-12b": 11_766_034_176,
    "gemma3-27b": 27_009_346_304,
    "glm-4.5": 352_797_829_024,
    "glm-4.5-air": 106_852_251_264,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "kimi-k2": 1_026_408_232_448,
    "llama4-scout": 107_769_861_120,
    "llama4-maverick": 400_711_848_960,
    "minimax-m2": 228_689_764_864,
    "nemotron-4-15b": 15_628_775_424,
    "nemotron-4-340b": 341_029_195_776,
    "nemotron-h-8b": 8_100_852_736,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-next-80b": 79_674_391_296,
    "qwen3.5-27b": 26_895_998_464,
    "qwen3.5-35b-a3b": 34_660_610_688,
    "deepseek-v3.2": 671_877_944_064,
    "glm-5": 743_911_218_432,
}


def test_every_preset_has_the_weights_that_were_published() -> None:
    assert {name: read_model(name).weights for name in preset_names()} == WEIGHTS


def test_tokens_meet_the_weights_of_the_experts_that_they_take() -> None:
    assert read_model("mixtral-8x7b").active_weights == 12_879_925_248
    assert read_model("deepseek-v3").active_weights == pytest.approx(37e9, rel=0.02)
    assert read_model("llama3-8b").active_weights == WEIGHTS["llama3-8b"]


def test_every_preset_names_its_source() -> None:
    assert all(read_model(name).source for name in preset_names())


def test_a_configuration_file_is_read_like_a_preset(tmp_path: Path) -> None:
    content = json.loads((PRESETS / "llama3-8b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**content, "torch_dtype": "bfloat16", "rope_theta": 500000.0}))
    assert read_model(str(path)).weights == WEIGHTS["llama3-8b"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, 'key "hidden_size" is missing'),
        ({"hidden_size": "4096"}, "key \"hidden_size\" is '4096' (give a whole number from 1 up)"),
        ({"num_hidden_layers": 0}, 'key "num_hidden_layers" is 0'),
        ({"num_key_value_heads": 3}, "32 heads cannot share 3 heads of keys and values evenly"),
        ({"model_type": "lama"}, "key \"model_type\" is 'lama' (did you mean 'llama'?)"),
        ({"model_type": None}, 'key "model_type" is'),
        (
            {"num_attention_heads": 33, "num_key_value_heads": 33},
            "33 heads do not divide a width of 4096",
        ),
        ({"tie_word_embeddings": "no"}, 'key "tie_word_embeddings" is'),
    ],
)
def test_a_configuration_that_lacks_something_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    content = json.loads((PRESETS / "llama3-8b.json").read_text()) | change
    path = tmp_path / "config.json"
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    with pytest.raises(EtSimError) as caught:
        read_model(str(path))
    assert message in str(caught.value)
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize("key", ["q_lora_rank", "n_shared_experts", "first_k_dense_replace"])
def test_keys_with_defaults_of_other_programs_are_required(key: str, tmp_path: Path) -> None:
    content = json.loads((PRESETS / "deepseek-v3.json").read_text())
    del content[key]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    with pytest.raises(EtSimError) as caught:
        read_model(str(path))
    assert f'key "{key}" is missing' in str(caught.value)


def test_an_unknown_model_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(EtSimError) as caught:
        read_model("lama3-8b")
    assert str(caught.value) == "there is no model 'lama3-8b' (did you mean 'llama3-8b'?)"
