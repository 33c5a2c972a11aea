"""The what-if pages: the list with progress, the form, and each result in words, figures, and charts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from typing_extensions import override

from controlplane.fleet.models.pool import Pool
from controlplane.job_runs import control as job_control
from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.format import moment
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.request_log.recordings.lifecycle import NoRoomError, delete_recording
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.whatif.conditions import AUTO
from controlplane.trials.whatif.finding import headline
from controlplane.trials.whatif.lifecycle import (
    TooManyWaitError,
    WhatIfStatus,
    start_whatif,
    status_of,
    statuses_of,
    visible_whatifs,
)
from controlplane.trials.whatif.result import TRUSTED_ERROR
from web.shell.console_request import asked, sent
from web.shell.form_field import FormField
from web.shell.rejection import FormRejection
from web.trials.trial_page import ADDRESS, TrialPages, sent_pool
from web.trials.whatif.figures import figure_rows, finding, worst_error
from web.trials.whatif.form import asked_from, is_window, whatif_fields
from web.trials.whatif.pictures import band_picture, distribution


class WhatIfPages(TrialPages):
    """The list of what-ifs, and the page of each what-if."""

    name, plural, address, action = "what-if", "What-ifs", ADDRESS, "Run"
    conflicts = (ConflictError, NoRoomError)

    @override
    def visible(self, actor: Actor) -> QuerySet[WhatIf]:
        return visible_whatifs(actor)

    @override
    def rows(self, whatifs: list[WhatIf], actor: Actor, now: datetime) -> dict[str, Any]:
        states = statuses_of(whatifs)
        return {
            "rows": [_row(state, now) for state in states],
            "waiting": sum(state.unfinished for state in states),
        }

    @override
    def fields(self, request: HttpRequest, owner: Pool, actor: Actor) -> Sequence[FormField]:
        return whatif_fields(actor, owner, asked(request, "draft"), asked(request, "recording"))

    @override
    def start(self, request: HttpRequest, actor: Actor) -> WhatIf:
        """Store the what-if. If that fails, delete a recording that was made only for it."""
        recording, draft, base, conditions = asked_from(request.POST, sent_pool(request, actor), actor)
        try:
            return start_whatif(recording, draft, base, conditions, actor=actor, why=sent(request, "why"))
        except (InvalidFieldsError, TooManyWaitError):
            if is_window(request.POST):
                delete_recording(recording, actor=actor, why="the what-if could not be started")
            raise

    @override
    def turn(self, request: HttpRequest, whatif: WhatIf, action: str, actor: Actor) -> object:
        """Cancel the what-if, or run it again if it has no result."""
        run = status_of(whatif).run
        if run is None:
            raise ConflictError("Its run was deleted; run a new what-if.")
        return (job_control.retry if action == "again" else job_control.cancel)(run, actor=actor)

    @override
    def shown(
        self, request: HttpRequest, whatif: WhatIf, actor: Actor, now: datetime, rejection: FormRejection | None
    ) -> dict[str, Any]:
        progress = status_of(whatif)
        return {
            "title": f"what-if {whatif.pk}",
            "about": f"Result {whatif.pk}, {whatif.pool.slug}",
            "running": progress.unfinished,
            "progress": progress,
            "percent_done": round(progress.share * 100),
            "at": moment(whatif.created_at, now),
            "author": whatif.author.get_username() if whatif.author else "the API",
            "policy": whatif.pool.policy.slug,
            "may_control": may(actor, Role.OPERATOR, whatif.pool),
            **_answer(progress),
        }


def _row(progress: WhatIfStatus, now: datetime) -> dict[str, Any]:
    """Return one row of the list; its `kind` is empty if there is no result."""
    whatif, result = progress.whatif, progress.result
    row = {"progress": progress, "at": moment(whatif.created_at, now)}
    if result is None:
        return row | {"kind": "", "words": progress.reason if not progress.unfinished else ""}
    summary = headline(result)
    return row | {"kind": summary.kind, "words": summary.title}


def _answer(progress: WhatIfStatus) -> dict[str, Any]:
    result, whatif = progress.result, progress.whatif
    if result is None:
        return {}
    actual = ("Actual",) if result.actual is not None else ()
    sides = (whatif.base_name, f"Draft, v{whatif.draft.number}")
    # With a baseline's placement, the draft is the version that decided the recorded requests.
    checked = result.draft if whatif.conditions.get("base_placement") else result.base
    return {
        "result": result,
        "finding": finding(result),
        "trusted_error": TRUSTED_ERROR,
        "worst": None if result.model_error is None else worst_error(checked, result.actual),
        "model_is_far": result.model_error is not None and result.model_error > TRUSTED_ERROR,
        "is_fitted": whatif.conditions.get("engine_model", AUTO) == AUTO and result.model_error is not None,
        "rows": figure_rows(result),
        "filling": result.requests - result.counted,
        "keys": (("draft", "Draft"), ("base", whatif.base_name), *(("actual", item) for item in actual)),
        "picture": distribution(result),
        "sides": (*actual, *sides),
        "bands": band_picture(result),
        "band_heads": ("Requests", "Actual", *sides),
    }


PAGES = WhatIfPages()
