"""A watch mirrors a collection, resumes after an interruption, and lists again once its version is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from kubernetes import client

from controlplane.platform import kubernetes_watch
from controlplane.platform.kubernetes_watch import ListWatch, WatchOutageError
from tests.controlplane.fleet.discovery.cluster import PODS, Cluster, cluster
from tests.patience import wait_until

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_watch, "PAUSE_S", 0.005)
    monkeypatch.setattr(kubernetes_watch, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(kubernetes_watch, "ABSENT_S", 0.02)


def address(raw: msgspec.Raw) -> str | None:
    return msgspec.json.decode(raw)["status"]["podIP"]  # type: ignore[no-any-return]


@contextmanager
def watching(
    connection: client.ApiClient, path: str = PODS, on_change: Callable[[], None] = lambda: None
) -> Iterator[ListWatch[str]]:
    watch = ListWatch(connection, path, address, on_change=on_change, labelSelector="app=vllm")
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()
        assert not watch._thread.is_alive()


def settled(watch: ListWatch[str], wanted: dict[str, str]) -> None:
    """Wait until the watch has these values."""
    wait_until(lambda: values(watch) == wanted)


def values(watch: ListWatch[str]) -> dict[str, str] | str:
    try:
        return watch.values(1.0)
    except WatchOutageError as error:
        return str(error)


def test_objects_appear_change_and_vanish_without_another_list() -> None:
    changes: list[None] = []
    with cluster() as (server, connection), watching(connection, on_change=lambda: changes.append(None)) as watch:
        settled(watch, {})
        server.pod("a", "10.1.0.1")
        server.pod("b", "10.1.0.2")
        settled(watch, {"a": "10.1.0.1", "b": "10.1.0.2"})
        server.pod("a", "10.1.0.9")
        settled(watch, {"a": "10.1.0.9", "b": "10.1.0.2"})
        server.pod("a", "10.1.0.9", app="other")
        settled(watch, {"b": "10.1.0.2"})
        server.pod("a", "10.1.0.9")
        settled(watch, {"a": "10.1.0.9", "b": "10.1.0.2"})
        server.delete(PODS, "b")
        settled(watch, {"a": "10.1.0.9"})
        # What is kept of it is the same.
        server.pod("a", "10.1.0.9", ready=False)
        server.delete(PODS, "a")
        settled(watch, {})
        assert (len(server.requests("list")), len(server.requests("watch")), len(changes)) == (1, 1, 7)


def test_interrupted_watch_resumes_from_its_version() -> None:
    with cluster() as (server, connection), watching(connection) as watch:
        server.pod("a", "10.1.0.1")
        settled(watch, {"a": "10.1.0.1"})
        last = server._version
        server.hang_up()
        wait_until(lambda: len(server.requests("watch")) == 2)
        assert server.requests("watch")[1]["resourceVersion"] == str(last)
        server.delete(PODS, "a")
        settled(watch, {})
        assert len(server.requests("list")) == 1


def test_changes_during_an_interruption_arrive_after_it() -> None:
    with cluster() as (server, connection), watching(connection) as watch:
        server.pod("a", "10.1.0.1")
        settled(watch, {"a": "10.1.0.1"})
        server.hang_up(failing=503)
        wait_until(lambda: "answered 503" in values(watch))
        server.delete(PODS, "a")
        server.pod("b", "10.1.0.2")
        server.failing = 0
        settled(watch, {"b": "10.1.0.2"})
        assert len(server.requests("list")) == 1


def test_bookmarks_keep_a_quiet_watch_within_the_history() -> None:
    with cluster() as (server, connection), watching(connection) as watch:
        settled(watch, {})
        wait_until(lambda: bool(server.requests("watch")))
        server.bookmark()
        wait_until(lambda: watch._version == str(server._version))
        server.compact()
        server.hang_up()
        wait_until(lambda: len(server.requests("watch")) == 2)
        assert server.requests("watch")[1]["allowWatchBookmarks"] == "true"
        server.pod("a", "10.1.0.1")
        settled(watch, {"a": "10.1.0.1"})
        assert len(server.requests("list")) == 1


def test_gone_version_lists_again_and_drops_what_was_deleted_meanwhile() -> None:
    with cluster() as (server, connection), watching(connection) as watch:
        server.pod("a", "10.1.0.1")
        server.pod("b", "10.1.0.2")
        settled(watch, {"a": "10.1.0.1", "b": "10.1.0.2"})
        server.hang_up(failing=500)
        wait_until(lambda: "answered 500" in values(watch))
        server.delete(PODS, "a")
        server.compact()
        server.failing = 0
        settled(watch, {"b": "10.1.0.2"})
        first, again = server.requests("list")
        # The API server's cache may be as old as the version that is gone.
        assert (first["resourceVersion"], "resourceVersion" in again) == ("0", False)


def test_kind_that_the_cluster_does_not_have_is_empty_until_it_does() -> None:
    path = "/apis/llm-d.ai/v1alpha2/namespaces/llm/inferenceobjectives"
    with cluster() as (server, connection), watching(connection, path) as watch:
        settled(watch, {})
        server.put(path, "a", {"app": "vllm"}, status={"podIP": "10.1.0.1"})
        settled(watch, {"a": "10.1.0.1"})


@pytest.mark.parametrize(("status", "words"), [(401, "answered 401"), (403, "answered 403"), (500, "answered 500")])
def test_rejected_list_is_an_outage(status: int, words: str) -> None:
    with cluster() as (server, connection):
        server.failing = status
        with watching(connection) as watch, pytest.raises(WatchOutageError, match=words):
            watch.values(5.0)


def test_unreachable_server_is_an_outage() -> None:
    with client.ApiClient(client.Configuration(host="http://127.0.0.1:1")) as connection:
        connection.configuration.retries = False
        with watching(connection) as watch, pytest.raises(WatchOutageError, match="did not answer"):
            watch.values(5.0)


def test_unexpected_answer_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "answer", lambda *_: (200, {"items": 7}))
    with (
        cluster() as (_, connection),
        watching(connection) as watch,
        pytest.raises(WatchOutageError, match="unexpected answer"),
    ):
        watch.values(5.0)
