"""The blocks that an answer fills behind its prompt. The next turn of a session can load them on another engine."""

from __future__ import annotations

from array import array

import msgspec

from kvstore.connector.engine_params import LoadInstruction, packed_keys
from kvstore.keys.block_keys import TOKEN_BYTES, continued_keys
from simulator.engine_models.tokenizer import token_ids
from simulator.engine_server.answers.token_stream import answer_text


def with_answer(prompt: array[int], voice: int, output_tokens: int) -> array[int]:
    """Return the tokens of a prompt and its answer as the next turn's prompt has them, without a partial last token.

    The padding of the prompt's last token gives way to the answer. The last output token was never computed.
    """
    last = prompt[-1].to_bytes(TOKEN_BYTES, "little").rstrip(b"\0")
    data = last + answer_text(voice, 0, output_tokens - 1).encode()
    return prompt[:-1] + token_ids(data[: len(data) // TOKEN_BYTES * TOKEN_BYTES])


def answer_span(prompt: array[int], tokens: array[int], size: int) -> tuple[int, int]:
    """Return the first of the blocks that are the prompt's no more, and the end of the full ones."""
    changed = tokens[: len(prompt)][-1:] != prompt[-1:]
    return (len(prompt) - changed) // size, len(tokens) // size


def answer_order(order: LoadInstruction | None, tokens: array[int], first: int, end: int, size: int) -> LoadInstruction:
    """Return how the node keeps blocks `first` … `end`: not as part of the prompt's segment, and keyed like it."""
    order = order or LoadInstruction()
    keys = order.routing_keys()[:first]
    continued = packed_keys(continued_keys(keys, tokens, end, size)) if keys else ""
    return msgspec.structs.replace(order, keys=continued, hint_to=order.hint_to or first)
