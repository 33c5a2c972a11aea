"""What programs find in their environment about node managers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvstore.transfer.shared_secret import (
    TLS_VARIABLES,
    NodeAccess,
    NoSecretError,
    node_access,
    shared_secret,
    tls_in,
)
from kvstore.transfer.tls import IncompleteTlsError

SECRET = "a secret of sixteen bytes at least"


def test_the_secret_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    assert shared_secret({"SWITCHYARD_KV_SECRET": SECRET}) == SECRET.encode()
    assert shared_secret({"SWITCHYARD_KV_SECRET_FILE": str(file)}) == SECRET.encode()


@pytest.mark.parametrize("environment", [{}, {"SWITCHYARD_KV_SECRET": "short"}])
def test_what_needs_a_secret_says_so(environment: dict[str, str]) -> None:
    with pytest.raises(NoSecretError, match="SWITCHYARD_KV_SECRET"):
        shared_secret(environment)


def test_a_program_may_do_without_and_a_short_secret_is_still_an_error() -> None:
    assert node_access({}) == NodeAccess()
    with pytest.raises(NoSecretError):
        node_access({"SWITCHYARD_KV_SECRET": "short"})


def test_certificates_are_named_all_or_none() -> None:
    files = dict(zip(TLS_VARIABLES, ("c.pem", "k.pem", "a.pem"), strict=True))
    tls = tls_in(files)
    assert tls is not None
    assert (tls.certificate, tls.key, tls.authority) == (Path("c.pem"), Path("k.pem"), Path("a.pem"))
    assert node_access({"SWITCHYARD_KV_SECRET": SECRET, **files}).tls == tls
    assert tls_in({}) is None
    for left_out in TLS_VARIABLES:
        with pytest.raises(IncompleteTlsError, match="SWITCHYARD_KV_TLS_KEY"):
            tls_in({name: path for name, path in files.items() if name != left_out})


def test_a_secret_is_not_shown() -> None:
    assert SECRET not in repr(NodeAccess(SECRET.encode()))
