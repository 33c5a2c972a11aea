"""A client without the fleet's secret cannot aim prompts at an engine, even with full knowledge of the ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count, islice

import pytest

from kvstore.keys.block_keys import byte_block_keys, key_seed, rekey_hashes
from routing.rings.hash_ring import HashRing

ENGINES = [f"engine-{number}" for number in range(8)]
AIMED_AT = 3
PROMPTS = 4000
BLOCK_BYTES = 64
MAX_RATIO = 1.3
SECRET = b"a secret that nobody guesses"
GUESSES = [b"", b"headway", SECRET[:-1]]

KeyOf = Callable[[int, int], int]


def text_key(seed: int, number: int) -> int:
    """Return the second key of a prompt that differs from others in only a few bytes."""
    return byte_block_keys(seed, (b"%016d" % number) * (2 * BLOCK_BYTES // 16), BLOCK_BYTES)[-1]


def hash_key(seed: int, number: int) -> int:
    """Return the key of a block hash chosen by the caller."""
    return rekey_hashes(seed, [number << 40 | number])[0]


KINDS = [text_key, hash_key]


@pytest.fixture(scope="module")
def ring() -> HashRing:
    return HashRing(ENGINES, virtual_nodes=100)


def crafted(ring: HashRing, key_of: KeyOf, guess: bytes) -> list[int]:
    """Return prompts that all go to one engine if the guess of the secret is right."""
    seed = key_seed(guess, "m")
    return list(islice((item for item in count() if ring.owner(key_of(seed, item)) == AIMED_AT), PROMPTS))


def worst_ratio(ring: HashRing, key_of: KeyOf, prompts: list[int], secret: bytes) -> float:
    """Return the largest ratio of an engine's load to its load from random prompts, which is its share of the ring."""
    seed = key_seed(secret, "m")
    loads = Counter(ring.owner(key_of(seed, prompt)) for prompt in prompts)
    return max(loads[engine] / (share * len(prompts)) for engine, share in enumerate(ring.shares()))


@pytest.mark.parametrize("guess", GUESSES)
@pytest.mark.parametrize("key_of", KINDS)
def test_prompts_crafted_without_the_secret_spread_like_any_others(ring: HashRing, key_of: KeyOf, guess: bytes) -> None:
    prompts = crafted(ring, key_of, guess)
    assert worst_ratio(ring, key_of, prompts, SECRET) <= MAX_RATIO


@pytest.mark.parametrize("key_of", KINDS)
def test_prompts_crafted_with_the_secret_hit_one_engine(ring: HashRing, key_of: KeyOf) -> None:
    prompts = crafted(ring, key_of, SECRET)
    assert worst_ratio(ring, key_of, prompts, SECRET) > 5
