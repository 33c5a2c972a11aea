"""Objects at an address of their own: read, changed whole or in part, deleted; never over somebody else's change."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.api.base import ApiView, taken_why, why_of
from controlplane.platform.api.etags import expected_revision


class ObjectView(ApiView):
    """One object with a revision. Subclasses say which; PUT, PATCH and DELETE come with the mixins below."""

    has_etag = True

    def thing(self, *args: Any, **names: Any) -> Any:
        """Return the object that the address names, if the actor may see it; raises DoesNotExist."""
        raise TypeError(f"{type(self).__name__} does not say which object")

    def get(self, request: Request, **names: Any) -> Response:
        """Return the object."""
        return self.show(self.thing(**names))


class Changeable(ObjectView):
    """An object that PUT (all values) and PATCH (some) change."""

    def change(self, thing: Any, changes: dict[str, Any], *, expected: int | None, why: str) -> Any:
        """Call the service that changes the object, and return it."""
        raise TypeError(f"{type(self).__name__} does not say how it changes")

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
        return self.show(self.change(thing, changes, expected=expected, why=why))


class Deletable(ObjectView):
    """An object that can be deleted."""

    def remove(self, thing: Any, *, expected: int | None, why: str) -> None:
        """Call the service that deletes the object."""
        raise TypeError(f"{type(self).__name__} does not say how it is deleted")

    def delete(self, request: Request, **names: Any) -> Response:
        """Delete the object."""
        thing = self.thing(**names)
        self.remove(thing, expected=expected_revision(request, thing), why=why_of(request))
        return Response(status=204)
