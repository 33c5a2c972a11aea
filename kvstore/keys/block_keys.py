"""Block keys: one 64-bit name for each prefix of a prompt.

A key is the xxh3_64 of a block chained on the key before it, starting from a seed that includes the fleet's secret, the
served model, the LoRA adapter and the isolation domain. Equal keys therefore mean equal prefixes under equal weights
within one domain, and an attacker without the secret cannot aim at a key. Keys are for routing; stored payloads are
addressed by a SHA-256-class name instead.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from struct import error as struct_error

from xxhash import xxh3_64_intdigest

TOKEN_BYTES = 4


def key_seed(fleet_secret: bytes, served_model: str, lora: str = "", domain: str = "") -> int:
    """Return the 64-bit seed of a key space. Lengths are hashed too, so that no two spaces collide."""
    parts = (fleet_secret, served_model.encode(), lora.encode(), domain.encode())
    framed = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return xxh3_64_intdigest(framed)


def extend_key(parent: int, block: bytes | memoryview) -> int:
    """Return the key of `block` after the prefix named `parent` (a key, or the seed for the first block)."""
    return xxh3_64_intdigest(block, parent)


def media_block_key(seed: int, name: str, position: int) -> int:
    """Return the key of the block at `position`, from 0, among the blocks of a prompt's medium with this name.

    The key does not depend on the prompt before the medium: it only states that an engine holds the medium.
    """
    return extend_key(seed, f"{name}:{position}".encode())


def pack_tokens(tokens: array[int] | Sequence[int]) -> bytes:
    """Return token ids as little-endian uint32. Raises OverflowError or TypeError on anything else."""
    packed = tokens if isinstance(tokens, array) and tokens.typecode == "I" else array("I", tokens)
    # Gateways exchange keys, so that machines of either byte order need the same ones.
    if sys.byteorder == "big":
        packed = array("I", packed)
        packed.byteswap()
    return packed.tobytes()


def token_block_keys(seed: int, tokens: array[int] | Sequence[int], block_tokens: int) -> tuple[int, ...]:
    """Return one key per full block of `block_tokens` token ids. A partial last block has no key."""
    return byte_block_keys(seed, pack_tokens(tokens), block_tokens * TOKEN_BYTES)


def continued_keys(keys: Sequence[int], tokens: Sequence[int], blocks: int, block_tokens: int) -> tuple[int, ...]:
    """Return the keys of the first `blocks` blocks of token ids, of which `keys`, at least one, are known."""
    first = len(keys) * block_tokens
    return (*keys, *token_block_keys(keys[-1], tokens[first : blocks * block_tokens], block_tokens))


def byte_block_keys(seed: int, data: bytes | memoryview, block_bytes: int) -> tuple[int, ...]:
    """Return one key per full block of `block_bytes` bytes. Raises ValueError on a block size under 1."""
    if block_bytes < 1:
        raise ValueError(f"block size must be at least 1 byte, not {block_bytes}")
    view = memoryview(data)
    keys = []
    parent = seed
    for start in range(0, len(data) - block_bytes + 1, block_bytes):
        parent = xxh3_64_intdigest(view[start : start + block_bytes], parent)
        keys.append(parent)
    return tuple(keys)


def rekey_hashes(seed: int, hashes: Sequence[int]) -> tuple[int, ...]:
    """Return our keys for chained block hashes, such as a trace's hash_ids.

    Each hash already names its whole prefix, so it is salted alone. Raises OverflowError on a hash outside −2⁶³ … 2⁶⁴−1
    (engines send both signed and unsigned 64-bit hashes).
    """
    pack, unpack = _layout(len(hashes))
    try:
        packed = pack(*hashes)
    # Only signed hashes, which some engines send, need a step for each block.
    except struct_error:
        packed = b"".join([_unsigned(value).to_bytes(8, "little") for value in hashes])
    # Without an interpreter step per block: callers send dozens with each request.
    return tuple(map(xxh3_64_intdigest, unpack(packed), repeat(seed)))


@lru_cache(maxsize=512)
def _layout(count: int) -> tuple[Callable[..., bytes], Callable[[bytes], tuple[bytes, ...]]]:
    """Return the functions that pack `count` hashes into bytes and split these into the bytes of each hash."""
    return Struct(f"<{count}Q").pack, Struct("8s" * count).unpack


def _unsigned(value: int) -> int:
    if value < -(1 << 63):
        raise OverflowError("a block hash is below −2⁶³")
    return value & _MASK_64 if value < 0 else value


_MASK_64 = (1 << 64) - 1
