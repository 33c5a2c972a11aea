"""Long bodies are read only from callers that may upload."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from controlplane.platform.api import upload_gate
from controlplane.platform.api.upload_gate import UploadGate
from tests.controlplane.platform.api.world import World

WAY = "/api/v1/recordings/upload"


def scope(*headers: tuple[bytes, bytes], path: str = WAY) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": list(headers)}


@pytest.mark.parametrize(
    ("person", "allowed"),
    [("admin", True), ("operator", True), ("operator_a", True), ("viewer", False), ("nobody", False)],
)
def test_session_of_an_operator_permits_uploads(world: World, person: str, allowed: bool) -> None:
    client = Client()
    client.force_login(world.people[person])
    cookie = f"sessionid={client.cookies['sessionid'].value}".encode()
    assert upload_gate._may_upload(scope((b"cookie", cookie))) is allowed


def test_key_with_the_operator_role_permits_uploads(world: World) -> None:
    asked = {
        name: upload_gate._may_upload(scope((b"authorization", b"Bearer " + text.encode())))
        for name, text in world.texts.items()
    }
    assert [name for name, may in asked.items() if may] == [
        "operator_key",
        "operator_a_key",
        "operator_b_key",
        "admin_key",
    ]


@pytest.mark.parametrize(
    "header", [(), ((b"cookie", b"sessionid=x"),), ((b"authorization", b"x"),), ((b"authorization", b"Bearer hw_x"),)]
)
def test_anonymous_clients_cannot_upload(world: World, header: tuple[Any, ...]) -> None:
    assert not upload_gate._may_upload(scope(*header))


@pytest.mark.django_db
@pytest.mark.parametrize(("path", "may", "reads"), [(WAY, False, 0), (WAY, True, 300), ("/login", False, 300)])
async def test_body_without_permission_never_reaches_django(
    monkeypatch: pytest.MonkeyPatch, path: str, may: bool, reads: int
) -> None:
    seen = []

    async def pages(_scope: Any, receive: Any, _send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
        seen.append(len(body))

    parts = [{"type": "http.request", "body": b"x" * 100, "more_body": number < 2} for number in range(3)]
    messages = [*parts, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    monkeypatch.setattr(upload_gate, "_may_upload", lambda _: may)
    await UploadGate(pages, [WAY])(scope(path=path), receive, receive)
    assert seen == [reads]
