"""Settings for node managers that programs read from their environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvstore.keys.keyring import KV, Keyring, stretched
from kvstore.transfer.shared_secret import (
    TLS_VARIABLES,
    NodeAccess,
    NoSecretError,
    kv_keyring,
    node_access,
    tls_in,
)
from kvstore.transfer.tls import IncompleteTlsError

SECRET = "a secret of 32 characters at least"
OLD = "the secret before it, as long as that"
KEYRING = Keyring.of(SECRET.encode(), kind=KV)


def held(**environment: str) -> list[str]:
    """Return the fingerprints of the secrets in these variables."""
    return [item.fingerprint for item in kv_keyring(environment).every]


def prints(*secrets: bytes) -> list[str]:
    return [stretched(secret, KV).fingerprint for secret in secrets]


def test_the_secret_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    assert held(HEADWAY_KV_SECRET=SECRET) == prints(SECRET.encode())
    assert held(HEADWAY_KV_SECRET_FILE=str(file)) == prints(SECRET.encode())


def test_a_second_secret_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "also"
    file.write_text(OLD + "\n")
    both = prints(SECRET.encode(), OLD.encode())
    assert held(HEADWAY_KV_SECRET=SECRET, HEADWAY_KV_SECRET_ALSO=OLD) == both
    assert held(HEADWAY_KV_SECRET=SECRET, HEADWAY_KV_SECRET_ALSO_FILE=str(file)) == both


def test_a_file_of_random_bytes_is_a_valid_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(bytes(range(128, 168)))
    assert held(HEADWAY_KV_SECRET_FILE=str(file)) == prints(file.read_bytes())


@pytest.mark.parametrize("environment", [{}, {"HEADWAY_KV_SECRET": SECRET[:31]}])
def test_a_missing_secret_raises_an_error_that_names_it(environment: dict[str, str]) -> None:
    with pytest.raises(NoSecretError, match="HEADWAY_KV_SECRET"):
        kv_keyring(environment)


def test_a_weak_second_secret_is_named() -> None:
    with pytest.raises(NoSecretError, match="Set HEADWAY_KV_SECRET_ALSO"):
        kv_keyring({"HEADWAY_KV_SECRET": SECRET, "HEADWAY_KV_SECRET_ALSO": "short"})


def test_no_secret_is_allowed_for_some_programs_and_a_short_one_is_an_error() -> None:
    assert node_access({}) == NodeAccess()
    with pytest.raises(NoSecretError):
        node_access({"HEADWAY_KV_SECRET": "short"})


def test_certificate_files_are_set_together_or_not_set() -> None:
    files = dict(zip(TLS_VARIABLES, ("c.pem", "k.pem", "a.pem"), strict=True))
    tls = tls_in(files)
    assert tls is not None
    assert (tls.certificate, tls.key, tls.authority) == (Path("c.pem"), Path("k.pem"), Path("a.pem"))
    assert node_access({"HEADWAY_KV_SECRET": SECRET, **files}).tls == tls
    assert tls_in({}) is None
    for left_out in TLS_VARIABLES:
        with pytest.raises(IncompleteTlsError, match="HEADWAY_KV_TLS_KEY"):
            tls_in({name: path for name, path in files.items() if name != left_out})


def test_a_secret_is_not_shown() -> None:
    assert repr(NodeAccess(KEYRING)) == repr(NodeAccess())
