"""Fields that name engines' caches, sessions, and routes belong to Headway: removed, replaced, or rejected by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.requests.formats.owned_fields import OWNED, REMOVED, is_comparable, reject_owned
from gateway.server.http.json_body import BadBodyError
from headway_client.decisions import OWNED_FIELDS
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, served

ROOT = Path(__file__).parents[4]
REJECTED = sorted(set(OWNED) - REMOVED)
BODY = {"model": MODEL, "prompt": "hello", "max_tokens": 2}


@pytest.mark.parametrize("name", REJECTED)
def test_a_field_that_changes_the_response_is_rejected_with_an_alternative(name: str) -> None:
    with pytest.raises(
        BadBodyError, match=f"Only Headway sets {name}, which .*{re.escape(OWNED[name].remedy)}"
    ) as error:
        reject_owned({**BODY, name: "x"})
    assert error.value.param == name
    reject_owned({**BODY, name: None})


@pytest.mark.parametrize("holder", ["extra_body", "nvext", "sampling_params", "vllm_xargs"])
@pytest.mark.parametrize("name", sorted(OWNED))
def test_a_nested_copy_is_rejected_with_its_path(holder: str, name: str) -> None:
    with pytest.raises(BadBodyError, match=re.escape(f"{holder}.{name}")):
        reject_owned({**BODY, holder: {"top_k": 5, name: "x"}})
    reject_owned({**BODY, holder: {"top_k": 5}})


@pytest.mark.parametrize(
    "field",
    ["user", "metadata", "top_k", "min_p", "guided_json", "structured_outputs", "session_id", "return_token_ids",
     "chat_template_kwargs", "mm_processor_kwargs", "stop_token_ids", "reasoning_effort", "logit_bias", "service_tier"],
)  # fmt: skip
def test_fields_that_affect_only_one_response_pass(field: str) -> None:
    reject_owned({**BODY, field: "x"})
    assert field not in REMOVED


@pytest.mark.parametrize(
    ("fields", "comparable"),
    [
        ({}, True),
        ({"logprobs": 5}, True),
        ({"echo": False, "prompt_logprobs": None}, True),
        ({"prompt_logprobs": 0}, False),
        ({"echo": True}, False),
        ({"echo": "true"}, False),
        ({"echo": "false"}, True),
        ({"documents": [{"text": "t"}], "add_special_tokens": True, "reasoning_effort": "high"}, True),
        ({"prompt_embeds": "AAAA"}, False),
        ({"truncate_prompt_tokens": 9}, False),
        ({"previous_response_id": "r"}, False),
    ],
)
def test_hits_are_compared_if_the_engine_uses_the_routed_prompt(fields: dict[str, Any], comparable: bool) -> None:
    assert is_comparable({**BODY, **fields}) == comparable


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize", "/api/v1/route", "/api/v1/route/batch"])
async def test_no_endpoint_accepts_a_rejected_field(tmp_path: Path, path: str) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        for body in ({**BODY, "extra_key": "mine"}, {**BODY, "extra_body": {"rid": "x"}}):
            sent = [body] if path.endswith("batch") else body
            status, answer, _ = await gateway.post(path, sent)
            assert (status, answer["error"]["code"]) == (400, "bad_field")
        assert not engine.bodies


async def test_an_engine_gets_none_of_the_owned_fields(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        plain = dict.fromkeys(REMOVED - {"priority", "cache_hint", "cache_salt"}, "x")
        status, _, _ = await gateway.post("/v1/completions", {**BODY, **plain, "cache_hint": "ephemeral"})
    assert status == 200
    assert [item for body in engine.bodies for item in body if item in OWNED] == []


def test_nginx_and_haproxy_remove_the_same_fields() -> None:
    """HAProxy rejects a body with such a name anywhere, so its list omits two words that tools often use."""
    ours = set(OWNED) - {"cache_hint"}
    assert ours == OWNED_FIELDS
    nginx = re.search(r'const OWNED = /"\(\?:(.*)\)"/;', (ROOT / "deploy/nginx/headway.js").read_text())
    haproxy = re.search(r"local OWNED = \{(.*?)\}", (ROOT / "deploy/haproxy/headway.lua").read_text(), re.DOTALL)
    assert nginx is not None
    assert haproxy is not None
    matched = re.compile(f'"(?:{nginx[1]})"')
    assert {name for name in OWNED if matched.fullmatch(f'"{name}"')} == ours
    assert set(re.findall(r'"(\w+)"', haproxy[1])) == ours - {"priority", "request_id"}


def test_the_guide_names_every_field() -> None:
    guide = (ROOT / "docs/requests.md").read_text()
    assert [name for name in OWNED if f"`{name}`" not in guide] == []
