"""Blocks of one prompt have different keys under a different adapter or salt."""

from __future__ import annotations

import pytest

from kvstore.connector import domain_keys
from kvstore.connector.domain_keys import Domain, DomainKeys
from kvstore.keys.payload_key import PayloadFormat, PayloadKeys
from tests.kvstore.connector.engine_blocks import FORMAT, chain


def test_the_shared_domain_uses_the_plain_format_keys() -> None:
    (block,) = chain("p", 1)
    assert DomainKeys(FORMAT).keys(Domain(), [block]) == [PayloadKeys(FORMAT).key(block)]


def test_a_key_depends_on_adapter_salt_and_rank() -> None:
    block = chain("p", 1)
    other_rank = PayloadFormat(
        model="tiny",
        weight_revision="1",
        kv_dtype="bfloat16",
        kv_layout="layers 1",
        block_tokens=16,
        tp_rank=1,
        tp_size=2,
    )
    domains = (Domain(), Domain(salt="s"), Domain(lora="s"), Domain("l", "s"))
    keys = [DomainKeys(FORMAT).keys(domain, block)[0] for domain in domains]
    keys.append(DomainKeys(other_rank).keys(Domain(), block)[0])
    assert len(set(keys)) == 5


def test_changing_salts_do_not_grow_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_keys, "_MAX_DOMAINS", 3)
    keys, block = DomainKeys(FORMAT), chain("p", 1)
    first = keys.keys(Domain(salt="0"), block)
    for number in range(10):
        keys.keys(Domain(salt=str(number)), block)
    assert len(keys._keys) == 3
    assert keys.keys(Domain(salt="0"), block) == first
