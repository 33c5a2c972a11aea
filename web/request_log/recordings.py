"""The Recordings page under Trials: stored recordings, and forms to record a window or upload a trace."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.platform.format import NARROW_SPACE, byte_size, duration, moment, percent, rate
from controlplane.platform.role import Role
from controlplane.platform.roles import may, may_somewhere
from controlplane.platform.search_filter import UnreadableFilterError
from controlplane.request_log.api.recordings import packed_trace
from controlplane.request_log.decision_search import unix_ms
from controlplane.request_log.models.recording import Origin, Recording
from controlplane.request_log.recordings.kept_traces import RecordingGoneError, recording_store
from controlplane.request_log.recordings.lifecycle import (
    MAX_NAME,
    NoRoomError,
    delete_recording,
    record_window,
    recorded_words,
    upload_recording,
    visible_recordings,
)
from controlplane.request_log.recordings.upload import MAX_UPLOAD_BYTES, BadTraceError
from controlplane.request_log.store.segments import recorded_span
from web.shell.console_request import asked, console_actor, go, listed, row_number, sent, typed_fields
from web.shell.form_field import SELECT, FieldOption, FormField, filled, general_problem
from web.shell.frame import shell_context
from web.shell.no_role import lacks_role
from web.shell.rejection import FormRejection, attempted
from web.shell.shown_pools import chosen_pool, needed_role, operated_pools

ADDRESS = "/trials/recordings"
WINDOW, UPLOAD = "window", "upload"
SAID = {"kept": "Recording kept.", "deleted": "Recording deleted; results based on it are kept."}
_UNKNOWN = "—"


@require_http_methods(["GET", "HEAD", "POST"])
def recordings(request: HttpRequest) -> HttpResponse:
    """List the recordings; on POST record a window or store an uploaded trace."""
    if request.method != "POST":
        return _page(request, creating=asked(request, "new"))
    kind = sent(request, "kind")
    made = attempted(lambda: _made(request, kind, console_actor(request)), NoRoomError)
    if isinstance(made, FormRejection):
        return _page(request, made, creating=kind)
    return go(ADDRESS, recording=str(made.pk), said="kept")


@require_POST
def delete(request: HttpRequest, recording_id: int) -> HttpResponse:
    """Delete a recording."""
    actor = console_actor(request)
    recording = get_object_or_404(visible_recordings(actor), pk=recording_id)
    done = attempted(lambda: delete_recording(recording, actor=actor, why=sent(request, "why")))
    if isinstance(done, FormRejection):
        return _page(request, done)
    return go(ADDRESS, said="deleted")


@require_safe
def download(request: HttpRequest, recording_id: int) -> HttpResponse:
    """Return the recording's trace."""
    recording = get_object_or_404(visible_recordings(console_actor(request)), pk=recording_id)
    try:
        return packed_trace(recording, recording_store().packed(recording.key))
    except RecordingGoneError as error:
        raise Http404(str(error)) from error


def _made(request: HttpRequest, kind: str, actor: Actor) -> Recording:
    pool, name, why = chosen_pool(actor, sent(request, "pool")), sent(request, "name"), sent(request, "why")
    if pool is None:
        raise problem("pool", "No such pool.")
    if kind == UPLOAD:
        file = request.FILES.get("trace")
        if not isinstance(file, UploadedFile):
            raise problem("trace", "Choose a file.")
        try:
            return upload_recording(pool, file, actor=actor, name=name or str(file.name or "")[:MAX_NAME], why=why)
        except BadTraceError as error:
            raise InvalidFieldsError(_field_problems(error)) from error
    return record_window(pool, _time(request, "begins_at"), _time(request, "ends_at"), actor=actor, name=name, why=why)


def _time(request: HttpRequest, name: str) -> Any:
    try:
        ms = unix_ms("It", sent(request, name))
    except UnreadableFilterError as error:
        raise problem(name, str(error)) from error
    return timezone.datetime.fromtimestamp(ms / 1000, timezone.get_default_timezone())


def _field_problems(error: BadTraceError) -> list[FieldProblem]:
    lines = "; ".join(f"{item.path}: {item.message}" if item.path else item.message for item in error.problems[:10])
    return [FieldProblem("trace", f"{error} {lines}")]


def _page(request: HttpRequest, rejection: FormRejection | None = None, *, creating: str = "") -> HttpResponse:
    now, actor = timezone.now(), console_actor(request)
    page = listed(request, visible_recordings(actor))
    problems = rejection.problems if rejection else ()
    opened = visible_recordings(actor).filter(pk=row_number(asked(request, "recording"))).first()
    may_change = opened is not None and may(actor, Role.OPERATOR, opened.pool)
    needed = needed_role(request, actor) if creating in (WINDOW, UPLOAD) else ""
    if opened is not None and "delete" in request.GET and not may_change:
        needed = f"This requires the role operator in pool {opened.pool.slug}."
    if needed:
        return lacks_role(request, "Policies", needed, ADDRESS)
    fields = _fields(request, actor, creating, now) if creating else []
    typed = typed_fields(request)
    context = shell_context(
        request,
        page="Policies",
        tab="recordings",
        rows=[_row(item, now) for item in page.object_list],
        paging=page,
        keep="",
        recorded=recorded_words(),
        creating=creating if creating in (WINDOW, UPLOAD) else "",
        opened=None if opened is None or creating else _row(opened, now),
        may_change=may_change,
        may_new=may_somewhere(actor, Role.OPERATOR),
        deleting="delete" in request.GET,
        fields=filled(fields, typed, problems),
        trace_error=next((item.message for item in problems if item.path == "trace"), ""),
        problem=general_problem([*fields, FormField("trace", "")], problems),
        upload_mib=MAX_UPLOAD_BYTES >> 20,
        said=SAID.get(asked(request, "said"), ""),
    )
    return render(request, "request_log/recordings.html", context, status=rejection.status if rejection else 200)


def _fields(request: HttpRequest, actor: Actor, kind: str, now: Any) -> list[FormField]:
    pools = operated_pools(actor)[:100]
    options = tuple(FieldOption(pool.slug, pool.name) for pool in pools)
    first = pools[0].slug if pools else ""
    pool = FormField("pool", "Pool", SELECT, options=options, chosen=(asked(request, "pool") or first,))
    named = "Optional; without a name, it is named after pool and window."
    name = FormField("name", "Name", help=named, chosen=(asked(request, "name"),), limit=MAX_NAME)
    why = FormField("why", "Why", help="Optional; for the audit.")
    if kind == UPLOAD:
        return [pool, name, why]
    form = "%Y-%m-%dT%H:%M:%S"
    recorded = recorded_span()
    since = now - timedelta(minutes=15)
    if recorded is not None:
        since = max(since, timezone.datetime.fromtimestamp(recorded[0], UTC))
    begins = asked(request, "begins_at") or since.strftime(form)
    ends = asked(request, "ends_at") or now.strftime(form)
    return [
        pool,
        FormField("begins_at", "From", help="First arrival, in UTC.", chosen=(begins,), required=True, limit=40),
        FormField("ends_at", "To", help="Arrivals before this time.", chosen=(ends,), required=True, limit=40),
        name,
        why,
    ]


def _arrivals(statistics: dict[str, Any]) -> dict[str, str] | None:
    """Return the line of arrivals over the span, and the highest rate; None for recordings that have no counts."""
    counts, span_s = statistics.get("arrivals") or [], float(statistics.get("span_s") or 0)
    if not counts or span_s <= 0:
        return None
    most, width = max(counts), 100 / len(counts)
    line = " ".join(f"{(at + 0.5) * width:.1f},{100 - 96 * number / most:.1f}" for at, number in enumerate(counts))
    return {"points": line, "peak": f"{rate(most * len(counts) / span_s)}{NARROW_SPACE}/s"}


def _counted(recording: Recording, name: str) -> str:
    """Return a count of outcomes. Uploads without first tokens have none, and earlier versions count them as late."""
    statistics = recording.statistics
    has_outcomes = "failed" in statistics and (recording.origin == Origin.WINDOW or statistics.get("answered"))
    known = statistics.get(name) if has_outcomes else None
    return _UNKNOWN if known is None else f"{known:,}"


def _row(recording: Recording, now: Any) -> dict[str, Any]:
    statistics = recording.statistics
    p90, hits = statistics.get("ttft_p90_s"), statistics.get("hit_rate")
    return {
        "recording": recording,
        "at": moment(recording.created_at, now),
        "origin": "window of traffic" if recording.origin == Origin.WINDOW else "uploaded",
        "author": recording.author.get_username() if recording.author else "the API",
        "span": duration(float(statistics.get("span_s") or 0)),
        "requests": f"{recording.requests:,}",
        "arrivals": _arrivals(statistics),
        **{name: f"{statistics.get(name) or 0:,}" for name in ("sessions", "tenants", "prompt_tokens")},
        **{name: _counted(recording, name) for name in ("late", "failed", "rejected", "unread")},
        "versions": ", ".join(f"v{item}" for item in statistics.get("policy_versions") or []),
        "engines": statistics.get("engines") or 0,
        "p90": _UNKNOWN if p90 is None else duration(p90),
        "hits": _UNKNOWN if hits is None else percent(hits),
        "size": byte_size(recording.file_bytes),
    }
