"""`/api/v1/engines`."""

from __future__ import annotations

from time import time

from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.fleet.api.engine_shape import (
    BulkAnswer,
    BulkChange,
    EngineChange,
    EngineShape,
    NewEngine,
    StateChange,
)
from controlplane.fleet.engine_bulk import change_many
from controlplane.fleet.engine_lifecycle import delete_engine, set_desired_state
from controlplane.fleet.engine_reading import engine_reading
from controlplane.fleet.engine_registration import change_engine, register_engine
from controlplane.fleet.models.engine import DesiredState, Engine, EngineRole
from controlplane.fleet.visibility import visible_engines, visible_pools
from controlplane.platform.api.base import ApiView, by_method, taken_why
from controlplane.platform.api.changeable_object import Changeable, Deletable
from controlplane.platform.api.etags import expected_revision
from controlplane.platform.api.filters import contains, exact, one_of, truth
from controlplane.platform.api.listing import Listing
from controlplane.platform.field_problems import problem


class Engines(ApiView):
    """All engines, and new ones."""

    noun = "engines"
    shape = EngineShape
    bodies = by_method(POST=NewEngine)
    answers = by_method(POST=(201, EngineShape))
    has_etag = True
    listing = Listing(
        {
            "name": ("pool__slug", "name"),
            "registered_at": ("registered_at", "engine_id"),
            "engine_id": ("engine_id",),
        },
        "name",
        {
            "pool": exact("pool__slug", "Slug of the pool."),
            "region": exact("pool__region__slug", "Slug of the region."),
            "desired_state": one_of("desired_state", DesiredState.values, "Desired state."),
            "role": one_of("role", EngineRole.values, "Role."),
            "supervised": truth("supervised", "Whether Switchyard starts and stops its process."),
            "name": contains("name", "Part of the name."),
            "url": contains("url", "Part of the address."),
        },
    )

    def get(self, request: Request) -> Response:
        """List engines."""
        return self.show_page(visible_engines(self.actor))

    def post(self, request: Request) -> Response:
        """Register an engine."""
        body = self.body()
        pool = visible_pools(self.actor).filter(slug=body.pop("pool")).first()
        if pool is None:
            raise problem("pool", "No such pool.")
        return self.show(register_engine(pool, **body, actor=self.actor), 201)


class OneEngine(Changeable, Deletable):
    """One engine."""

    noun = "engines"
    shape = EngineShape
    rows = staticmethod(visible_engines)
    changed = staticmethod(change_engine)
    bodies = by_method(PUT=EngineChange, PATCH=EngineChange)
    answers = by_method(DELETE=(204, None))

    @override
    def remove(self, thing: Engine, *, expected: int | None, why: str) -> None:
        """Delete it, if it is empty."""
        reading = engine_reading(thing.engine_id, time())
        delete_engine(
            thing, actor=self.actor, in_flight=reading.in_flight, lost=reading.lost, expected=expected, why=why
        )


class EngineState(ApiView):
    """What is wanted of one engine: ready, draining, maintenance."""

    noun = "engines"
    shape = EngineShape
    bodies = by_method(POST=StateChange)
    has_etag = True

    def post(self, request: Request, *, engine_id: str) -> Response:
        """Say what is wanted; If-Match is heeded where it is sent."""
        engine = visible_engines(self.actor).get(engine_id=engine_id)
        expected = expected_revision(self.request, engine, required=False)
        body = self.body()
        state = DesiredState(body["state"])
        return self.show(set_desired_state(engine, state, actor=self.actor, expected=expected, why=taken_why(body)))


class EngineBulk(ApiView):
    """Several changes of engines at once."""

    noun = "engines"
    shape = EngineShape
    bodies = by_method(POST=BulkChange)
    answers = by_method(POST=(200, BulkAnswer))

    def post(self, request: Request) -> Response:
        """Carry out all operations, or none; with dry_run only say what would happen."""
        body = self.body()
        outcomes = change_many(body["operations"], actor=self.actor, dry_run=body["dry_run"], why=taken_why(body))
        return Response(BulkAnswer({"dry_run": body["dry_run"], "results": outcomes}).data)
