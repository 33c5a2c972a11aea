"""Shared code of the management API's views: the caller, its permissions, and the format of responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import getdoc
from types import MappingProxyType
from typing import Any, ClassVar

from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import MethodNotAllowed, NotAuthenticated
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView
from typing_extensions import override

from controlplane.platform.actor import API, Actor, machine
from controlplane.platform.api.error_answers import answer_error
from controlplane.platform.api.etags import etag_of, expected_revision, is_unchanged
from controlplane.platform.api.idempotency import answer_once
from controlplane.platform.api.key_authentication import KeyAuthentication
from controlplane.platform.api.listing import Listing
from controlplane.platform.api.operation_schema import OperationSchema
from controlplane.platform.api.problem import ApiRenderer, ProblemError
from controlplane.platform.api.strict_json import MergePatchParser, StrictJsonParser
from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.request_actor import actor_of, request_id_of
from controlplane.platform.resource.resource import Resource
from controlplane.platform.role import Role
from controlplane.platform.roles import require, require_somewhere

_SAFE = ("GET", "HEAD", "OPTIONS")

Shape = type[BaseSerializer[Any]]


def by_method(**declared: Any) -> Mapping[str, Any]:
    """Return a view's declarations as a mapping from method to value."""
    return MappingProxyType(declared)


class ApiView(APIView):
    """One endpoint. Callers without any role are rejected, and methods that are not declared do not exist."""

    # Keys first: SessionAuthentication requires a CSRF token, which a program does not have.
    authentication_classes = (KeyAuthentication, SessionAuthentication)
    # `initial` checks the caller, and the services check what it changes.
    permission_classes = ()
    parser_classes: ClassVar[tuple[type[BaseParser], ...]] = (StrictJsonParser, MergePatchParser)
    renderer_classes = (ApiRenderer,)
    http_method_names = ("get", "head", "post", "put", "patch", "delete")
    schema: ClassVar[OperationSchema | None] = OperationSchema()
    """OpenAPI schema generator; None: not in the OpenAPI document."""

    noun: ClassVar[str] = ""
    """Subject of the view, which groups the operations in the OpenAPI document."""
    shape: ClassVar[Shape]
    """Serializer of the objects."""
    bodies: ClassVar[Mapping[str, Shape]] = MappingProxyType({})
    """Serializer of the request body, by method."""
    answers: ClassVar[Mapping[str, tuple[int, Any]]] = MappingProxyType({})
    """Status and serializer of the response, by method. Default: `shape` with 200, or 201 for a POST to a list."""
    says: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Description by method, for methods that several views share."""
    changes_need: ClassVar[Role] = Role.OPERATOR
    """Minimum role, in at least one pool, for any change. Services check permissions in detail."""
    whole_fleet: ClassVar[bool] = False
    """Whether the objects belong to no pool. Viewing them then requires a role everywhere."""
    listing: ClassVar[Listing | None] = None
    parameters: ClassVar[tuple[Any, ...]] = ()
    """Query parameters (OpenApiParameters) in addition to the parameters of a list."""
    has_etag: ClassVar[bool] = False
    only_asks: ClassVar[bool] = False
    """Whether its POST changes nothing, so that it may be repeated."""
    answers_later: ClassVar[bool] = False
    """Whether its POST may respond with 202: done, but not stored yet."""
    shown_once: ClassVar[frozenset[str]] = frozenset()
    """Members of a response that must not appear in repeated responses."""

    @override
    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Reject a caller that may not use the endpoint."""
        super().initial(request, *args, **kwargs)
        if not request.user.is_authenticated and not isinstance(request.auth, ApiKey):
            raise NotAuthenticated
        (require if self.whole_fleet else require_somewhere)(self.actor, Role.VIEWER)
        if request.method not in _SAFE:
            method = str(request.method).lower()
            handler = getattr(self, method, None)
            if handler is None:
                raise MethodNotAllowed(str(request.method))
            require_somewhere(self.actor, self.changes_need)
            if method == "post" and not self.only_asks:
                # Dispatch calls this next: a POST happens once per Idempotency-Key, and no view can forget it.
                setattr(self, method, partial(self._once, handler))

    @override
    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Mark the response as private to its caller. Caches may store it only to revalidate it."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        answer["Cache-Control"] = "private, no-cache"
        return answer

    @override
    def get_exception_handler(self) -> Any:
        """Return the handler that converts exceptions into problems."""
        return answer_error

    @property
    def actor(self) -> Actor:
        """Return the actor of the request."""
        key = self.request.auth
        if isinstance(key, ApiKey):
            return machine(key, request_id=request_id_of(self.request._request))
        return actor_of(self.request._request, API)

    @property
    def caller(self) -> str:
        """Return a unique name of the caller."""
        key = self.request.auth
        return f"key:{key.key_id}" if isinstance(key, ApiKey) else f"person:{self.request.user.pk}"

    def represented(self, thing: Any) -> Any:
        """Return an object in the API's format."""
        return self.shaped(thing).data

    def shaped(self, thing: Any, *, many: bool = False, shape: Shape | None = None) -> Any:
        """Return the serializer of one or several objects, with the actor in its context."""
        return (shape or self.shape)(thing, many=many, context={"actor": self.actor})

    def body(self, current: Any = None) -> dict[str, Any]:
        """Return the validated body. A change may include read-only values if they equal the stored ones."""
        method = str(self.request.method)
        data = self.request.data
        form = self.bodies[method]
        if current is not None and isinstance(data, dict):
            data = self._without_fixed(data, current, form)
        checked = form(data=data, partial=method == "PATCH")
        checked.is_valid(raise_exception=True)
        return dict(checked.validated_data)

    def _without_fixed(self, data: dict[str, Any], current: Any, form: Shape) -> dict[str, Any]:
        changeable = form().fields
        shown = self.represented(current)
        fixed = [name for name in data if name in shown and name not in changeable]
        wrong = [FieldProblem(name, "Cannot be changed here.") for name in fixed if data[name] != shown[name]]
        if wrong:
            raise ProblemError(400, "Some values cannot be changed; see errors.", wrong)
        return {name: value for name, value in data.items() if name not in fixed}

    def show(self, thing: Any, status: int = 200, *, shape: Shape | None = None) -> Response:
        """Respond with one object and its ETag, if any, or with 304 if the client's version is current."""
        if not self.has_etag:
            return Response(self.shaped(thing, shape=shape).data, status=status)
        etag = etag_of(thing)
        if self.request.method in ("GET", "HEAD") and is_unchanged(self.request, etag):
            return Response(status=304, headers={"ETag": etag})
        return Response(self.shaped(thing, shape=shape).data, status=status, headers={"ETag": etag})

    def show_page(self, rows: Any) -> Response:
        """Respond with the requested page of rows."""
        if self.listing is None:
            raise TypeError(f"{type(self).__name__} declares no listing")
        page = self.listing.page(self.request, rows)
        following = None
        if page.next_cursor:
            query = self.request.query_params.copy()
            query["cursor"] = page.next_cursor
            following = f"{self.request.path}?{query.urlencode()}"
        return Response({"results": self.shaped(page.rows, many=True).data, "next": following})

    def _once(self, handler: Callable[..., Response], *args: Any, **kwargs: Any) -> Response:
        return answer_once(self.request, self.caller, self.shown_once, partial(handler, *args, **kwargs))


def taken_why(body: dict[str, Any]) -> str:
    """Remove the reason from a validated body and return it."""
    return str(body.pop("why", ""))


def why_of(request: Request) -> str:
    """Return the reason for a DELETE from the query parameter `why`, because a DELETE has no body."""
    return request.query_params.get("why", "")[:200]


class Objects(ApiView):
    """Base class for all endpoints of one kind of object. A resource declares what its endpoints share."""

    resource: ClassVar[Resource | None] = None
    rows: Callable[[Actor], Any]
    """Function that returns the objects that an actor may see, as a query."""
    field: ClassVar[str] = ""
    """The field that identifies an object in the address; empty: each name in the address is a field."""

    @override
    def __init_subclass__(cls) -> None:
        declared = vars(cls).get("resource")
        if isinstance(declared, Resource):
            cls.noun, cls.changes_need, cls.whole_fleet = declared.noun, declared.changes_need, declared.whole_fleet
            cls.has_etag = True
            for service in ("rows", "created", "changed", "deleted"):
                setattr(cls, service, staticmethod(getattr(declared, service)))


class Listed(Objects):
    """Lists all objects of a kind, filtered by `listing`. The docstring of a subclass describes the GET."""

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "says" not in vars(cls):
            cls.says = by_method(GET=getdoc(cls))

    def get(self, request: Request) -> Response:
        """List the objects."""
        return self.show_page(self.rows(self.actor))


class Creatable(Listed):
    """A list with a POST that creates an object."""

    created: Callable[..., Any]
    """The service that creates an object from a body and returns it."""

    def post(self, request: Request) -> Response:
        """Create an object."""
        return self.show(self.created(**self.body(), actor=self.actor), 201)


class _OfObject(Objects):
    def thing(self, **names: Any) -> Any:
        """Return the object at this address, if the actor may see it. Raises DoesNotExist."""
        return self.rows(self.actor).get(**(dict.fromkeys((self.field,), *names.values()) if self.field else names))


class ObjectView(_OfObject):
    """One object. Subclasses add PUT, PATCH, and DELETE."""

    def get(self, request: Request, **names: Any) -> Response:
        """Return the object."""
        return self.show(self.thing(**names))


class Changeable(ObjectView):
    """An object with a revision that can be changed by PUT (all values) and PATCH (some values)."""

    has_etag = True
    changed: Callable[..., Any]
    """The service that changes the object and returns it."""

    def put(self, request: Request, **names: Any) -> Response:
        """Replace all writable values. An omitted value gets its default."""
        return self._change(**names)

    def patch(self, request: Request, **names: Any) -> Response:
        """Change the given values."""
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
        """Call the service. Subclasses may pass more arguments."""
        self.deleted(thing, actor=self.actor, expected=expected, why=why)

    def delete(self, request: Request, **names: Any) -> Response:
        """Delete the object."""
        thing = self.thing(**names)
        self.remove(thing, expected=expected_revision(request, thing), why=why_of(request))
        return Response(status=204)


class Verb(_OfObject):
    """A POST action on one object. The docstring of a subclass describes the action.

    For an object with an ETag, If-Match is optional.
    """

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.says = by_method(POST=getdoc(cls))

    verb: Callable[..., Any]
    """The service. It receives the object, the actor, the reason, and the other values of the body."""

    def post(self, request: Request, **names: Any) -> Response:
        """Carry out the action."""
        thing = self.thing(**names)
        asked: dict[str, Any] = {"actor": self.actor}
        if self.has_etag:
            asked["expected"] = expected_revision(request, thing, required=False)
        asked |= self.body()
        return self.show(self.carry_out(thing, **asked), self.answers.get("POST", (200,))[0])

    def carry_out(self, thing: Any, **asked: Any) -> Any:
        """Call the service, and return the object to show: its new state, or the result."""
        done = self.verb(thing, **asked)
        return thing if done is None or isinstance(done, bool) else done
