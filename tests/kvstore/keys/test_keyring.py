"""Two secrets at once: which one signs, which ones verify, and the counts."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from kvstore.keys import keyring as module
from kvstore.keys.keyring import FLEET, KV, Keyring, is_weak, stretched

OLD, NEW = b"the secret before the rotation", b"the secret after the rotation"


@pytest.mark.parametrize(
    ("secret", "weak"),
    [
        ("", True),
        ("abcdefghijklmnopqrstuvwxyz01234", True),
        ("abcdefghijklmnopqrstuvwxyz012345", False),
        ("aaaabbbb" * 8, True),
        ("django-insecure-abcdefghijklmnopqrstuvwxyz", True),
    ],
)
def test_short_monotonous_and_well_known_secrets_are_weak(secret: str, weak: bool) -> None:
    assert is_weak(secret) == weak


def test_keys_differ_by_secret_kind_and_purpose_and_contain_no_secret() -> None:
    fleet, kv = stretched(OLD, FLEET), stretched(OLD, KV)
    made = [secret.derive(purpose) for secret in (fleet, kv, stretched(NEW)) for purpose in ("seals", "salts")]
    assert len(set(made)) == 6
    assert {len(item) for item in made} == {32}
    assert len({fleet.fingerprint, kv.fingerprint, stretched(NEW).fingerprint}) == 3
    assert not any(OLD in item for item in made)
    assert OLD.decode() not in repr(fleet)


def test_a_secret_is_stretched_once_and_every_guess_costs_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def counted(secret: bytes, **cost: Any) -> bytes:
        asked.append(cost)
        return hashlib.scrypt(secret, **cost)

    monkeypatch.setattr(module, "scrypt", counted)
    first = stretched(b"a secret that nothing else has", FLEET)
    assert stretched(b"a secret that nothing else has", FLEET) is first
    (cost,) = asked
    assert 128 * cost["n"] * cost["r"] >= 32 << 20
    # The fingerprint is derived from the stretched secret, too.
    assert first.fingerprint == module.SecretKey(first._master).fingerprint


def test_the_secret_in_use_signs_and_both_verify() -> None:
    before, within, after = Keyring.of(OLD), Keyring.of(NEW, OLD), Keyring.of(NEW)
    keys = within.keys("seals")
    assert keys.used == after.keys("seals").used == keys.every[0]
    assert keys.every[1:] == before.keys("seals").every
    assert before.keys("seals").matching(lambda key: key == keys.used) is None


def test_uses_of_the_other_secret_are_counted_by_purpose() -> None:
    keyring, old = Keyring.of(NEW, OLD), Keyring.of(OLD).keys("seals").used
    keys = keyring.keys("seals")
    assert keys.matching(lambda key: key == old, "gateway a") == old
    assert keys.matching(lambda key: key == old, "gateway b") == old
    assert keys.matching(lambda key: key == keys.used, "gateway c") == keys.used
    assert keys.matching(lambda _: False, "a stranger") is None
    assert {purpose: (use.count, use.who) for purpose, use in keyring.uses.items()} == {"seals": (2, "gateway b")}


@pytest.mark.parametrize("also", [b"", NEW])
def test_a_missing_or_repeated_other_secret_is_ignored(also: bytes) -> None:
    assert [item.fingerprint for item in Keyring.of(NEW, also).every] == [stretched(NEW).fingerprint]
