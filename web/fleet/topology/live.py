"""The data that an open Engines page polls: the figures of its rows, and a preflight's checklist."""

from __future__ import annotations

import time
import zlib
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.fleet.preflight.lifecycle import preflight_of
from web.fleet.topology.drawer import VERBS, checklist, flight_effect, flight_words, report_words, sample_of
from web.fleet.topology.page import finding, shown_engine, stale_words, summary, topology_pools
from web.fleet.topology.rows import TopologyRows, topology_rows
from web.fleet.topology.scope import TopologyScope
from web.live.feed import fleet_feed
from web.shell.console_request import console_actor

_NOT_SENT = ("kind", "pool", "name", "role", "id", "phrase", "since_at", "since_clock")


@require_safe
def topology_live(request: HttpRequest) -> JsonResponse:
    """Return the words and figures of the rows in scope and of the open drawer."""
    pools = topology_pools(console_actor(request))
    sample = fleet_feed().latest
    now = time.time()
    rows = topology_rows(pools, TopologyScope.of(request.GET), sample, now)
    answer: dict[str, Any] = {
        "finding": finding(rows),
        "summary": summary(pools, rows, sample),
        "stale": stale_words(sample, now),
        "list": list_key(rows),
        "rows": {
            entry["id"]: {name: value for name, value in entry.items() if name not in _NOT_SENT}
            for entry in rows.entries
            if entry["kind"] == "engine"
        },
    }
    engine = shown_engine(request.GET["engine"], pools) if request.GET.get("engine") else None
    if engine is not None:
        seen = sample_of(sample, engine.engine_id, now)
        answer["drawer"] = {
            "revision": engine.revision,
            "flight": flight_words(engine, seen)["text"],
            "report": report_words(seen),
            # The open question counts as the line below it does.
            "effect": flight_effect(VERBS[do][0], seen) if (do := request.GET.get("do", "")) in VERBS else "",
        }
    return JsonResponse(answer)


@require_safe
def topology_checklist(request: HttpRequest, engine_id: str) -> HttpResponse:
    """Return the engine's newest preflight as a fragment of the page."""
    engine = shown_engine(engine_id, topology_pools(console_actor(request)))
    if engine is None:
        raise Http404
    shown = checklist(preflight_of(engine), time.time())
    return render(request, "fleet/topology/checklist.html", {"checklist": shown, "engine": engine})


def list_key(rows: TopologyRows) -> str:
    """Return a key for the set of listed engines; their order does not matter."""
    ids = sorted(entry["id"] for entry in rows.entries if entry["kind"] == "engine")
    return f"{zlib.crc32(' '.join(ids).encode()):08x}"
