"""Any invalid input gets a 4xx that names the error, never a 5xx (R30)."""

from __future__ import annotations

import json

import pytest
from django.http import HttpResponse

from tests.controlplane.platform.api.request_examples import CHANGES, SAFE
from tests.controlplane.platform.api.test_role_matrix import VIEWS, dump, real
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db

BODIES = {
    "empty": b"",
    "not JSON": b"{",
    "deep lists": b"[" * 5000 + b"]" * 5000,
    "deep objects": b'{"name":' * 5000 + b"1" + b"}" * 5000,
    "a list": b"[1]",
    "a string": b'"x"',
    "null": b"null",
    "many members": json.dumps({f"k{n}": n for n in range(100_000)}).encode(),
    "a name of 1 MB": json.dumps({"x" * (1 << 20): 1}).encode(),
    "a value of 2 MB": json.dumps({"name": "x" * (2 << 20)}).encode(),
    "NaN": b'{"name": NaN}',
    "Infinity": b'{"speed": -Infinity}',
    "1e999": b'{"speed": 1e999}',
    "5,000 digits": b'{"number": ' + b"9" * 5000 + b"}",
    "a lone surrogate": b'{"name": "\\ud800"}',
    "NUL": b'{"name": "a\\u0000b"}',
    "bad UTF-8": b'{"name": "\xff"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"name": "x"}'.encode("utf-16"),
    "unknown members": b'{"__class__": "x", "pk": 1, "revision": 99}',
    "duplicate members": b'{"name": 1, "name": 2, "state": 3, "document": 4, "instead_of": []}',
    "wrong types": b'{"name": {}, "slug": [], "document": "x", "operations": {}, "state": null, "scopes": "x"}',
    "huge numbers": b'{"instead_of": 18446744073709551615, "number": 18446744073709551615, "speed": 1e308}',
    "line breaks": b'{"name": "a\\nb", "slug": "a\\r\\nb", "message": "x\\u2028y", "why": "\\u001b[31m"}',
    "markup": b'{"slug": "<script>alert(1)</script>", "name": 7, "document": {"<b>": 1}}',
}
UNREADABLE = {
    "not JSON", "deep lists", "deep objects", "many members", "a name of 1 MB", "a value of 2 MB", "NaN", "Infinity",
    "1e999", "5,000 digits", "a lone surrogate", "NUL", "bad UTF-8", "a byte order mark", "UTF-16", "duplicate members",
}  # fmt: skip
"""Bodies that parsers reject, before any view reads them."""
WRITES = [key for key in CHANGES if CHANGES[key].body is not None]
PARSED = {(VIEWS[name].parser_classes, method): (name, method) for name, method in reversed(WRITES)}
"""One write per parser and method."""


def sent_raw(
    api: Api, method: str, path: str, body: bytes, kind: str = "application/json", **more: str
) -> HttpResponse:
    return api.client.generic(method, f"/api/v1/{path}", data=body, content_type=kind, headers=more)


@pytest.mark.parametrize("key", WRITES, ids=" ".join)
def test_no_body_causes_a_server_error(world: World, key: tuple[str, str]) -> None:
    api, example = Api(world), CHANGES[key]
    path = real(world, example.path)
    headers = {"If-Match": api.get(path)["ETag"]} if example.guarded else {}
    before = dump()
    for name, body in BODIES.items():
        if name in UNREADABLE and key not in PARSED.values():
            continue
        answer = sent_raw(api, example.method, path, body, **headers)
        if name == "empty" and answer.status_code < 400:
            before = dump()
            continue
        assert 400 <= answer.status_code < 500, (name, answer.content[:300])
        assert answer["Content-Type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert problem["detail"]
        assert problem["request_id"]
    assert dump() == before


def test_oversized_and_nul_values_are_rejected_before_the_database_gets_them(world: World) -> None:
    """SQLite stores a NUL; PostgreSQL would raise an error."""
    api = Api(world)
    assert sent_raw(api, "POST", "regions", BODIES["a value of 2 MB"]).status_code == 413
    answer = sent_raw(api, "POST", "regions", BODIES["NUL"])
    assert (answer.status_code, "NUL" in answer.json()["detail"]) == (400, True)


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "multipart/form-data; boundary=x", ""],
)
def test_only_json_bodies_are_accepted(world: World, kind: str) -> None:
    for caller in ("admin", "admin_key"):
        api = Api(world, caller)
        answer = sent_raw(api, "POST", "regions", b'{"slug": "x", "name": "y"}', kind, **api.headers)
        assert answer.status_code == 415, answer.content


LISTS = [name for name in SAFE if getattr(VIEWS[name], "listing", None) is not None]
QUERIES = (
    "limit=0",
    "limit=-1",
    "limit=501",
    "limit=99999999999999999999",
    "limit=1e3",
    "limit=%00",
    "limit=٣",
    "ordering=password",
    "ordering=--slug",
    "ordering=",
    "cursor=x",
    "cursor=%00",
    "cursor=bnVsbA",
    "cursor=W1tdLFtdXQ",
    "cursor=" + "A" * 5000,
    "cursor=%ff%fe",
    "nonsense=1",
    "pool__slug=x",
    "limit=5&limit=x",
)


@pytest.mark.parametrize("name", LISTS)
def test_no_query_of_a_list_causes_a_server_error(world: World, name: str) -> None:
    api = Api(world)
    for query in QUERIES:
        answer = api.get(f"{real(world, SAFE[name][0])}?{query}")
        assert answer.status_code == 400, (query, answer.content)
        assert answer.json()["errors"][0]["path"] in {*query.replace("&", "=").split("=")}


def test_unknown_filter_error_lists_the_known_ones(api: Api) -> None:
    answer = api.get("engines?colour=red&desired_state=dozing")
    assert answer.status_code == 400
    errors = {error["path"]: error["message"] for error in answer.json()["errors"]}
    assert "pool" in errors["colour"]
    assert "draining" in errors["desired_state"]


@pytest.mark.parametrize(
    "path",
    [
        "engines/%00",
        "engines/..%2f..%2fetc",
        "engines/" + "x" * 65,
        "engines/e-a/",
        "engines/nobody",
        "policies/policy-a/versions/0",
        "policies/policy-a/versions/999999999999999999",
        "policies/policy-a/versions/9999999999999999999999",
        "jobs/999999999999999999",
        "nothing",
        "",
    ],
)
def test_unknown_address_is_a_problem_404(api: Api, path: str) -> None:
    answer = api.get(path)
    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer",
        "Bearer x",
        "Bearer hw_",
        "Bearer hw_" + "x" * 600,
        "Basic YTpi",
        "hw_abc",
        "Bearer hw_\xff",
        "bearer hw_unknown",
    ],
)
def test_invalid_credentials_are_a_problem_401(world: World, authorization: str) -> None:
    answer = Api(world, None).get("engines", Authorization=authorization)
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_unacceptable_media_type_is_a_problem(api: Api) -> None:
    assert api.get("engines", Accept="text/html").status_code == 406
    assert api.get("engines", Accept="nonsense").status_code == 406
