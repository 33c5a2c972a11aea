"""Objects with their own address: read, replaced, changed, deleted; never over another person's change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.actor import Actor
from controlplane.platform.api.base import ApiView, taken_why, why_of
from controlplane.platform.api.etags import expected_revision


class ObjectView(ApiView):
    """One object with a revision. Subclasses say which; PUT, PATCH and DELETE come with the mixins below."""

    has_etag = True
    rows: Callable[[Actor], Any]
    """The objects that an actor may see, as a query; the names in the address are its fields."""

    def thing(self, *_args: Any, **names: Any) -> Any:
        """Return the object that the address names, if the actor may see it; raises DoesNotExist."""
        return self.rows(self.actor).get(**names)

    def get(self, request: Request, **names: Any) -> Response:
        """Return the object."""
        return self.show(self.thing(**names))


class Changeable(ObjectView):
    """An object that PUT (all values) and PATCH (some) change."""

    changed: Callable[..., Any]
    """The service that changes the object and returns it."""

    def put(self, request: Request, **names: Any) -> Response:
        """Replace all values that can change; what is left out takes its default."""
        return self._change(**names)

    def patch(self, request: Request, **names: Any) -> Response:
        """Change the values given."""
        return self._change(**names)

    def _change(self, **names: Any) -> Response:
        thing = self.thing(**names)
        expected = expected_revision(self.request, thing)
        changes = self.body(thing)
        why = taken_why(changes)
        return self.show(self.changed(thing, changes, actor=self.actor, expected=expected, why=why))


class Deletable(ObjectView):
    """An object that can be deleted."""

    deleted: Callable[..., Any]
    """The service that deletes the object."""

    def remove(self, thing: Any, *, expected: int | None, why: str) -> None:
        """Call the service; a subclass may tell it more."""
        self.deleted(thing, actor=self.actor, expected=expected, why=why)

    def delete(self, request: Request, **names: Any) -> Response:
        """Delete the object."""
        thing = self.thing(**names)
        self.remove(thing, expected=expected_revision(request, thing), why=why_of(request))
        return Response(status=204)
