"""The drawer in which an admin connects an engine: its address, consent, its own report, and the planned objects."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict

from controlplane.fleet.connect.connection import EngineConnection, Wishes
from controlplane.fleet.connect.engine_facts import ConnectedEngineFacts, ConnectRejectedError
from controlplane.fleet.connect.words import fact_lines, made_words
from controlplane.fleet.engine_url import CheckedUrl
from web.shell.form_field import CHECKS, FieldOption, FormField, filled

URL, POOL, REGION, KEY, ESTIMATE, ALLOW = "url", "pool", "region", "key_variable", "approximate", "allow"
_URL = FormField(
    URL, "Engine URL", help="Such as http://10.0.3.7:8000, reachable from this host.", required=True, limit=300
)
_FURTHER = (
    FormField(POOL, "Pool", help="Optional. Empty: the one that serves its model, or a new one.", limit=64),
    FormField(REGION, "Region of a new pool", help="Optional. Empty: the only one.", limit=64),
    FormField(KEY, "Engine key variable", help="Optional, such as HEADWAY_ENGINE_KEY_CHAT.", limit=64),
    FormField(
        ESTIMATE,
        "Without KV events",
        CHECKS,
        options=(FieldOption("on", "Estimate hits", "A new pool then derives its block keys from prompts."),),
    ),
)


def wishes_of(posted: QueryDict) -> Wishes:
    """Return the requested pool, region, key, and estimate option of the form."""
    return Wishes(text_of(posted, POOL), text_of(posted, REGION), text_of(posted, KEY), ESTIMATE in posted)


def text_of(posted: QueryDict, name: str) -> str:
    """Return one typed value."""
    return posted.get(name, "").strip()[:300]


def allowed_by(address: CheckedUrl) -> str:
    """Return the form value that records consent to this address. If the name resolves elsewhere, consent is asked
    again.
    """
    return ", ".join(address.addresses)


def connect_drawer(
    posted: QueryDict | None = None,
    *,
    consent: CheckedUrl | None = None,
    plan: EngineConnection | None = None,
    facts: ConnectedEngineFacts | None = None,
    others: int = 0,
    rejection: ConnectRejectedError | None = None,
) -> dict[str, Any]:
    """Return the drawer's content: the empty form, the request for consent, the plan, or the reason for rejection.

    `facts` describe the whole engine. `others` is the number of further ranks that are connected as `plan` states.
    """
    values = dict(posted.lists()) if posted else {}
    drawer: dict[str, Any] = {"kind": "connect", "rejection": rejection, "fields": filled([_URL], values)}
    drawer["further"] = filled(_FURTHER, values)
    drawer["open"] = any(field.value for field in drawer["further"]) or bool(rejection and rejection.estimable)
    if consent:
        drawer["consent"] = allowed_by(consent)
    if plan:
        drawer |= {"facts": fact_lines(facts or plan.facts), "made": made_words(plan, others), "exact": plan.exact}
        drawer["allows"] = allowed_by(plan.address) if plan.networks else ""
    return drawer
