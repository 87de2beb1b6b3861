"""The models that rows of servings name: their paths on a hub, and presets or files."""

from __future__ import annotations

import re
from pathlib import Path

from et_sim.workloads.models.configuration import preset_names

MODELS = "models"  # a folder beside the file of rows, with NAME.json
_LEFT_OUT = (
    *("instruct", "chat", "base", "thinking", "hf", "it", "dynamic", "block", "kv", "v2"),
    *("fp8", "fp4", "nvfp4", "mxfp4", "bf16", "int4", "awq", "w4a16", "w8a8"),
)
_RENAMED = (  # other names of the same dimensions
    (r"llama-?3\.[13]-(\d+b)", r"llama3-\1"),
    (r"llama-?3\.1-(\d+b)", r"llama3-\1"),
    (r"llama-?([23])-(\d+b)", r"llama\1-\2"),
    (r"llama-4-(scout|maverick).*", r"llama4-\1"),
    (r"deepseek-r1", "deepseek-v3"),
    (r"deepseek-v3\.1", "deepseek-v3"),
    (r"kimi-k2\.\d+", "kimi-k2"),
    (r"minimax-m2\.\d+", "minimax-m2"),
    (r"glm-4\.[67]", "glm-4.5"),
    (r"(qwen3-next-80b).*", r"\1"),
    (r"gemma-3-(\d+b)", r"gemma3-\1"),
    (r"mixtral-(8x\d+b)-v0\.1", r"mixtral-\1"),
)


def model_named(path: str, folder: Path) -> str:
    """Return the preset, or the file in the folder of models, that a path on a hub names."""
    name = path.rstrip("/").rpartition("/")[2].lower()
    words = [word for word in name.split("-") if word not in _LEFT_OUT and not re.fullmatch(r"\d{4}", word)]
    plain = "-".join(words)
    known = preset_names()
    renamed = (re.sub(f"^{old}$", new, plain) for old, new in _RENAMED)
    for form in (name, plain, *renamed):
        if form in known:
            return form
        if (file := folder / MODELS / f"{form}.json").is_file():
            return str(file)
    raise ValueError(f"there is no model for {path!r} (give {MODELS}/{plain}.json beside the file)")
