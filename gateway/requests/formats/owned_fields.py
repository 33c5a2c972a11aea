"""Body fields that name an engine's caches, sessions, adapters, routes, or code. Only Headway may set them.

Engines ignore unknown names, so one table works for both products and all pools. It was collected from the request
classes of vLLM 0.32 and SGLang 0.5.23. Their other fields concern only one answer and are relayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.server.http.json_body import BadBodyError, lax_flag

_VLLM, _SGLANG, _BOTH = "vLLM", "SGLang", "vLLM and SGLang"


class OwnedField(NamedTuple):
    """The effect of a field, and its product."""

    product: str
    does: str
    remedy: str = ""
    """What the client can do instead, if the request is rejected. Empty: the field is removed or replaced, and the
    answer is as good.
    """


OWNED: Mapping[str, OwnedField] = {
    "cache_salt": OwnedField(_BOTH, "keeps blocks apart; engines get a salt derived from it"),
    "priority": OwnedField(_BOTH, "orders requests; engines get it up to the API key's ceiling"),
    "request_id": OwnedField(_BOTH, "names the request, and the response that vLLM stores"),
    "rid": OwnedField(_SGLANG, "names the request, and no other request can have the name"),
    "kv_transfer_params": OwnedField(_VLLM, "reads KV blocks from another engine, or keeps them for one"),
    "ec_transfer_params": OwnedField(_VLLM, "reads encoded media from another engine, or keeps them for one"),
    "data_parallel_rank": OwnedField(_SGLANG, "selects a rank"),
    "routed_dp_rank": OwnedField(_SGLANG, "selects a rank"),
    "disagg_prefill_dp_rank": OwnedField(_SGLANG, "selects a rank of the prefill engine"),
    "bootstrap_host": OwnedField(_SGLANG, "fetches KV blocks from that host"),
    "bootstrap_port": OwnedField(_SGLANG, "fetches KV blocks from that port"),
    "bootstrap_room": OwnedField(_SGLANG, "names the handover of a prompt"),
    "cache_hint": OwnedField("Headway", "states what the prompt's KV is worth"),
    "extra_key": OwnedField(_SGLANG, "keeps blocks apart", "Send cache_salt instead."),
    "lora_path": OwnedField(_SGLANG, "selects an adapter", "Send the adapter's name as model."),
    "session_params": OwnedField(_SGLANG, "continues a session of any client", "Send the whole conversation."),
    "input_ids": OwnedField(_SGLANG, "replaces the messages", "Send prompt to /v1/completions instead."),
    "custom_logit_processor": OwnedField(_SGLANG, "is code that the engine runs", "Send logit_bias instead."),
    "logits_processors": OwnedField(_VLLM, "names code that the engine runs", "Send logit_bias instead."),
    "kv_cache_report_mode": OwnedField(_VLLM, "announces cached blocks again", "Leave it out."),
}
REMOVED = frozenset(name for name, field in OWNED.items() if not field.remedy)
REVEALING = frozenset(("return_cached_tokens_details", "return_hidden_states"))
"""Fields that request SGLang's cache figures. They are removed if the caller must not see hits."""
_REJECTED = OWNED.keys() - REMOVED
_CONTAINERS = ("extra_body", "nvext", "sampling_params", "vllm_xargs")
"""Objects in which servers in front of engines, vLLM itself, or mistaken clients put further fields."""
_INCOMPARABLE = (
    "prompt_logprobs",
    "prompt_embeds",
    "truncate_prompt_tokens",
    "media_io_kwargs",
    "mm_processor_kwargs",
    "previous_response_id",
    "previous_input_messages",
)
"""With prompt_logprobs, vLLM computes a prompt as if none of it were cached. With the others, the engine's prompt
differs from the routed one.
"""


def reject_owned(body: Mapping[str, Any]) -> None:
    """Raise BadBodyError for a field that only Headway may set, if removing it would change the answer."""
    if sent := [name for name in _REJECTED & body.keys() if body[name] is not None]:
        name = min(sent)
        raise _rejection(name, name, OWNED[name].remedy)
    for holder in _CONTAINERS:
        inner = body.get(holder)
        if isinstance(inner, dict) and (nested := OWNED.keys() & inner.keys()):
            name = min(nested)
            raise _rejection(name, f"{holder}.{name}", OWNED[name].remedy or f"Send {name} beside model.")


def is_comparable(body: Mapping[str, Any]) -> bool:
    """Return whether the request's reported hits can be compared with the index.

    For an echo, engines compute the complete prompt, as for prompt_logprobs.
    """
    return lax_flag(body.get("echo")) is not True and all(body.get(name) is None for name in _INCOMPARABLE)


def _rejection(name: str, param: str, remedy: str) -> BadBodyError:
    product, does, _ = OWNED[name]
    return BadBodyError("bad_field", f"Only Headway sets {param}, which {does} ({product}). {remedy}", param=param)
