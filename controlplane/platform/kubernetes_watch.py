"""Mirrors a collection of Kubernetes objects: one list, then a watch that resumes where the last one ended.

Needs no Django, and decodes only the fields that its user keeps.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from routing.values.prepared_struct import prepared

CONNECT_S = 5.0
WATCH_S = 60
"""Seconds after which the API server ends a watch, so that a connection without a peer is noticed."""
_READ_S = WATCH_S + 15.0
PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Pauses between attempts double from the first to the second one, and are shortened at random."""
ABSENT_S = 30.0
"""Pause while the cluster does not have this kind of object."""
MAX_LIST_BYTES, MAX_EVENT_BYTES = 256 << 20, 4 << 20
_GONE, _MISSING = 410, 404
_AGAIN = (400, _MISSING, _GONE)
"""Answers after which the collection is listed again. After others, the watch continues from its version."""
_logger = logging.getLogger(__name__)

KeptT = TypeVar("KeptT")


class WatchOutageError(Exception):
    """The collection is not known now. The message explains why."""


class ObjectMeta(msgspec.Struct, rename="camel"):
    """Metadata of an object or a list."""

    name: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _Versioned(msgspec.Struct):
    metadata: ObjectMeta


class _Listed(msgspec.Struct):
    metadata: ObjectMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Failure(msgspec.Struct):
    code: int = 0
    message: str = ""


class ListWatch(Generic[KeptT]):
    """Follows one collection in a thread. Mutable: the kept values by name, the version, and the last problem."""

    def __init__(
        self,
        connection: client.ApiClient,
        path: str,
        keep: Callable[[msgspec.Raw], KeptT | None],
        *,
        on_change: Callable[[], None] = lambda: None,
        **selectors: str,
    ) -> None:
        """Follow the objects at an API path. `keep` returns what is kept of an object, None if nothing.

        `on_change` is called in the thread after a kept value has changed. `selectors` are labelSelector and
        fieldSelector.
        """
        self._connection = connection
        self._path = path
        self._keep = keep
        self._on_change = on_change
        self._selectors = {name: value for name, value in selectors.items() if value}
        self._kept: dict[str, KeptT] = {}
        self._version = ""
        self._cached = True
        self._problem = "Kubernetes did not answer yet"
        self._settled = threading.Event()
        self._stopping = threading.Event()
        self._answer: Any = None
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def start(self) -> None:
        """Start the thread and return."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread within a moment."""
        self._stopping.set()
        if (answer := self._answer) is not None:
            # A thread that reads does not notice a closed file. The answer may just have ended.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                answer.shutdown()
        self._thread.join(CONNECT_S)

    def values(self, timeout_s: float = 0.0) -> dict[str, KeptT]:
        """Return the kept values by name, after waiting for the first list. Raises WatchOutageError."""
        self._settled.wait(timeout_s)
        if self._problem:
            raise WatchOutageError(self._problem)
        return self._kept

    @property
    def kept(self) -> dict[str, KeptT]:
        """Return the last known values by name, during an outage, too."""
        return self._kept

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began_s, absent = time.monotonic(), False
            try:
                if not self._version:
                    self._list()
                self._watch()
            except ApiException as error:
                absent = error.status == _MISSING
                self._rejected(error)
            except (HTTPError, OSError) as error:
                # An open watch may end at any time; only an attempt to connect shows that the server is away.
                if self._answer is None:
                    self._fail(f"Kubernetes did not answer ({type(error).__name__})")
            except msgspec.DecodeError:
                self._version = ""
                self._fail("Kubernetes returned an unexpected answer")
            except Exception:
                # The edge of the thread: without it, the last values would count for ever.
                _logger.exception("the watch of %s failed", self._path)
                self._version = ""
                self._fail("the watch failed")
            self._answer = None
            failures = 0 if time.monotonic() - began_s >= 1.0 else failures + 1
            pause_s = ABSENT_S if absent else min(LONGEST_PAUSE_S, PAUSE_S * 2 ** min(failures, 10))
            if absent or failures:
                self._stopping.wait(pause_s * random.uniform(0.5, 1.0))

    def _list(self) -> None:
        # First from the API server's cache. After "gone" the cache may be as old as our version was.
        answer = self._get({"resourceVersion": "0"} if self._cached else {}, 2 * CONNECT_S)
        body = answer.read(MAX_LIST_BYTES + 1)
        if len(body) > MAX_LIST_BYTES:
            raise msgspec.DecodeError("too long")
        listed = msgspec.json.decode(body, type=prepared(_Listed))
        kept = dict(self._pairs(listed.items or []))
        changed, self._kept = kept != self._kept, kept
        self._version = listed.metadata.resource_version
        self._done(changed)

    def _pairs(self, items: list[msgspec.Raw]) -> Iterator[tuple[str, KeptT]]:
        for item in items:
            if (value := self._keep(item)) is not None:
                yield msgspec.json.decode(item, type=prepared(_Versioned)).metadata.name, value

    def _watch(self) -> None:
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_S)}
        self._answer = answer = self._get({**query, "resourceVersion": self._version}, _READ_S)
        self._done(changed=False)
        rest = b""
        # Either `stop` sees this answer, or the thread sees that it has to stop.
        while not self._stopping.is_set() and len(rest) <= MAX_EVENT_BYTES:
            chunk = answer.read1()
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._event(line)
        answer.close()
        if len(rest) > MAX_EVENT_BYTES:
            raise msgspec.DecodeError("too long")

    def _event(self, line: bytes) -> None:
        if not line.strip():
            return
        event = msgspec.json.decode(line, type=prepared(_Event))
        if event.type == "ERROR":
            failure = msgspec.json.decode(event.object, type=prepared(_Failure))
            raise ApiException(status=failure.code, reason=failure.message)
        metadata = msgspec.json.decode(event.object, type=prepared(_Versioned)).metadata
        self._version = metadata.resource_version
        if event.type == "BOOKMARK":
            return
        value = None if event.type == "DELETED" else self._keep(event.object)
        before = self._kept.get(metadata.name)
        if value == before:
            return
        others = {name: kept for name, kept in self._kept.items() if name != metadata.name}
        # Replaced, not changed: other threads read it.
        self._kept = others if value is None else {**others, metadata.name: value}
        self._on_change()

    def _rejected(self, error: ApiException) -> None:
        if error.status in _AGAIN:
            self._version = ""
        if error.status == _GONE:
            # Our version is older than the server's history: the next list brings what was missed.
            self._cached = False
        elif error.status == _MISSING:
            # The cluster does not have this kind of object, so there are none.
            changed, self._kept = bool(self._kept), {}
            self._done(changed)
        else:
            self._fail(f"Kubernetes answered {error.status} ({error.reason})")

    def _done(self, changed: bool) -> None:
        self._problem = ""
        self._settled.set()
        if changed:
            self._on_change()

    def _fail(self, problem: str) -> None:
        self._problem = problem
        self._settled.set()

    def _get(self, query: dict[str, str], read_s: float) -> Any:
        return self._connection.call_api(
            f"{self._path}?{urlencode({**self._selectors, **query})}",
            "GET",
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=(CONNECT_S, read_s),
        )
