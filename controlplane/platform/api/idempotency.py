"""Makes POST requests with an Idempotency-Key idempotent: a repeated one changes nothing and gets the same response."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import msgspec
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.api.problem import ProblemError
from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.idempotency import (
    Claim,
    ReusedKeyError,
    UnderWayError,
    claim,
    forget,
    settle,
    under,
)

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
_SANE = re.compile(r"[\x21-\x7e]{1,128}").fullmatch
_KEPT_HEADERS = ("ETag", "Location")

Answer = Callable[[], Response]


def answer_once(request: Request, caller: str, shown_once: frozenset[str], make: Answer) -> Response:
    """Return the response of `make`, or the stored response if this caller has used the key before.

    Members in `shown_once` are not stored and are null in a repeated response. Raises ProblemError 400, 409 while the
    first request is running, 422 if the key was used for another request, and ConflictError.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return make()
    if not _SANE(key):
        message = "Must be 1 to 128 visible ASCII characters."
        raise ProblemError(400, f"{HEADER} is invalid.", [FieldProblem(HEADER, message)])
    try:
        claimed = claim(caller, key, _digest(request))
    except ReusedKeyError as error:
        raise ProblemError(422, str(error)) from error
    except UnderWayError as error:
        raise ProblemError(409, str(error), headers={"Retry-After": "1"}) from error
    if claimed.status is not None:
        return Response(claimed.body, status=claimed.status, headers={**claimed.headers, REPLAYED: "true"})
    return _made(claimed, shown_once, make)


def _made(claimed: Claim, shown_once: frozenset[str], make: Answer) -> Response:
    with ExitStack() as on_failure:
        # A failed request has changed nothing, so that the same key may be tried again.
        on_failure.callback(forget, claimed)
        with under(claimed):
            response = make()
        # The effect is committed: a failure from here on must not free the key.
        on_failure.pop_all()
    headers = {name: response[name] for name in _KEPT_HEADERS if name in response}
    settle(claimed, response.status_code, _without(response.data, shown_once), headers)
    return response


def _without(data: Any, shown_once: frozenset[str]) -> Any:
    plain = msgspec.json.decode(msgspec.json.encode(data, enc_hook=str))
    if isinstance(plain, dict):
        return {name: None if name in shown_once else value for name, value in plain.items()}
    return plain


def _digest(request: Request) -> str:
    """Return the hash of the request. Layout and member order of the JSON do not matter."""
    body = msgspec.json.encode(request.data, order="deterministic")
    asked = b"\n".join((str(request.method).encode(), request.get_full_path().encode(), body))
    return hashlib.sha256(asked).hexdigest()
