"""Makes a tiny Gemma 3 of random weights, with window layers beside full attention, from the tiny Llama's tokenizer.

Run by the Python that has vLLM.
"""

from __future__ import annotations

import sys
from pathlib import Path

WINDOW, WINDOW_BLOCKS = 100, 4
"""Its tokens, and the blocks of 32 that they take before the token that is computed next."""


def make_model(folder: Path, text_model: Path) -> None:
    """Store model and tokenizer."""
    import torch
    from transformers import AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(17)
    tokenizer = AutoTokenizer.from_pretrained(text_model)
    tokenizer.save_pretrained(folder)
    config = Gemma3TextConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    Gemma3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    make_model(Path(sys.argv[1]), Path(sys.argv[2]))
