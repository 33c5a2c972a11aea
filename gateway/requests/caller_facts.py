"""Facts that a request states about its caller, in headers and body. The proxy and the decision API read them here.

Where a fact has several names, the order below is the order of precedence. A body's own field precedes a header. Names
of other products mean what they mean there: docs/requests.md lists them, decision 72 explains the choices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from msgspec import Meta

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.server.http.json_body import BadBodyError, lax_int, reject_nul_name, typed
from gateway.server.http.request_head import is_sane_id
from kvstore.connector.stated_hint import NO_HINT, StatedHint
from kvstore.transfer.frames import CacheHint
from routing.policy.admission_document import ClassName

MAX_AGENT, MAX_NAME = 128, 256
AGENT, WORKFLOW = b"x-agent", b"x-workflow-id"
TTFT_HEADERS = (b"x-headway-ttft-slo-ms", b"x-llm-d-slo-ttft-ms", b"x-sgl-ttft-slo-ms")
TPOT_HEADERS = (b"x-headway-tpot-slo-ms", b"x-llm-d-slo-tpot-ms")
CLASS_HEADER = b"x-headway-slo-class"
OBJECTIVE_HEADERS = (b"x-llm-d-inference-objective", b"x-gateway-inference-objective")
HINT_HEADER = b"x-headway-cache-hint"
DOOR_HEADER = b"x-headway-door"
CLIENT_ID_HEADER = b"x-headway-client-request-id"
"""The X-Request-Id of a proxy's client. A proxy's own X-Request-Id would repeat an earlier decision."""
DOORS = frozenset(("nginx", "haproxy", "envoy", "client"))
"""Names by which integrations of the decision API identify themselves."""
KEEPS_BODIES = "haproxy"
"""The integration that cannot change a request's body."""
AMONG = b"x-gateway-destination-endpoint-subset"
"""The addresses that an endpoint picker's proxy allows, separated by commas. They limit the choice."""
API, PROXY = "api", "proxy"
TRACE = (b"traceparent", b"tracestate")
_hint = msgspec.json.Decoder(StatedHint).decode
_HINTS = frozenset(get_args(CacheHint))
_LONGEST_TTFT_MS, _LONGEST_TPOT_MS, _MAX_DIGITS = 3_600_000, 60_000, 12
_CLASS = re.compile(rb"[a-z0-9][a-z0-9_.-]{0,31}").fullmatch


class _SessionNames(NamedTuple):
    """The headers in which a client names its session, the agent within it, and the parent."""

    session: bytes
    parent: bytes
    agent: bytes = b""
    """An agent within the session has a conversation of its own, and the parent is another agent of the session."""


_SESSIONS = (
    _SessionNames(b"x-session-id", b"x-parent-session-id"),  # ours, and OpenCode's
    _SessionNames(b"x-dynamo-session-id", b"x-dynamo-parent-session-id"),
    _SessionNames(b"x-claude-code-session-id", b"x-claude-code-parent-agent-id", b"x-claude-code-agent-id"),
    _SessionNames(b"session-id", b"x-codex-parent-thread-id", b"thread-id"),  # Codex
    _SessionNames(b"x-session-affinity", b"x-parent-session-id"),  # OpenCode, for providers that it does not know
)
CLIENT_HEADERS: tuple[bytes, ...] = tuple(dict.fromkeys((
    *(name for names in _SESSIONS for name in names if name), AGENT, WORKFLOW,
    CLASS_HEADER, *OBJECTIVE_HEADERS, *TTFT_HEADERS, *TPOT_HEADERS, HINT_HEADER,
)))  # fmt: skip
"""All headers of a client that are read here. Proxies that ask for decisions forward them unchanged."""
_READ = frozenset((*CLIENT_HEADERS, DOOR_HEADER, CLIENT_ID_HEADER))

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_CLAUDE_CODE = re.compile(rf'(?:_session_|"session_id"\s*:\s*")({_UUID})(?![0-9a-f-])').search
_OF_ONE_CONVERSATION = re.compile(rf"{_UUID}|ses_[0-9A-Za-z]{{8,64}}").fullmatch
_LONGEST_USER = 1024


class CallerFields(msgspec.Struct, kw_only=True, gc=False):
    """The fields of a body that state facts about its caller."""

    ttft_slo_s: Annotated[float, Meta(ge=1e-6, le=3600)] | None = None
    tpot_slo_s: Annotated[float, Meta(ge=1e-6, le=60)] | None = None
    slo_class: ClassName | None = None
    session_id: Annotated[str, Meta(max_length=MAX_NAME)] | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    agent: Annotated[str, Meta(max_length=MAX_AGENT)] = ""
    """The calling agent. With the workflow of the call, it predicts the next agents."""
    workflow_id: Annotated[str, Meta(max_length=MAX_NAME)] = ""
    cache_hint: Any = None
    prompt_cache_key: Any = None
    """It names a session if only one conversation can have it."""
    user: Any = None
    """It names a session only in the form of Claude Code's `metadata.user_id`."""
    metadata: Any = None


class CallerFacts(msgspec.Struct, frozen=True, gc=False):
    """What a request states about its caller. Empty or None: nothing."""

    session_id: str = ""
    parent_session: str = ""
    """The session whose agent started this one."""
    agent: str = ""
    workflow_id: str = ""
    ttft_slo_s: float | None = None
    tpot_slo_s: float | None = None
    slo_class: str = ""
    objective: str = ""
    """llm-d's name for a class. It has no effect in pools without this class, as in llm-d."""
    priority: int | None = None
    cache_hint: StatedHint = NO_HINT
    door: str = ""
    """One of DOORS; empty: the caller names none."""
    client_request_id: str = ""

    @property
    def conversation(self) -> str:
        """Return the session; without one, an agent has a session per workflow."""
        return self.session_id or session_of_agent(self.agent, self.workflow_id)


NO_FACTS = CallerFacts()


class DecisionCaller(msgspec.Struct, frozen=True, gc=False):
    """For whom a decision is made: the key, the key that will report the outcome, and the facts in the headers."""

    key: ApiKeyEntry
    reporter: ApiKeyEntry
    """Another key than `key` if a trusted proxy forwards the request of its client."""
    facts: CallerFacts = NO_FACTS
    trace: Mapping[bytes, bytes] = {}
    """The headers of the trace that the request continues; empty without tracing."""
    original_path: str = ""
    """The endpoint that a proxy's client called; empty without tracing, and if unknown."""
    among: frozenset[str] | None = None
    """Addresses (`host:port`) of the engines that the proxy allows; None: all."""

    @property
    def reporting_tenant(self) -> str:
        """Return the tenant of the trusted proxy that will report the outcome, empty if the caller does so itself."""
        return "" if self.reporter is self.key else self.reporter.tenant_id


def among_of(headers: Mapping[bytes, bytes]) -> frozenset[str] | None:
    """Return the addresses in the header AMONG, None without it."""
    value = headers.get(AMONG)
    return None if value is None else frozenset(part.strip() for part in value.decode("latin-1").split(",")) - {""}


def facts_of(headers: Mapping[bytes, bytes], body: Mapping[str, Any]) -> CallerFacts:
    """Return the facts in a request's headers and undecoded body; raise BadBodyError."""
    facts = facts_of_headers(headers)
    stated = _FIELDS.intersection(body)
    if not stated:
        return facts
    fields = {name: body[name] for name in stated}
    priority = lax_int(fields.get("priority"))
    return with_fields(facts, typed(fields if priority is None else {**fields, "priority": priority}, CallerFields))


def facts_of_headers(headers: Mapping[bytes, bytes]) -> CallerFacts:
    """Return the facts in a request's headers; raise BadBodyError."""
    if _READ.isdisjoint(headers):
        return NO_FACTS
    session, parent = _session_of(headers)
    agent, workflow_id = agent_of(headers)
    door, client_id = headers.get(DOOR_HEADER, b"").decode("latin-1"), headers.get(CLIENT_ID_HEADER, b"")
    return CallerFacts(
        session,
        parent,
        agent,
        workflow_id,
        _seconds(headers, TTFT_HEADERS, _LONGEST_TTFT_MS),
        _seconds(headers, TPOT_HEADERS, _LONGEST_TPOT_MS),
        slo_class(headers),
        next((headers[name].decode("latin-1") for name in OBJECTIVE_HEADERS if headers.get(name)), ""),
        None,
        stated_hint(headers.get(HINT_HEADER, b"default").decode("latin-1"), HINT_HEADER.decode(), "bad_header"),
        door if door in DOORS else "",
        client_id.decode() if is_sane_id(client_id) else "",
    )


def with_fields(facts: CallerFacts, fields: CallerFields) -> CallerFacts:
    """Return the facts of the headers, replaced by those that the body's fields state; raise BadBodyError."""
    session, hint = fields.session_id, fields.cache_hint
    if session:
        reject_nul_name(session, "session_id")
    agent, workflow_id = fields.agent, fields.workflow_id
    if agent or workflow_id:
        reject_nul_name(agent, "agent")
        reject_nul_name(workflow_id, "workflow_id")
    else:
        agent, workflow_id = facts.agent, facts.workflow_id
    return CallerFacts(  # by position: each decision runs this code
        session or facts.session_id or _conversation_of(fields),
        "" if session else facts.parent_session,
        agent,
        workflow_id,
        fields.ttft_slo_s or facts.ttft_slo_s,
        fields.tpot_slo_s or facts.tpot_slo_s,
        fields.slo_class or facts.slo_class,
        facts.objective,
        fields.priority,
        facts.cache_hint if hint is None else stated_hint(hint, "cache_hint", "bad_field"),
        facts.door,
        facts.client_request_id,
    )


def agent_of(headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """Return the agent's name and the workflow's id, or two empty strings unless both are given."""
    agent = headers.get(AGENT, b"").decode("latin-1").strip()[:MAX_AGENT]
    workflow = headers.get(WORKFLOW, b"").decode("latin-1").strip()[:MAX_NAME]
    return (agent, workflow) if agent and workflow else ("", "")


def session_of_agent(agent: str, workflow_id: str) -> str:
    """Return the session for an agent's requests that name none: one per agent and workflow."""
    return f"{workflow_id}/{agent}"[:MAX_NAME] if agent and workflow_id else ""


def slo_class(headers: Mapping[bytes, bytes]) -> str:
    """Return the named SLO class, empty if none; raise BadBodyError for an invalid class name."""
    value = headers.get(CLASS_HEADER)
    if value is None:
        return ""
    if _CLASS(value) is None:
        shown = CLASS_HEADER.decode()
        message = f"Send {shown} as the name of an SLO class: up to 32 of a-z, 0-9, '.', '_' and '-'."
        raise BadBodyError("bad_header", message, param=shown)
    return value.decode()


def stated_hint(value: object, name: str, cause: str) -> StatedHint:
    """Return the hint in a header or field: a name, or an object with a segment and a time; raise BadBodyError."""
    try:
        hint = _hint(msgspec.json.encode({"hint": value} if isinstance(value, str) else value))
    except (msgspec.DecodeError, TypeError):
        message = (
            f"Send {name} as one of {', '.join(sorted(_HINTS))}, or as an object with hint, start, end, and ttl_s."
        )
        raise BadBodyError(cause, message, param=name) from None
    pins = hint.hint == "context_cache"
    if hint.end is not None and (not pins or hint.end <= hint.start):
        raise BadBodyError(cause, "Only a context_cache has an end, which is after its start.", param=name)
    if hint.ttl_s is not None and not pins:
        raise BadBodyError(cause, "Only a context_cache has a ttl_s.", param=name)
    return hint


def allowed_priority(caller: ApiKeyEntry, asked: int) -> int:
    """Return a request's priority: the requested one, or its key's ceiling (lower is more urgent)."""
    ceiling = caller.priority_ceiling
    return asked if ceiling is None else max(asked, ceiling)


def _session_of(headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """Return the names of the session and of its parent, empty if there is none."""
    for names in _SESSIONS:
        session = _name(headers, names.session)
        if session:
            return _within(session, _name(headers, names.agent), _name(headers, names.parent), names.agent)
    return "", ""


def _within(session: str, agent: str, parent: str, has_agents: bytes) -> tuple[str, str]:
    if not has_agents:
        return session, parent
    if agent in ("", session):
        return session, ""
    started_by = session if parent in ("", session) else f"{session}/{parent}"
    return f"{session}/{agent}"[:MAX_NAME], started_by[:MAX_NAME]


def _name(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1").strip()[:MAX_NAME]


def _conversation_of(fields: CallerFields) -> str:
    """Return the session in the fields of SDKs. A name that several conversations can share is none."""
    metadata, key = fields.metadata, fields.prompt_cache_key
    if metadata is None and key is None and fields.user is None:
        return ""
    for user in (metadata.get("user_id") if isinstance(metadata, dict) else None, fields.user):
        if isinstance(user, str) and len(user) <= _LONGEST_USER and (named := _CLAUDE_CODE(user)):
            return named[1]
    return key if isinstance(key, str) and _OF_ONE_CONVERSATION(key) else ""


def _seconds(headers: Mapping[bytes, bytes], names: tuple[bytes, ...], longest_ms: int) -> float | None:
    for name in names:
        value = headers.get(name)
        if value is not None:
            # The length comes first: Python rejects to read a number of more than 4,300 digits.
            if len(value) > _MAX_DIGITS or not value.isdigit() or not 1 <= int(value) <= longest_ms:
                message = f"Send {name.decode()} as whole milliseconds, 1 to {longest_ms}."
                raise BadBodyError("bad_header", message, param=name.decode())
            return int(value) / 1000
    return None


_FIELDS = frozenset(CallerFields.__struct_fields__)
