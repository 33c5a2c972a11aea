"""Two secrets at once: which one signs, which ones verify, and the counts."""

import hashlib
from array import array
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.keys import keyring as module
from kvstore.keys.block_keys import byte_block_keys, extend_key, key_seed, pack_tokens, rekey_hashes, token_block_keys
from kvstore.keys.keyring import FLEET, KV, Keyring, is_weak, stretched
from kvstore.keys.payload_key import PayloadFormat, PayloadKeys

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=200)


def test_seeds_depend_on_each_of_their_parts() -> None:
    seeds = {
        key_seed(b"s", "model", "lora", "domain"),
        key_seed(b"t", "model", "lora", "domain"),
        key_seed(b"s", "model2", "lora", "domain"),
        key_seed(b"s", "model", "lora2", "domain"),
        key_seed(b"s", "model", "lora", "domain2"),
        key_seed(b"s", "modell", "ora", "domain"),
    }
    assert len(seeds) == 6


@given(TOKENS, TOKENS, st.integers(1, 32))
def test_equal_prefixes_have_equal_keys_up_to_where_they_diverge(
    first: list[int], second: list[int], block: int
) -> None:
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    one, two = token_block_keys(7, first, block), token_block_keys(7, second, block)
    full = shared // block
    assert one[:full] == two[:full]
    assert not set(one[full:]) & set(two[full:])


@given(TOKENS, st.integers(1, 32))
def test_a_list_and_an_array_of_the_same_tokens_have_equal_keys(tokens: list[int], block: int) -> None:
    assert token_block_keys(1, tokens, block) == token_block_keys(1, array("I", tokens), block)


def test_only_full_blocks_have_a_key() -> None:
    assert len(token_block_keys(1, list(range(1023)), 512)) == 1
    assert len(token_block_keys(1, list(range(1024)), 512)) == 2


def test_extending_block_by_block_gives_the_same_keys() -> None:
    tokens = list(range(64))
    parent, keys = 9, []
    for start in range(0, 64, 16):
        parent = extend_key(parent, pack_tokens(tokens[start : start + 16]))
        keys.append(parent)
    assert tuple(keys) == token_block_keys(9, tokens, 16)


def test_rekeyed_hashes_are_salted_and_accept_signed_ones() -> None:
    assert rekey_hashes(1, [5, 6]) != rekey_hashes(2, [5, 6])
    assert rekey_hashes(1, [-1]) == rekey_hashes(1, [2**64 - 1])
    for outside in (2**64, -(2**63) - 1):
        with pytest.raises(OverflowError):
            rekey_hashes(1, [outside])


def test_a_block_size_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least 1 byte"):
        byte_block_keys(1, b"abc", 0)


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


FORMAT = PayloadFormat(
    model="llama-3-8b",
    weight_revision="a1",
    kv_dtype="bfloat16",
    kv_layout="NHD",
    block_tokens=16,
    tp_rank=0,
    tp_size=2,
)
CHAIN = bytes(range(32))


def test_equal_facts_give_equal_keys_of_32_bytes() -> None:
    again = msgspec.structs.replace(FORMAT)
    assert PayloadKeys(FORMAT).key(CHAIN) == PayloadKeys(again).key(CHAIN)
    assert len(PayloadKeys(FORMAT).key(CHAIN)) == 32


@pytest.mark.parametrize(
    "change",
    [
        {"model": "llama-3-8c"},
        {"weight_revision": "a2"},
        {"kv_dtype": "fp8"},
        {"kv_layout": "HND"},
        {"block_tokens": 32},
        {"tp_rank": 1},
        {"tp_size": 4},
        {"lora": "legal@3"},
        {"isolation_domain": "tenant"},
    ],
)
def test_each_fact_that_determines_bytes_changes_the_key(change: dict[str, object]) -> None:
    assert PayloadKeys(msgspec.structs.replace(FORMAT, **change)).key(CHAIN) != PayloadKeys(FORMAT).key(CHAIN)


def test_field_boundaries_change_the_key() -> None:
    one = msgspec.structs.replace(FORMAT, model="ab", weight_revision="c")
    other = msgspec.structs.replace(FORMAT, model="a", weight_revision="bc")
    assert PayloadKeys(one).key(CHAIN) != PayloadKeys(other).key(CHAIN)


def test_a_64_bit_hash_is_rejected_because_two_prompts_can_share_it() -> None:
    with pytest.raises(ValueError, match="16 to 32 bytes"):
        PayloadKeys(FORMAT).key(bytes(8))


def test_an_impossible_format_is_rejected() -> None:
    with pytest.raises(ValueError, match="rank 2"):
        PayloadKeys(msgspec.structs.replace(FORMAT, tp_rank=2))
    with pytest.raises(ValueError, match="at least 1 token"):
        PayloadKeys(msgspec.structs.replace(FORMAT, block_tokens=0))
