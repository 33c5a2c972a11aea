"""A model of realistic size for engines on a GPU, with dummy weights from vLLM (`--load-format dummy`)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from bench.engines.profile.torch_model import ModelShape

CONTEXT_TOKENS = 32_768


def shaped(model: Path, shape: ModelShape, folder: Path) -> Path:
    """Return a folder with the model's tokenizer and template, and this shape.

    The tokenizer's vocabulary is unchanged.
    """
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors", "adapter"))
    sizes = {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "max_position_embeddings": CONTEXT_TOKENS,
    }
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | sizes))
    return folder
