"""Secrets that the first start generates if the environment has none.

They are stored in `first_run.json` in the state directory, readable only by its owner. Needs no Django.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Literal

import msgspec

from controlplane.project.first_run.demo_names import MORE_TENANTS, TENANT_PARTS
from kvstore.transfer.shared_secret import ALSO_VARIABLE as KV_ALSO
from kvstore.transfer.shared_secret import VARIABLE as KV_VARIABLE
from routing.values.prepared_struct import prepared

FILE_NAME = "first_run.json"


class FirstRunSecrets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The generated secrets of a new installation."""

    secret_key: str
    """Signs Django's sessions."""
    fleet_secret: str
    """Hex secret from which block keys and tenants' cache salts are derived."""
    admin_password: str
    """Empty after it is in use and no longer needed in this file."""
    api_key: str
    """The demo's API key; empty if it is no longer valid."""
    more_api_keys: tuple[str, ...] = ()
    """API keys of the demo's other tenants, in the order of demo_names.MORE_TENANTS."""
    kv_secret: str = ""
    """Shared by the demo's node managers and their clients; empty without node managers."""
    secret_key_also: str = ""
    """Accepted in addition while `secret_key` is rotated. The next two fields work the same way."""
    fleet_secret_also: str = ""
    kv_secret_also: str = ""
    rotation: Literal["", "installed", "used"] = ""
    """The last completed step of the current rotation (docs/production.md)."""
    kv_api_key: str = ""
    """The API key with which the demo's node managers register."""

    @property
    def traffic_keys(self) -> str:
        """Return the keys that the demo's requests use, each named as often as its tenant has parts of them."""
        parts = zip(self.more_api_keys, MORE_TENANTS.values(), strict=False)
        more = [key for key, share in parts for _ in range(share)]
        return ",".join([self.api_key] * TENANT_PARTS + more if more else [self.api_key])

    @property
    def kv_environment(self) -> dict[str, str]:
        """Return environment variables with the secrets of the demo's node managers and their clients."""
        return {KV_VARIABLE: self.kv_secret, KV_ALSO: self.kv_secret_also} if self.kv_secret else {}


class UnsafeSecretsError(RuntimeError):
    """The secrets file is readable by other users, or was not written by this program."""


def secrets_of(state_dir: Path) -> FirstRunSecrets:
    """Return the installation's secrets. The first call creates them. Raises UnsafeSecretsError.

    Processes that start together get the same secrets, because the file is created atomically.
    """
    path = state_dir / FILE_NAME
    if not path.exists():
        _create(path)
    return read_secrets(path)


def keep_secrets(state_dir: Path, kept: FirstRunSecrets) -> FirstRunSecrets:
    """Replace the content of the secrets file if it differs. Call it while holding the lock of the state directory."""
    path = state_dir / FILE_NAME
    if read_secrets(path) != kept:
        _written(path, kept).replace(path)
    return kept


def with_new_installed(secrets: FirstRunSecrets) -> FirstRunSecrets:
    """Return the secrets with new ones that are accepted in addition."""
    return msgspec.structs.replace(
        secrets,
        secret_key_also=_new_secret_key(),
        fleet_secret_also=new_secret(),
        kv_secret_also=new_secret() if secrets.kv_secret else "",
        rotation="installed",
    )


def with_new_used(secrets: FirstRunSecrets) -> FirstRunSecrets:
    """Return the secrets after exchanging the secrets in use with the additionally accepted ones."""
    exchanged: dict[str, str] = {}
    for name in ("secret_key", "fleet_secret", "kv_secret"):
        other = getattr(secrets, f"{name}_also")
        if other:
            exchanged |= {name: other, f"{name}_also": getattr(secrets, name)}
    return msgspec.structs.replace(secrets, **exchanged, rotation="used")


def without_others(secrets: FirstRunSecrets) -> FirstRunSecrets:
    """Return the secrets without the additionally accepted ones."""
    return msgspec.structs.replace(secrets, secret_key_also="", fleet_secret_also="", kv_secret_also="", rotation="")


def new_password() -> str:
    """Generate a password."""
    return secrets.token_urlsafe(12)


def new_secret() -> str:
    """Generate a secret for several programs, 64 hex digits."""
    return secrets.token_hex(32)


def new_api_key() -> str:
    """Generate an API key."""
    return "hw_" + secrets.token_urlsafe(32)


def read_secrets(path: Path) -> FirstRunSecrets:
    """Read the secrets file. Raises UnsafeSecretsError if its mode is wider than 0600 or it is unreadable."""
    try:
        with path.open("rb") as file:
            # Of the open file: the path may name another one by the time it is read.
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read()
    except OSError as error:
        raise UnsafeSecretsError(f"{path} cannot be read: {error.strerror}") from error
    if mode & 0o177:
        raise UnsafeSecretsError(
            f"{path} has mode {mode:04o}, so others may have read its secrets. Run `chmod 600 {path}`, or delete it "
            "for new ones (logins, API keys and caches then start over)."
        )
    try:
        return msgspec.json.decode(data, type=prepared(FirstRunSecrets))
    except msgspec.DecodeError as error:
        raise UnsafeSecretsError(f"{path} is damaged ({error}). Delete it to get new secrets.") from error


def _new_secret_key() -> str:
    return secrets.token_urlsafe(48)


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = FirstRunSecrets(
        secret_key=_new_secret_key(),
        fleet_secret=new_secret(),
        admin_password=new_password(),
        api_key=new_api_key(),
    )
    draft = _written(path, made)
    try:
        with contextlib.suppress(FileExistsError):
            # A link, unlike a rename, never replaces the secrets of a faster process.
            os.link(draft, path)
    finally:
        draft.unlink()


def _written(path: Path, made: FirstRunSecrets) -> Path:
    """Write the secrets to a file in the directory of `path`, and return that file."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    # With its mode from the start: a chmod afterwards would leave a moment in which others can open it.
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(made)))
        file.flush()
        # Before the link or rename: after a power failure the name must not lead to an empty file.
        os.fsync(file.fileno())
    return draft
