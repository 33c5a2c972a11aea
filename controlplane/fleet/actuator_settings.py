"""Settings of each actuator kind, as stored with a pool: typed, validated, and without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from controlplane.fleet.engine_addressing import engine_url_rules
from controlplane.fleet.engine_url import RejectedUrlError, UnresolvedHostError, check_webhook_url
from controlplane.fleet.models.pool import ActuatorKind
from controlplane.platform.field_problems import problem
from routing.values.prepared_struct import prepared

_NAME = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
_VARIABLE = r"^HEADWAY_WEBHOOK_[A-Z0-9_]{1,40}$"


class ManualSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the manual actuator. It has none, because an operator acts."""


class SleepSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of vLLM's sleep mode. It has none."""


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Simulated engines as child processes of this program."""

    max_engines: Annotated[
        int, Meta(ge=1, le=64, title="Max processes", description="Maximum engines of this pool on this host.")
    ] = 16


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operator's service that is called over HTTP."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[^\s@]{3,280}$",
            title="URL",
            description="Receives a POST per action: action, pool, served_model, role, engine, idempotency_key.",
        ),
    ]
    secret_variable: Annotated[
        str,
        Meta(
            pattern=_VARIABLE,
            title="Secret",
            description="Environment variable with the signing secret; its name begins with HEADWAY_WEBHOOK_.",
        ),
    ] = "HEADWAY_WEBHOOK_SECRET"  # noqa: S105 - the name of the variable, not its value
    timeout_s: Annotated[float, Meta(gt=0, le=8, title="Timeout", description="Maximum time of one call.")] = 5.0


class KubernetesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """StatefulSets, one per role; each replica is an engine."""

    namespace: Annotated[str, Meta(pattern=_NAME, title="Namespace", description="Namespace of the StatefulSets.")]
    stateful_sets: Annotated[
        dict[str, Annotated[str, Meta(pattern=_NAME)]],
        Meta(
            min_length=1,
            max_length=3,
            title="StatefulSets",
            description="StatefulSet name per role: mixed, or prefill and decode.",
        ),
    ]
    url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[^\s@]{3,280}$",
            title="Engine URL",
            description="URL of an engine, with the variables {pod}, {set}, {ordinal} and {namespace}.",
        ),
    ] = "http://{pod}.{set}.{namespace}.svc:8000"
    kv_events_endpoint: Annotated[
        str, Meta(max_length=200, title="KV events", description="tcp://… with the same variables; empty: none.")
    ] = ""
    context: Annotated[
        str,
        Meta(
            max_length=200, title="Context", description="kubeconfig context; empty: the current one, or the pod's own."
        ),
    ] = ""


SETTINGS: dict[str, type[Any]] = {
    ActuatorKind.MANUAL: ManualSettings,
    ActuatorKind.PROCESS: ProcessSettings,
    ActuatorKind.WEBHOOK: WebhookSettings,
    ActuatorKind.KUBERNETES: KubernetesSettings,
    ActuatorKind.SLEEP: SleepSettings,
}
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")
_EXAMPLE_VALUES = {"pod": "p-0", "set": "p", "ordinal": "0", "namespace": "n"}


def checked_settings(kind: str, document: object) -> dict[str, Any]:
    """Return the complete settings for storage. Raises InvalidFieldsError with the path of each problem."""
    if kind not in SETTINGS:
        raise problem("actuator", f"Is unknown; known are {', '.join(SETTINGS)}.")
    try:
        settings = msgspec.convert(document, prepared(SETTINGS[kind]))
    except msgspec.ValidationError as error:
        sentence, _, where = str(error).partition(" - at `")
        path = where.rstrip("`").removeprefix("$").lstrip(".")
        raise problem(f"actuator_settings.{path}".rstrip("."), sentence) from error
    if isinstance(settings, KubernetesSettings):
        _check_kubernetes(settings)
    if isinstance(settings, WebhookSettings):
        _check_webhook(settings)
    complete: dict[str, Any] = msgspec.to_builtins(settings)
    return complete


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return the template with each {name} replaced. Raises KeyError for an unknown name or an unpaired brace."""
    text = _PLACEHOLDER.sub(lambda match: values[match[1]], template)
    if "{" in text or "}" in text:
        raise KeyError("{")
    return text


def _check_webhook(settings: WebhookSettings) -> None:
    try:
        check_webhook_url(settings.url, engine_url_rules())
    except UnresolvedHostError:
        # Resolved and checked again at each call.
        return
    except RejectedUrlError as error:
        raise problem("actuator_settings.url", f"{error}.") from error


def _check_kubernetes(settings: KubernetesSettings) -> None:
    unknown = settings.stateful_sets.keys() - {"mixed", "prefill", "decode"}
    if unknown:
        raise problem("actuator_settings.stateful_sets", f"{min(unknown)} is not a role; use mixed, prefill or decode.")
    for name in ("url", "kv_events_endpoint"):
        try:
            filled(getattr(settings, name), _EXAMPLE_VALUES)
        except KeyError:
            known = ", ".join("{" + item + "}" for item in _EXAMPLE_VALUES)
            raise problem(f"actuator_settings.{name}", f"Has an unknown variable; known are {known}.") from None
