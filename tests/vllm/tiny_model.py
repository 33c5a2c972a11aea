"""Make a tiny Llama with random weights, a tokenizer and a chat template; run by the Python that has vLLM.

Its weights are wide enough for its output to depend on the whole prompt, so that a block of the wrong prefix gives
other tokens. Nothing is downloaded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SPECIAL = ["<s>", "</s>", "<pad>", "<|turn|>", "<tool_call>", "</tool_call>"]
TEMPLATE = (
    "<s>{% if tools %}<|turn|>tools\n{{ tools | tojson }}</s>{% endif %}"
    "{% for message in messages %}<|turn|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}</s>"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
CONTEXT_TOKENS = 8192
LAYERS = 2
TEXTS = [str(Path(__file__).resolve().parents[2] / "docs" / name) for name in ("kv-store.md", "regions.md")]


def make_tokenizer(folder: Path) -> int:
    """Store a byte-level BPE trained on the repository's prose and return the size of its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train(TEXTS, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", chat_template=TEMPLATE
    )
    fast.save_pretrained(folder)
    return len(fast)


def make_model(folder: Path, vocabulary: int) -> None:
    """Store a model with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(17)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_TOKENS,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        dtype="bfloat16",
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def make_adapter(folder: Path) -> None:
    """Store a LoRA adapter with random weights for the model."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for layer in range(LAYERS):
        for name, width in (("q_proj", 128), ("v_proj", 64)):
            path = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            made[f"{path}.lora_A.weight"] = torch.randn(8, 128) / 8
            made[f"{path}.lora_B.weight"] = torch.randn(width, 8) / 8
    save_file(made, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 16, "lora_dropout": 0.0}
    config |= {"bias": "none", "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "tiny"}
    (folder / "adapter_config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    make_model(target, make_tokenizer(target))
    make_adapter(target / "adapter")
