import msgspec
import pytest

from kvstore.keys.payload_key import PayloadFormat, PayloadKeys

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
