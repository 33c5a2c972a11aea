"""Make tiny hybrid models with random weights, from the tiny Llama's tokenizer; run by the Python that has vLLM.

Two of three layers have sliding windows (Gemma 3) or recurrent states (LFM2, whose short convolutions vLLM keeps like
those of Mamba), and the last one has full attention.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

KINDS = ("sliding_window", "mamba")
"""Names in vLLM's events of both models' groups without full attention."""
WINDOW = 100
"""In tokens: four blocks of 32, since the token to be computed next is in its own window."""


def make_model(kind: str, folder: Path, text_model: Path) -> None:
    """Store model and tokenizer."""
    import torch
    from transformers import AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig, Lfm2Config, Lfm2ForCausalLM

    torch.manual_seed(17)
    tokenizer = AutoTokenizer.from_pretrained(text_model)
    tokenizer.save_pretrained(folder)
    common: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "initializer_range": 0.3,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
    }
    if kind == "sliding_window":
        layers = ["sliding_attention", "sliding_attention", "full_attention"]
        config = Gemma3TextConfig(head_dim=32, sliding_window=WINDOW, layer_types=layers, **common)
        model = Gemma3ForCausalLM(config)
    else:
        # vLLM reads the last three, which the configurations of released models have.
        config = Lfm2Config(
            layer_types=["conv", "conv", "full_attention"], conv_dim=128, conv_dim_out=128, block_dim=128, **common
        )
        model = Lfm2ForCausalLM(config)
    model.to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    for item in KINDS:
        make_model(item, Path(sys.argv[1]) / item, Path(sys.argv[2]))
