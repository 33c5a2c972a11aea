"""The form that registers or changes an engine: its typed values and their problems."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from django.core.validators import validate_slug
from django.http import QueryDict

from controlplane.fleet.engine_url import RejectedUrlError
from controlplane.fleet.models.engine import Engine, EngineRole
from controlplane.platform.field_problems import InvalidFieldsError

ENGINE_FIELDS = ("name", "url", "kv_events_endpoint", "kv_replay_endpoint", "speed", "kind", "role", "kv_node")
LABELS = {
    "pool": "Pool",
    "name": "Name",
    "url": "URL",
    "kv_events_endpoint": "KV event endpoint",
    "kv_replay_endpoint": "KV replay endpoint",
    "speed": "Relative speed",
    "kind": "Kind",
    "role": "Role",
    "kv_node": "KV node",
    "desired_state": "State",
}
MAX_FIELD = 400
MAX_WHY = 200


@dataclass(slots=True)
class EngineForm:
    """Typed texts by field, and errors by field; `""` holds errors of the whole form."""

    values: dict[str, str]
    errors: dict[str, str] = field(default_factory=dict)
    was: dict[str, str] = field(default_factory=dict)
    """The stored values that the person saw when a change began."""

    @classmethod
    def of_post(cls, posted: QueryDict) -> Self:
        """Read a submitted form. Every typed value is kept."""
        values = {name: posted.get(name, "").strip()[:MAX_FIELD] for name in (*ENGINE_FIELDS, "pool", "why")}
        was = {name: posted.get(f"was_{name}", "")[:MAX_FIELD] for name in ENGINE_FIELDS if f"was_{name}" in posted}
        values["role"] = values["role"] or was.setdefault("role", EngineRole.MIXED.value)
        values["then_ready"] = "on" if posted.get("then_ready") else ""
        return cls(values, was=was)

    @classmethod
    def of_engine(cls, engine: Engine) -> Self:
        """Return the form that changes an engine."""
        texts = stored_texts(engine)
        return cls({**texts, "pool": engine.pool.slug, "why": "", "then_ready": ""}, was=texts)

    @classmethod
    def empty(cls, pool: str) -> Self:
        """Return the form that registers an engine."""
        values = dict.fromkeys(ENGINE_FIELDS, "")
        return cls({**values, "pool": pool, "speed": "1", "role": "mixed", "why": "", "then_ready": "on"})

    def check(self) -> None:
        """Record all problems that can be detected without the database, so that they are shown together."""
        self.speed()
        if not validate_slug.regex.fullmatch(self.values["name"]):
            self.errors["name"] = "Use letters, digits, - and _."
        if not self.values["url"]:
            self.errors["url"] = "Enter the engine's URL, such as http://10.0.3.7:8000."

    def speed(self) -> float | None:
        """Return the speed as a number; None and an error if it is not a number."""
        try:
            speed = float(self.values["speed"] or 1)
        except ValueError:
            speed = math.nan
        if not 0 < speed <= 1000:
            self.errors["speed"] = "Enter a number above 0 and up to 1,000; 1 is the speed of the pool's cost profile."
            return None
        return speed

    def addresses(self) -> dict[str, str]:
        """Return the address fields as they were typed."""
        return {name: self.values[name] for name in ("url", "kv_events_endpoint", "kv_replay_endpoint")}

    def changes(self) -> dict[str, Any]:
        """Return the fields that differ from the values that the person saw."""
        speed = self.speed()
        wanted: dict[str, Any] = {name: self.values[name] for name in ENGINE_FIELDS if name != "speed"}
        if speed is not None:
            wanted["speed"] = speed
        return {name: value for name, value in wanted.items() if self.values[name] != self.was.get(name)}

    def blame(self, error: InvalidFieldsError | RejectedUrlError) -> None:
        """Add a service's problems to the fields that they name."""
        if isinstance(error, RejectedUrlError):
            self.errors.setdefault(error.field or "url", _sentence(str(error)))
            return
        for problem in error.problems:
            field_name = "url" if problem.path == "connect_url" else problem.path
            self.errors.setdefault(field_name if field_name in self.values else "", _sentence(problem.message))

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The engine's fields in the format of the template."""
        return [
            {
                "name": name,
                "label": LABELS[name],
                "value": self.values[name],
                "error": self.errors.get(name, ""),
                "was": self.was.get(name),
                "help": _HELP[name],
                "required": name in ("name", "url"),
                "code": name not in ("name", "speed"),
                "choices": EngineRole.choices if name == "role" else (),
            }
            for name in ENGINE_FIELDS
        ]

    @property
    def summary(self) -> list[tuple[str, str]]:
        """All errors with the ids of their fields, for the list at the top."""
        return [(name, f"{LABELS[name]}: {text}" if name in LABELS else text) for name, text in self.errors.items()]


def stored_texts(engine: Engine) -> dict[str, str]:
    """Return the engine's fields as texts, formatted as in the form."""
    return {name: _text(getattr(engine, name)) for name in ENGINE_FIELDS}


def merged(form: EngineForm, theirs: Engine) -> tuple[EngineForm, list[dict[str, Any]]]:
    """Return the typed values merged onto the stored ones, and a line for each field that either side changed."""
    stored = stored_texts(theirs)
    values = dict(form.values)
    lines = []
    for name in ENGINE_FIELDS:
        base, other, mine = form.was.get(name, stored[name]), stored[name], form.values[name]
        if base == other == mine:
            continue
        values[name] = other if mine == base else mine
        both = mine not in (base, other) and other != base
        lines.append({"label": LABELS[name], "base": base, "theirs": other, "mine": mine, "both": both})
        lines[-1] |= {"take_theirs": values[name] == other != mine, "take_mine": values[name] == mine != other}
    return EngineForm(values, dict(form.errors), was=stored), lines


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the labels of the fields that differ."""
    return [LABELS[name] for name in ENGINE_FIELDS if before.get(name) != after.get(name)]


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sentence(text: str) -> str:
    start = text if text[:4] in ("http", "tcp:") else text[:1].upper() + text[1:]
    return start if start.endswith((".", "!", "?")) else f"{start}."


_HELP = {
    "name": "Letters, digits, - and _; unique in its pool.",
    "url": "http://host:port of the engine's API, reachable from this host.",
    "kv_events_endpoint": "tcp://host:port. Empty: detected from the engine.",
    "kv_replay_endpoint": "tcp://host:port, to replay missed events. Empty: detected from the engine.",
    "speed": "Prefill speed relative to the pool's cost profile: 1 is equal, 2 is twice as fast.",
    "role": "Prefill engines only compute prompts; decode engines only generate answers.",
    "kv_node": "Name of the node manager that stores the engine's KV blocks. Empty: none.",
    "kind": "Accelerator or build, such as H100; engines of one kind share a learned cost. Empty: the pool's common "
    "kind.",
}
