"""Each field of each resource is on every surface that its declaration promises: API, form, CSV, paste, audit."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import models
from django.http import QueryDict
from rest_framework import serializers

from controlplane.access.resources import GROUP_GRANTS, KEYS, PEOPLE, TENANTS
from controlplane.fleet.engine_paste import parse_lines, split_lines
from controlplane.fleet.resources import ENGINES, POOLS, REGIONS, SERVICES
from controlplane.notifications.changing import CHANNELS, ROUTES, SILENCES
from controlplane.objectives.objective import OBJECTIVES
from controlplane.platform.api.resource_bodies import change_body, new_body
from controlplane.platform.audit_values import audit_values
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.resource.csv_text import cell_text, csv_of
from controlplane.platform.resource.declared_field import (
    FieldAccess,
    declaration_of,
    fields_of,
    settable_fields,
    shown_fields,
)
from controlplane.platform.resource.field_text import read_texts, texts_of
from controlplane.platform.resource.resource import Resource
from controlplane.policies.resources import POLICIES
from controlplane.usage.budgets import BUDGETS, PRICES
from tests.controlplane.conftest import bus
from tests.controlplane.platform.api.conftest import shared_world, world
from tests.controlplane.platform.api.world import Api, World
from web.shell.resource_form import facts, form_fields, typed_changes, typed_values

__all__ = ["bus", "shared_world", "world"]

pytestmark = pytest.mark.django_db
RESOURCES = [
    REGIONS, POOLS, ENGINES, TENANTS, KEYS, POLICIES, SERVICES, GROUP_GRANTS, BUDGETS, PRICES, CHANNELS, ROUTES,
    SILENCES, OBJECTIVES, PEOPLE,
]  # fmt: skip
every_resource = pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.noun)


def first(resource: Resource) -> Any:
    return resource.model._default_manager.order_by("pk").first()


def test_every_model_with_declared_fields_is_tested_here() -> None:
    declared = {model for model in apps.get_models() if settable_fields(model, creating=True)}
    # A person declares the fields of the account that it inherits.
    assert declared - {User} == {resource.model for resource in RESOURCES}


@every_resource
def test_every_settable_field_has_a_title(resource: Resource) -> None:
    titles = [declaration_of(field).title for field in settable_fields(resource.model, creating=True).values()]
    assert all(titles)
    assert len(set(titles)) == len(titles)


@every_resource
def test_api_accepts_and_shows_every_field(resource: Resource, world: World) -> None:
    model = resource.model
    assert set(change_body(model)().fields) == {*settable_fields(model), "why"}
    assert set(new_body(model)().fields) == {*settable_fields(model, creating=True), "why"}
    (row, *_) = Api(world).get(resource.noun).json()["results"]
    assert set(shown_fields(model)) <= set(row)
    hidden = [field.name for field in fields_of(model) if declaration_of(field).access is FieldAccess.HIDDEN]
    assert not set(hidden) & set(row)


@every_resource
def test_an_answer_of_the_api_is_a_body_that_changes_nothing(resource: Resource, world: World) -> None:
    api, thing = Api(world), first(resource)
    path = f"{resource.noun}/{getattr(thing, thing.public_id_field)}"
    shown = api.get(path).json()
    body = {name: shown[name] for name in settable_fields(resource.model)}
    assert api.change("PUT", path, body).json() == shown


@every_resource
def test_a_number_set_by_the_api_is_on_every_surface(resource: Resource, world: World) -> None:
    thing = first(resource)
    path = f"{resource.noun}/{getattr(thing, thing.public_id_field)}"
    fields = settable_fields(resource.model, creating=True)
    for name, field in settable_fields(resource.model).items():
        if not isinstance(field, models.IntegerField | models.FloatField):
            continue
        assert Api(world).change("PATCH", path, {name: 7}).json()[name] == 7
        thing.refresh_from_db()
        (control,) = form_fields({name: field}, thing)
        assert (control.value, dict(facts({name: field}, thing))[control.label][:1]) == ("7", "7")
        assert dict(zip(*csv.reader(io.StringIO(csv_of([thing], fields))), strict=True))[name] == "7"
        event = AuditEvent.objects.filter(object_id=getattr(thing, thing.public_id_field)).latest("pk")
        assert event.after[name] == 7 != event.before[name]


@every_resource
def test_form_shows_every_field_and_reads_its_own_values_as_no_change(resource: Resource, world: World) -> None:
    thing, fields = first(resource), settable_fields(resource.model)
    controls = form_fields(fields, thing)
    assert [control.name for control in controls] == list(fields)
    posted = QueryDict(mutable=True)
    for control in controls:
        posted.setlist(control.name, list(control.chosen))
    posted.update({f"was_{name}": text for name, text in texts_of(thing, fields).items()})
    values, problems = typed_values(fields, posted)
    assert problems == []
    assert typed_changes(values, fields, posted) == {}


@every_resource
def test_csv_has_every_field_and_reads_back(resource: Resource, world: World) -> None:
    thing, fields = first(resource), settable_fields(resource.model, creating=True)
    ((header, cells),) = [tuple(csv.reader(io.StringIO(csv_of([thing], fields))))]
    row = dict(zip(header, map(cell_text, cells), strict=True))
    assert header == list(fields)
    values, problems = read_texts({name: field for name, field in fields.items() if row[name]}, row)
    assert problems == []
    for name, value in values.items():
        stored = getattr(thing, name)
        assert value == (getattr(stored, stored.public_id_field) if isinstance(stored, models.Model) else stored)


@every_resource
def test_audit_records_every_shown_field_and_no_hidden_one(resource: Resource, world: World) -> None:
    recorded = audit_values(first(resource))
    assert set(recorded) == set(shown_fields(resource.model))


def test_spreadsheets_evaluate_no_exported_text() -> None:
    fields = settable_fields(POOLS.model)
    text = csv_of(
        [POOLS.model(name="=1+1", weight=1, served_model="m", region_id=1, policy_id=1)], {"name": fields["name"]}
    )
    assert text == "name\n'=1+1\n"
    assert cell_text("'=1+1") == "=1+1"


def test_exported_engines_can_be_pasted(world: World) -> None:
    engine = world.engines["a"]
    (line,) = parse_lines(split_lines(csv_of([engine], ENGINES.created_fields)))
    assert line.problems == ()
    assert line.engine is not None
    for name, text in texts_of(engine, ENGINES.created_fields).items():
        assert not text or str(line.engine[name]).removesuffix(".0") == text


@every_resource
def test_serializer_fields_state_the_declared_help(resource: Resource) -> None:
    for name, field in settable_fields(resource.model).items():
        shown: serializers.Field = change_body(resource.model)().fields[name]
        assert str(shown.help_text or "").startswith(declaration_of(field).help)
