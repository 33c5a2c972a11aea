"""Static files are sent completely, so that Django emits no iterator warning under ASGI."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.test import AsyncClient, Client

ICON = "/static/icon.svg"


def icon() -> bytes:
    return Path(finders.find("icon.svg")).read_bytes()


def test_file_is_sent_completely_with_type_and_validator() -> None:
    answer = Client().get(ICON)
    assert answer.status_code == 200
    assert not answer.streaming
    assert answer.content == icon()
    assert answer["Content-Type"] == "image/svg+xml"
    assert answer["Content-Length"] == str(len(icon()))
    assert answer["ETag"]


# Warnings are errors here: this fails where Django has to read a blocking iterator.
async def test_asgi_server_emits_no_warning() -> None:
    answer = await AsyncClient().get(ICON)
    assert answer.content == icon()


def test_client_with_a_current_copy_gets_no_body() -> None:
    etag = Client().get(ICON)["ETag"]
    answer = Client().get(ICON, headers={"If-None-Match": etag})
    assert (answer.status_code, answer.content) == (304, b"")


def test_range_request_gets_only_that_range() -> None:
    answer = Client().get(ICON, headers={"Range": "bytes=2-5"})
    assert (answer.status_code, answer.content) == (206, icon()[2:6])
    assert answer["Content-Range"] == f"bytes 2-5/{len(icon())}"


@pytest.mark.parametrize(("method", "status"), [("head", 200), ("post", 405)])
def test_static_files_accept_only_reads(method: str, status: int) -> None:
    answer = getattr(Client(), method)(ICON)
    assert (answer.status_code, answer.content) == (status, b"")
