"""API keys are known by hash only, expire, and are rejected with advice for the caller."""

from __future__ import annotations

from hashlib import sha256

import pytest

from gateway.access.authentication import UnauthenticatedError, authenticate
from gateway.contracts.snapshot import ApiKeyEntry

KEY = b"hw_0123456789"


class Directory:
    """One key."""

    def __init__(self, expires_at: float | None = None) -> None:
        self.entry = ApiKeyEntry(key_id="k", sha256=sha256(KEY).hexdigest(), tenant_id="tenant", expires_at=expires_at)

    def api_key(self, sha256: str) -> ApiKeyEntry | None:
        """Return the key if the hash matches."""
        return self.entry if sha256 == self.entry.sha256 else None


@pytest.mark.parametrize("header", [b"Bearer " + KEY, b"bearer " + KEY, b"Bearer  " + KEY + b" "])
def test_a_known_key_names_its_tenant(header: bytes) -> None:
    assert authenticate(header, Directory(), 0.0).tenant_id == "tenant"


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "missing_api_key"),
        (b"", "invalid_authorization"),
        (b"Basic abc", "invalid_authorization"),
        (b"Bearer " + KEY + b"x", "invalid_api_key"),
        (b"Bearer sk-other", "invalid_api_key"),
        (b"Bearer hw_" + b"x" * 10_000, "invalid_api_key"),
        (b"Bearer \xff\xfe", "invalid_api_key"),
    ],
)
def test_unknown_keys_are_rejected_with_a_code_that_does_not_reveal_them(header: bytes | None, code: str) -> None:
    with pytest.raises(UnauthenticatedError) as caught:
        authenticate(header, Directory(), 0.0)
    assert caught.value.code == code
    assert caught.value.status == 401
    assert KEY.decode() not in caught.value.message


def test_a_key_stops_working_at_its_expiry() -> None:
    directory = Directory(expires_at=100.0)
    assert authenticate(b"Bearer " + KEY, directory, 99.9).key_id == "k"
    with pytest.raises(UnauthenticatedError) as caught:
        authenticate(b"Bearer " + KEY, directory, 100.0)
    assert caught.value.code == "expired_api_key"
