"""Views of stored objects: listed, made, read, changed, deleted, and what else is done to one; never over a change."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc
from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.platform.actor import Actor
from controlplane.platform.api.base import ApiView, by_method, taken_why, why_of
from controlplane.platform.api.etags import expected_revision


class _OfRows(ApiView):
    rows: Callable[[Actor], Any]
    """The objects that an actor may see, as a query."""


class Listed(_OfRows):
    """All objects of a kind, as `listing` says. The docstring of a subclass describes the GET."""

    @override
    def __init_subclass__(cls) -> None:
        if "says" not in vars(cls):
            cls.says = by_method(GET=getdoc(cls))

    def get(self, request: Request) -> Response:
        """List them."""
        return self.show_page(self.rows(self.actor))


class Creatable(Listed):
    """The same, and new ones."""

    created: Callable[..., Any]
    """The service that makes an object of a body and returns it."""

    def post(self, request: Request) -> Response:
        """Make one."""
        return self.show(self.created(**self.body(), actor=self.actor), 201)


class _OfObject(_OfRows):
    field: ClassVar[str] = ""
    """The field by which the address names an object; empty: each name in it is that of a field."""

    def thing(self, **names: Any) -> Any:
        """Return the object that the address names, if the actor may see it; raises DoesNotExist."""
        return self.rows(self.actor).get(**(dict.fromkeys((self.field,), *names.values()) if self.field else names))


class ObjectView(_OfObject):
    """One object; PUT, PATCH and DELETE come with the classes below."""

    def get(self, request: Request, **names: Any) -> Response:
        """Return the object."""
        return self.show(self.thing(**names))


class Changeable(ObjectView):
    """An object with a revision that PUT (all values) and PATCH (some) change."""

    has_etag = True
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
    """An object with a revision that can be deleted."""

    has_etag = True
    answers = by_method(DELETE=(204, None))
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


class Verb(_OfObject):
    """What a POST does to one object; the docstring of a subclass says what.

    Of an object with an ETag, If-Match is heeded where it is sent.
    """

    @override
    def __init_subclass__(cls) -> None:
        cls.says = by_method(POST=getdoc(cls))

    verb: Callable[..., Any]
    """The service; it gets the object, who asks, why, and what else the body says."""

    def post(self, request: Request, **names: Any) -> Response:
        """Do it."""
        thing = self.thing(**names)
        asked: dict[str, Any] = {"actor": self.actor}
        if self.has_etag:
            asked["expected"] = expected_revision(request, thing, required=False)
        asked |= self.body()
        return self.show(self.carry_out(thing, **asked), self.answers.get("POST", (200,))[0])

    def carry_out(self, thing: Any, **asked: Any) -> Any:
        """Call the service and return what is shown: the object as it then is, or what came of it."""
        done = self.verb(thing, **asked)
        return thing if done is None or isinstance(done, bool) else done
