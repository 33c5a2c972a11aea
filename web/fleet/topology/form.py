"""The drawer with the form that registers or changes an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import QueryDict

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.resource.field_text import texts_of
from web.shell.form_field import CHECKS, FieldOption, FormField, filled
from web.shell.resource_form import form_fields, merged

MAX_WHY = 200
CREATED, CHANGED = settable_fields(Engine, creating=True), settable_fields(Engine)
WHY = FormField("why", "Why", help="Optional; for the audit.", limit=MAX_WHY)
_THEN_READY = FormField(
    "then_ready", "", CHECKS, options=(FieldOption("on", "Serve as soon as the preflight passes"),), chosen=("on",)
)


def register_drawer(
    pools: Sequence[Pool], pool: str = "", posted: QueryDict | None = None, problems: Sequence[FieldProblem] = ()
) -> dict[str, Any]:
    """Return the form that registers an engine in one of `pools`; `posted` was rejected with `problems`."""
    choices = [FieldOption(one.slug, f"{one.region.name} / {one.name}, {one.served_model}") for one in pools]
    fields = [*form_fields(CREATED, options={"pool": choices}), WHY, _THEN_READY]
    typed = dict(posted.lists()) if posted else {}
    shown = filled(fields, typed or ({"pool": [pool], "then_ready": ["on"]} if pool else {}), problems)
    return {"kind": "form", "engine": None, "fields": shown, "problems": problem_lines(shown, problems)}


def change_drawer(
    engine: Engine, revision: int, posted: QueryDict | None = None, problems: Sequence[FieldProblem] = ()
) -> dict[str, Any]:
    """Return the form that changes an engine as it was at `revision`; `posted` was rejected with `problems`."""
    typed = dict(posted.lists()) if posted else {}
    stored = texts_of(engine, CHANGED)
    was = {name: posted.get(f"was_{name}", text) if posted else text for name, text in stored.items()}
    shown = filled([*form_fields(CHANGED, engine), WHY], typed, problems)
    drawer = {"kind": "form", "engine": engine, "fields": shown, "revision": revision}
    return drawer | {"was": was, "problems": problem_lines(shown, problems)}


def merge_drawer(theirs: Engine, posted: QueryDict) -> dict[str, Any]:
    """Return the form with the typed changes merged onto another person's, and a line for each changed field."""
    values, lines = merged(CHANGED, posted, texts_of(theirs, CHANGED))
    drawer = change_drawer(theirs, theirs.revision)
    shown = filled(drawer["fields"], values | {"why": posted.getlist("why")})
    return drawer | {"fields": shown, "conflict": lines}


def problem_lines(fields: Sequence[FormField], problems: Sequence[FieldProblem]) -> list[tuple[str, str]]:
    """Return all problems with the names of their fields, for the list at the top."""
    labels = {field.name: field.label for field in fields}
    return [
        (
            one.path if one.path in labels else "",
            f"{labels[one.path]}: {one.message}" if labels.get(one.path) else one.message,
        )
        for one in problems
    ]
