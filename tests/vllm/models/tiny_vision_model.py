"""Make a tiny Idefics3 with random weights, which reads images, from the tiny Llama's tokenizer.

Run by the Python that has vLLM: this model is one of the few whose modules need no torchvision.
"""

from __future__ import annotations

import sys
from pathlib import Path

TEMPLATE = (
    "<s>{% for message in messages %}<|turn|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% else %}<image>{% endif %}{% endfor %}{% endif %}</s>"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
SIDE = 128
"""Side of each image in pixels: 64 tokens, and those that the processor puts around them."""


def make_model(folder: Path, text_model: Path) -> None:
    """Store model, tokenizer and image processor."""
    import torch
    from transformers import (
        AutoTokenizer,
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessor,
        Idefics3Processor,
        LlamaConfig,
    )

    torch.manual_seed(17)
    tokenizer = AutoTokenizer.from_pretrained(text_model)
    tokenizer.chat_template = TEMPLATE
    edge = {"longest_edge": SIDE}
    images = Idefics3ImageProcessor(size=edge, max_image_size=edge, do_image_splitting=False)
    Idefics3Processor(images, tokenizer, image_seq_len=64, chat_template=TEMPLATE).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2}
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        **layers,
    )
    config = Idefics3Config(
        vision_config={"hidden_size": 64, "intermediate_size": 128, "image_size": SIDE, "patch_size": 8, **layers},
        text_config=text,
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=2,
    )
    Idefics3ForConditionalGeneration(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    make_model(Path(sys.argv[1]), Path(sys.argv[2]))
