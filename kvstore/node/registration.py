"""Register the node at a control plane, if one is configured."""

from __future__ import annotations

import http.client
import logging
import threading
from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from kvstore.node.node_report import MAX_PINS, PIN_NAME, REPORT_EVERY_S, NodeReport

_TIMEOUT_S = 5.0
_MAX_ANSWER_BYTES = 1 << 20
_log = logging.getLogger(__name__)


def is_address(url: str) -> bool:
    """Return whether a node can register at this URL."""
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A node's entry in the control plane, sent by the node."""

    name: str
    incarnation: int
    address: str
    events_endpoint: str
    replay_endpoint: str
    metrics_url: str
    dram_bytes: int
    ssd_bytes: int
    slot_bytes: int
    state: str = "serving"
    """serving, draining, or gone."""
    report: NodeReport = NodeReport()


class PinName(msgspec.Struct, frozen=True):
    """One pin, as named in reports."""

    name: Annotated[str, Meta(pattern=PIN_NAME)]
    tenant: str


class RegistrationAnswer(msgspec.Struct, frozen=True):
    """Fields that the node reads from the control plane's response."""

    unpin: Annotated[list[PinName], Meta(max_length=MAX_PINS)] = []
    """Pins that an operator ended, repeated until a report no longer lists them."""
    eviction: str = ""
    """The eviction rule that an operator chose; empty: the node's own."""
    ssd_policy: str = ""
    """The SSD policy that an operator chose; empty: the node's own."""


class Registration:
    """Posts the entry every few seconds, and at once when its state changes, in one thread."""

    def __init__(
        self,
        url: str,
        bearer: str,
        entry: NodeEntry,
        report: Callable[[], NodeReport],
        unpin: Callable[[bytes, str], int],
        follow: Callable[[str, str], bool] = lambda _eviction, _ssd_policy: False,
    ) -> None:
        """Set up the thread. `unpin` ends a tenant's pin by its name and returns the number of its blocks.

        `follow` applies the eviction rule and the SSD policy that operators chose, and returns whether one changed.
        """
        self._report, self._unpin, self._follow = report, unpin, follow
        self._url, self._bearer, self._entry = urlsplit(url), bearer, entry
        self._changed, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="kv-registration", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def say(self, state: str) -> None:
        """Post the entry with a new state."""
        self._entry = msgspec.structs.replace(self._entry, state=state)
        self._changed.set()

    def stop(self) -> None:
        """Report that the node is gone, and stop."""
        # The state first: the thread ends after the post that follows the stop.
        self.say("gone")
        self._stop.set()
        self._changed.set()
        self._thread.join(2 * _TIMEOUT_S)

    def _run(self) -> None:
        failed = ""
        while True:
            # Before the post, so that a change during it leads to another one.
            self._changed.clear()
            stopping = self._stop.is_set()
            try:
                self._post()
                failure = ""
            except (OSError, http.client.HTTPException) as error:
                failure = str(error) or type(error).__name__
            if failure != failed:
                # Once, and not every few seconds.
                _log.warning("registration at %s: %s", self._url.netloc, failure or "succeeded again")
            failed = failure
            if stopping:
                return
            self._changed.wait(REPORT_EVERY_S)

    def _post(self) -> None:
        entry = msgspec.structs.replace(self._entry, report=self._report())
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(str(self._url.hostname), self._url.port, timeout=_TIMEOUT_S)
        headers = {"content-type": "application/json"}
        if self._bearer:
            headers["authorization"] = f"Bearer {self._bearer}"
        try:
            connection.request("POST", self._url.path or "/", msgspec.json.encode(entry), headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise OSError(f"status {answer.status}")
            decoded = _answer.decode(answer.read(_MAX_ANSWER_BYTES) or b"{}")
        except msgspec.DecodeError as error:
            raise OSError("the response is invalid") from error
        finally:
            connection.close()
        ended = [pin for pin in decoded.unpin if self._unpin(bytes.fromhex(pin.name), pin.tenant)]
        if self._follow(decoded.eviction, decoded.ssd_policy) or ended:
            # The gateway that ordered it sees it with the next report.
            self._changed.set()


_answer = msgspec.json.Decoder(RegistrationAnswer)
