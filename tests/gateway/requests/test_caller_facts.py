"""The caller's facts in headers and bodies: the names of each client, and their precedence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.requests.caller_facts import CLIENT_HEADERS, NO_FACTS, allowed_priority, facts_of, facts_of_headers
from gateway.server.http.json_body import BadBodyError

UUID = "2c4e1cf0-7a67-4d2e-9a4b-1d16d3f44752"
DEVICE = "user_" + "8b" * 32


def sessions(headers: dict[str, str], body: dict[str, Any] | None = None) -> tuple[str, str]:
    facts = facts_of({name.encode(): value.encode() for name, value in headers.items()}, body or {})
    return facts.conversation, facts.parent_session


@pytest.mark.parametrize(
    ("headers", "session", "parent"),
    [
        ({"x-session-id": "s1"}, "s1", ""),
        ({"x-session-id": "ses_b", "x-parent-session-id": "ses_a", "x-session-affinity": "ses_b"}, "ses_b", "ses_a"),
        ({"x-session-affinity": "ses_b", "x-parent-session-id": "ses_a"}, "ses_b", "ses_a"),
        ({"x-dynamo-session-id": "run:child", "x-dynamo-parent-session-id": "run"}, "run:child", "run"),
        ({"x-claude-code-session-id": UUID}, UUID, ""),
        ({"x-claude-code-session-id": UUID, "x-claude-code-agent-id": "a1"}, f"{UUID}/a1", UUID),
        (
            {
                "x-claude-code-session-id": UUID,
                "x-claude-code-agent-id": "a2",
                "x-claude-code-parent-agent-id": "a1",
            },
            f"{UUID}/a2",
            f"{UUID}/a1",
        ),
        ({"session-id": "s", "thread-id": "s"}, "s", ""),
        ({"session-id": "s", "thread-id": "t2", "x-codex-parent-thread-id": "s"}, "s/t2", "s"),
        ({"session-id": "s", "thread-id": "t3", "x-codex-parent-thread-id": "t2"}, "s/t3", "s/t2"),
        ({"thread-id": "t2"}, "", ""),
        ({"x-agent": "planner", "x-workflow-id": "w7"}, "w7/planner", ""),
        ({"x-session-id": " "}, "", ""),
        ({"x-session-id": "s" * 300}, "s" * 256, ""),
    ],
)
def test_each_clients_headers_name_its_session_and_parent(headers: dict[str, str], session: str, parent: str) -> None:
    assert sessions(headers) == (session, parent)


def test_headers_of_sessions_have_a_precedence() -> None:
    names = ["x-session-id", "x-dynamo-session-id", "x-claude-code-session-id", "session-id", "x-session-affinity"]
    while names:
        assert sessions({name: name for name in names})[0] == names[0]
        names.pop(0)


@pytest.mark.parametrize(
    ("body", "session"),
    [
        ({"metadata": {"user_id": f"{DEVICE}_account__session_{UUID}"}}, UUID),
        ({"metadata": {"user_id": json.dumps({"device_id": DEVICE, "account_uuid": "", "session_id": UUID})}}, UUID),
        ({"user": f"{DEVICE}_account__session_{UUID}"}, UUID),
        ({"prompt_cache_key": UUID}, UUID),
        ({"prompt_cache_key": "ses_5f3aQkzT8e"}, "ses_5f3aQkzT8e"),
        ({"prompt_cache_key": UUID, "metadata": {"user_id": f"x_session_{UUID[::-1]}"}}, UUID),
    ],
)
def test_fields_of_sdks_name_a_session_of_one_conversation(body: dict[str, Any], session: str) -> None:
    assert sessions({}, body)[0] == session
    # Headers know the agent within the session.
    assert sessions({"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"}, body) == ("s/a", "s")
    assert sessions({}, {**body, "session_id": "own"})[0] == "own"


@pytest.mark.parametrize(
    "body",
    [
        {"user": "someone@example.com"},
        {"user": UUID},
        {"user": "u_session_" + "a" * 2000},
        {"metadata": {"user_id": "customer-7"}},
        {"metadata": "text"},
        {"metadata": {"user_id": {"session_id": UUID}}},
        {"prompt_cache_key": "support-bot-v2"},
        {"prompt_cache_key": ["x"]},
    ],
)
def test_a_name_that_many_conversations_share_is_no_session(body: dict[str, Any]) -> None:
    assert sessions({}, body) == ("", "")


def test_fields_of_the_body_precede_headers() -> None:
    headers = {
        b"x-session-id": b"h", b"x-parent-session-id": b"p", b"x-agent": b"h", b"x-workflow-id": b"h",
        b"x-headway-ttft-slo-ms": b"900", b"x-headway-tpot-slo-ms": b"40", b"x-headway-slo-class": b"h",
        b"x-headway-cache-hint": b"ephemeral", b"x-llm-d-inference-objective": b"gold",
    }  # fmt: skip
    alone = facts_of(headers, {"model": "m"})
    assert (alone.session_id, alone.parent_session, alone.agent, alone.workflow_id) == ("h", "p", "h", "h")
    assert (alone.ttft_slo_s, alone.tpot_slo_s, alone.slo_class, alone.objective) == (0.9, 0.04, "h", "gold")
    assert (alone.cache_hint.hint, alone.priority) == ("ephemeral", None)
    body = {
        "session_id": "b", "agent": "b", "workflow_id": "w", "ttft_slo_s": 2.5, "tpot_slo_s": 0.1, "slo_class": "b",
        "cache_hint": "context_cache", "priority": "-3",
    }  # fmt: skip
    both = facts_of(headers, body)
    assert (both.session_id, both.parent_session, both.agent, both.workflow_id) == ("b", "", "b", "w")
    assert (both.ttft_slo_s, both.tpot_slo_s, both.slo_class, both.objective) == (2.5, 0.1, "b", "gold")
    assert (both.cache_hint.hint, both.priority) == ("context_cache", -3)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"session_id": 7}, "session_id"),
        ({"session_id": "a\0b"}, "session_id"),
        ({"agent": "a\0b"}, "agent"),
        ({"priority": "soon"}, "priority"),
        ({"ttft_slo_s": -1}, "ttft_slo_s"),
        ({"slo_class": "Gold!"}, "slo_class"),
        ({"cache_hint": "forever"}, "cache_hint"),
        ({"cache_hint": 7}, "cache_hint"),
        ({"cache_hint": {"hint": "context_cache", "begin": 3}}, "cache_hint"),
        ({"cache_hint": {"hint": "context_cache", "start": 9, "end": 9}}, "cache_hint"),
        ({"cache_hint": {"hint": "ephemeral", "end": 9}}, "cache_hint"),
        ({"cache_hint": {"hint": "ephemeral", "ttl_s": 9}}, "cache_hint"),
    ],
)
def test_a_malformed_fact_is_rejected_by_its_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadBodyError) as error:
        facts_of({}, body)
    assert error.value.param == param


def test_a_request_without_facts_costs_no_reading() -> None:
    assert facts_of_headers({b"host": b"h", b"authorization": b"Bearer hw_x"}) is NO_FACTS
    assert facts_of({b"host": b"h"}, {"model": "m", "messages": []}) is NO_FACTS


def test_a_door_is_one_of_the_known_ones_and_a_clients_id_is_sane() -> None:
    facts = facts_of_headers({b"x-headway-door": b"nginx", b"x-headway-client-request-id": b"job-7"})
    assert (facts.door, facts.client_request_id) == ("nginx", "job-7")
    facts = facts_of_headers({b"x-headway-door": b"<b>", b"x-headway-client-request-id": b"a b"})
    assert (facts.door, facts.client_request_id) == ("", "")


def test_the_names_of_llm_d_are_read_in_both_spellings() -> None:
    for name in (b"x-llm-d-inference-objective", b"x-gateway-inference-objective"):
        assert name in CLIENT_HEADERS
        assert facts_of_headers({name: b"gold"}).objective == "gold"


def test_a_priority_is_limited_by_its_keys_ceiling() -> None:
    key = ApiKeyEntry(key_id="k", sha256="", tenant_id="t", priority_ceiling=5)
    assert (allowed_priority(key, 1), allowed_priority(key, 9)) == (5, 9)
