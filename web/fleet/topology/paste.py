"""Registers many engines at once: paste or upload, check the preview, correct lines, register the valid ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from django.core import signing
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from controlplane.fleet.engine_paste import (
    FIELDS,
    MAX_LINE_CHARS,
    MAX_LINES,
    PastedLine,
    UnreadablePasteError,
    decode_upload,
    header_of,
    parse_lines,
    split_lines,
)
from controlplane.fleet.engine_paste_preview import apply, preview
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import Actor
from controlplane.platform.format import count
from controlplane.platform.resource.declared_field import declaration_of
from controlplane.platform.resource.field_text import text_of
from web.fleet.topology.form import MAX_WHY
from web.fleet.topology.page import NOTE, changeable_pools, topology_pools
from web.shell.console_request import console_actor
from web.shell.frame import shell_context

_SALT = "topology-paste"
_SHOWN_S = 3600


@require_http_methods(["GET", "HEAD", "POST"])
def topology_paste(request: HttpRequest) -> HttpResponse:
    """Show the empty form; on POST show the preview, or register the valid lines of the last preview."""
    actor = console_actor(request)
    pools = changeable_pools(actor, topology_pools(actor))
    if not pools:
        error = "This requires the role operator in a pool; ask an admin under Access."
        return _page(request, pools, error=error, status=403)
    if request.method != "POST":
        return _page(request, pools)
    try:
        texts = _texts(request)
        if not texts:
            raise UnreadablePasteError("The list is empty. Paste one engine per line, or choose a file.")
    except UnreadablePasteError as error:
        return _page(request, pools, error=str(error), status=422)
    lines = parse_lines(texts)
    if request.POST.get("do") == "apply":
        return _apply(request, actor, pools, texts, lines)
    return _preview(request, actor, pools, texts, lines)


def _texts(request: HttpRequest) -> list[str]:
    """Return the lines from the upload, the text field, or the corrected preview."""
    upload = request.FILES.get("file")
    if upload is not None and not isinstance(upload, list):
        return split_lines(decode_upload(upload.read()))
    if "line" in request.POST:
        return split_lines("\n".join([request.POST.get("header", ""), *request.POST.getlist("line")]))
    return split_lines(request.POST.get("text", ""))


def _preview(
    request: HttpRequest,
    actor: Actor,
    pools: Sequence[Pool],
    texts: Sequence[str],
    lines: Sequence[PastedLine],
    note: str = "",
) -> HttpResponse:
    pool = request.POST.get("pool", "")[:64]
    return _list(request, pools, texts, preview(lines, pool, actor=actor), pool, note)


def _apply(
    request: HttpRequest, actor: Actor, pools: Sequence[Pool], texts: Sequence[str], lines: Sequence[PastedLine]
) -> HttpResponse:
    pool = request.POST.get("pool", "")[:64]
    shown = _shown(request, pool)
    if shown is None:
        note = "Nothing was registered: the pool changed, or the preview is over an hour old. Review it."
        return _preview(request, actor, pools, texts, lines, note)
    fine = [line.text for line in lines if _digest(line.text) in shown]
    done = apply(lines, fine, pool, actor=actor, why=request.POST.get("why", "").strip()[:MAX_WHY])
    registered = len(done.engines)
    note = (
        f"{count(registered, 'engine')} registered; {'preflight running' if registered == 1 else 'preflights running'}."
    )
    if not done.lines:
        request.session[NOTE] = note
        return HttpResponseRedirect(reverse("engines"))
    note = f"{note if registered else 'No engine was registered.'} {count(len(done.lines), 'line')} left below."
    return _list(request, pools, texts, done.lines, pool, note)


def _list(
    request: HttpRequest,
    pools: Sequence[Pool],
    texts: Sequence[str],
    lines: Sequence[PastedLine],
    pool: str,
    note: str = "",
) -> HttpResponse:
    fine = [line.text for line in lines if line.fine]
    # Signed: the form comes back from the browser, and may register only lines that a preview has shown.
    shown = signing.dumps({"pool": pool, "lines": [_digest(text) for text in fine]}, salt=_SALT, compress=True)
    bad = len(lines) - len(fine)
    summary = f"{count(len(fine), 'engine')} can be registered" + (
        f"; {count(bad, 'line')} {'needs' if bad == 1 else 'need'} a change." if bad else "."
    )
    columns = [name for name in FIELDS if any(name in line.engine for line in lines if line.engine)]
    return _page(
        request,
        pools,
        titles=[declaration_of(FIELDS[name]).title for name in columns],
        lines=[(line, _cells(line, columns)) for line in lines],
        header=header_of(texts),
        fine=len(fine),
        fine_words=count(len(fine), "engine"),
        shown=shown,
        pool=pool,
        summary=summary,
        note=note,
        why=request.POST.get("why", "")[:MAX_WHY],
    )


def _cells(line: PastedLine, columns: Sequence[str]) -> list[str]:
    given = line.engine or {}
    return [text_of(FIELDS[name], given[name]) if name in given else "—" for name in columns]


def _shown(request: HttpRequest, pool: str) -> frozenset[str] | None:
    """Return the digests of the lines that the preview showed as valid for this pool; None if unknown."""
    try:
        seen = signing.loads(request.POST.get("shown", ""), salt=_SALT, max_age=_SHOWN_S)
    except signing.BadSignature:
        return None
    return frozenset(seen["lines"]) if seen["pool"] == pool else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _page(request: HttpRequest, pools: Sequence[Pool], *, status: int = 200, **more: Any) -> HttpResponse:
    context = {
        "pools": pools,
        "columns": list(FIELDS),
        "limit": MAX_LINES,
        "max_line": MAX_LINE_CHARS,
        "text": request.POST.get("text", ""),
        "pool": request.POST.get("pool", request.GET.get("pool", "")),
    }
    page = shell_context(request, page="Engines", **(context | more))
    return render(request, "fleet/topology/paste.html", page, status=status)
