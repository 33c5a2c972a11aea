"""The banner of `manage.py up`."""

from __future__ import annotations

from functools import partial

import pytest

from controlplane.project.first_run.welcome import welcome
from kvstore.transfer.tls import is_loopback

printed = partial(
    welcome,
    url="http://127.0.0.1:8000/",
    user="admin",
    password="pa55",
    api_key="hw_key",
    served_model="demo-8b",
    log_dir="/var/log",
)


def test_banner_on_loopback_has_everything_needed() -> None:
    text = printed(show_secrets=True)
    for part in ("http://127.0.0.1:8000/", "admin / pa55", "hw_key", "demo-8b", "/var/log", "Ctrl-C"):
        assert part in text


def test_obsolete_secrets_are_marked() -> None:
    text = printed(password="", api_key="", show_secrets=True)
    assert "admin, with the password you chose" in text
    assert "create one on the Access page" in text


def test_banner_on_other_addresses_has_no_secret() -> None:
    text = printed(show_secrets=False)
    assert "pa55" not in text
    assert "hw_key" not in text
    assert "first_run.json" in text


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.0.0.1", False), ("", False)],  # noqa: S104 - only compared
)
def test_loopback_hosts_are_recognized(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
