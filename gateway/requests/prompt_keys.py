"""Converts a prompt of any form to the block keys of its pool. No prompt text is stored.

Exact pools need token ids, either given by the caller or requested from a serving engine's tokenizer. A bounded memory
from a keyed digest of the prompt to its keys avoids a second tokenizer call. The tokenizer of a busy engine is busy
too: after some patience, a prompt continues with the keys of a beginning that was tokenized before, if there is one.

Only the engine knows the tokens of media. From the first medium on, the keys are guesses: of media by the names that
engines show in their events, and of the text between media by its bytes.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gateway.access.isolation_domains import SHARED
from gateway.contracts.key_source import (
    BYTES,
    COUNTED,
    HASHES,
    MEDIA,
    NONE,
    PREFIX,
    REMEMBERED,
    TOKENIZED,
    TOKENS,
    UNMATCHED,
)
from gateway.requests.formats.prompt import (
    MEDIA_FIELDS,
    ChatPrompt,
    HashedPrompt,
    Prompt,
    TextPrompt,
    TokenPrompt,
    UnmatchedPrompt,
)
from gateway.requests.known_prefixes import KnownPrefixes
from gateway.requests.tokenizer_calls import TokenizerCalls, Waits
from gateway.server.http.json_body import BadBodyError
from kvstore.keys.block_keys import (
    TOKEN_BYTES,
    byte_block_keys,
    extend_key,
    media_block_key,
    pack_tokens,
    rekey_hashes,
    token_block_keys,
)

if TYPE_CHECKING:
    from gateway.contracts.snapshot import PoolEntry
    from gateway.pools.pool.live_pool import LivePool

BYTES_PER_TOKEN = 4
CLOSING_TOKENS = 8
"""Number of tokens that the template can add before a medium."""
PATIENCE = 0.05
"""Share of the pool's TTFT objective. An idle engine tokenizes a long prompt in 20 ms."""
TURN_BYTES = 1024 * 1024
"""Bytes of a text that one event loop step hashes."""
# Equal prompts have equal bytes, whatever the order of their members.
_encode = msgspec.json.Encoder(order="deterministic").encode
_UNPROCESSED = _encode([None] * len(MEDIA_FIELDS))
"""Encoded media fields of a request that sets none. If a request sets some, vLLM's events show hashes of them and our
names.
"""


class KeyedPrompt(msgspec.Struct, frozen=True, gc=False):
    """The block keys of a prompt, its length in tokens (exact or estimated), and how they were made."""

    keys: tuple[int, ...]
    prompt_tokens: int
    source: str
    """tokens, tokenized, remembered, bytes, hashes; media: the length of its media is a guess; unmatched: no key is
    needed; prefix: no tokenizer answered in time, so only the keys of a known beginning are given and the length is a
    guess; none: no tokenizer answered, and the length is a guess.
    """
    salted: bool = False
    """Whether the engine stores the prompt's blocks under a cache salt."""
    further_tokens: int = 0
    """Part of `prompt_tokens` for the request's further prompts or media. The pool limits each prompt separately."""
    tokenizers: Waits = ()


class PromptKeys:
    """Computes keys. Mutable: the memory (least recently used is dropped first), tokenizer calls, and prefixes.

    `max_prompts` and `max_keys` bound the memory's entries and the keys over all entries.
    """

    def __init__(self, *, max_prompts: int = 8192, max_keys: int = 2_000_000, patience: float = PATIENCE) -> None:
        self.prefixes = KnownPrefixes()
        self._patience = patience
        self._max_prompts = max_prompts
        self._max_keys = max_keys
        # Random per process, so that no digest can be turned back into text.
        self._digest_key = os.urandom(32)
        self._memory: OrderedDict[bytes, tuple[array[int], int]] = OrderedDict()
        """Keys of 8 bytes each (separate int objects take five times as much), and the prompt's tokens."""
        self._kept_keys = 0
        self._calls = TokenizerCalls[KeyedPrompt](patience)

    async def keys(
        self, pool: LivePool, domain: str, prompt: Prompt, tenant_id: str = "", lora: str = ""
    ) -> KeyedPrompt:
        """Return the keys in the caller's isolation domain, from an engine's tokenizer if needed.

        A missing tokenizer raises no error. `lora` is the adapter that computes the prompt; empty: none. Prompts of one
        tenant are not remembered for another, because source and length would reveal earlier senders.
        """
        seed = pool.seed(domain, lora)
        keyed = _keyed_here(pool, seed, prompt)
        if keyed is None:
            name = _named(pool, prompt, "" if pool.one_tenant else tenant_id)
            if isinstance(prompt, ChatPrompt) and prompt.media and pool.entry.key_source != "approximate":
                return await self._media_keys(pool, name, domain, prompt, lora)
            keyed = await self._keys(pool, name, seed, prompt, lora)
        return _completed(pool, keyed, domain, prompt)

    async def _keys(self, pool: LivePool, name: bytes, seed: int, prompt: Prompt, lora: str) -> KeyedPrompt:
        if isinstance(prompt, TokenPrompt):
            return await _token_keys_in_turns(pool, seed, prompt.token_ids)
        data = _text_of(prompt)
        if len(data) > TURN_BYTES:
            await asyncio.sleep(0)
        if pool.entry.key_source == "approximate":
            return _from_bytes(pool, await _keys_in_turns(seed, data, pool.entry.block_bytes), data)
        digest = await self._digest(name, seed, data)
        remembered = self._memory.get(digest)
        if remembered is not None:
            self._memory.move_to_end(digest)
            return KeyedPrompt(tuple(remembered[0]), remembered[1], REMEMBERED)
        return await self._engine_keys(digest, pool, name, seed, prompt, data, lora)

    async def _media_keys(self, pool: LivePool, name: bytes, domain: str, prompt: ChatPrompt, lora: str) -> KeyedPrompt:
        """Return exact keys up to the first medium, and guesses from there on."""
        seed, block_tokens = pool.seed(domain, lora), pool.entry.block_tokens
        before, beginning = _before_media(prompt), KeyedPrompt((), 0, NONE)
        if before is not None:
            beginning = await self._keys(pool, name, seed, before, lora)
        exact = beginning.keys[: max(0, beginning.prompt_tokens - CLOSING_TOKENS) // block_tokens]
        guessed, further = _guessed_keys(pool, domain, prompt, lora)
        tokens = beginning.prompt_tokens + further
        # Their engine knows how long they are; a guess is no reason to reject the prompt.
        keyed = KeyedPrompt(exact + guessed, tokens, MEDIA, domain != SHARED, further, beginning.tokenizers)
        return _truncated(pool.entry, keyed, prompt)

    async def _engine_keys(
        self, digest: bytes, pool: LivePool, name: bytes, seed: int, prompt: Prompt, data: bytes, lora: str
    ) -> KeyedPrompt:
        """Return the keys from an engine's tokenizer. If it is late or fails, return the keys of a known beginning."""

        def learned(tokens: array[int]) -> KeyedPrompt:
            keyed = KeyedPrompt(_token_keys(pool, seed, tokens), len(tokens), TOKENIZED)
            self._remember(digest, keyed)
            self.prefixes.learn(name, seed, data, pool.entry.block_tokens, keyed.keys, keyed.prompt_tokens)
            return keyed

        since_s = monotonic()
        call = self._calls.call(digest, pool, prompt, lora, learned)
        asked = call.task
        # wait() lets the call go on after the time-out: its keys are remembered, and others may wait for it.
        await asyncio.wait((asked,), timeout=self._patience * pool.entry.policy.ttft_slo_s)
        if asked.done() and (keyed := await asyncio.shield(asked)) is not None:
            return replace(keyed, tokenizers=call.waits(since_s, pool.lag))
        known = self.prefixes.find(name, seed, data, pool.entry.block_tokens)
        if known is not None:
            return KeyedPrompt(known.keys, known.prompt_tokens, PREFIX, tokenizers=call.waits(since_s, pool.lag))
        keyed = await asyncio.shield(asked) or KeyedPrompt((), max(1, len(data) // BYTES_PER_TOKEN), NONE)
        return replace(keyed, tokenizers=call.waits(since_s, pool.lag))

    async def _digest(self, name: bytes, seed: int, data: bytes) -> bytes:
        digest = blake2b(name + b"\0", digest_size=16, key=self._digest_key, salt=seed.to_bytes(8, "little"))
        for start in range(0, len(data), TURN_BYTES):
            digest.update(memoryview(data)[start : start + TURN_BYTES])
            if start + TURN_BYTES < len(data):
                await asyncio.sleep(0)
        return digest.digest()

    def _remember(self, digest: bytes, keyed: KeyedPrompt) -> None:
        # One prompt over the limit would displace all others, and then itself.
        if digest in self._memory or len(keyed.keys) > self._max_keys:
            return
        self._memory[digest] = (array("Q", keyed.keys), keyed.prompt_tokens)
        self._kept_keys += len(keyed.keys)
        while len(self._memory) > self._max_prompts or self._kept_keys > self._max_keys:
            _, (oldest, _) = self._memory.popitem(last=False)
            self._kept_keys -= len(oldest)

    def check(self) -> None:
        """Raise AssertionError unless the memory's count is correct and within its bounds."""
        self.prefixes.check()
        if self._kept_keys != sum(len(keys) for keys, _ in self._memory.values()):
            raise AssertionError("the count of kept keys is wrong")
        if len(self._memory) > self._max_prompts or self._kept_keys > self._max_keys:
            raise AssertionError("the memory is over its bounds")


def least_tokens(entry: PoolEntry, prompt: Prompt) -> int:
    """Return a lower bound of the prompt's length in tokens, before its keys are computed."""
    if not isinstance(prompt, HashedPrompt | UnmatchedPrompt) and prompt.keeps is not None:
        return 0
    if isinstance(prompt, TokenPrompt):
        return len(prompt.token_ids)
    if isinstance(prompt, HashedPrompt):
        tokens = prompt.prompt_tokens
        return len(prompt.block_hashes) * entry.block_tokens if tokens is None else tokens
    if isinstance(prompt, TextPrompt) and entry.key_source == "approximate":
        return len(prompt.text) * entry.block_tokens // entry.block_bytes
    return 0


def has_block_keys(keyed: KeyedPrompt) -> bool:
    """Return whether the keys are those of the engine's blocks, and of the request's only prompt."""
    return keyed.source in COUNTED and not keyed.further_tokens


def _named(pool: LivePool, prompt: Prompt, tenant_id: str) -> bytes:
    plain = "plain" if isinstance(prompt, TextPrompt) and not prompt.special_tokens else ""
    return f"{pool.entry.pool_id}\0{tenant_id}\0{pool.entry.block_tokens}\0{type(prompt).__name__}{plain}".encode()


def _completed(pool: LivePool, keyed: KeyedPrompt, domain: str, prompt: Prompt) -> KeyedPrompt:
    """Add the remaining facts: salt, truncation, and the work of the request's further prompts."""
    keyed = _truncated(pool.entry, keyed, prompt)
    tokens, further, source = keyed.prompt_tokens, 0, keyed.source
    if isinstance(prompt, TokenPrompt):
        further = prompt.further_tokens
    elif isinstance(prompt, TextPrompt) and prompt.further_bytes:
        further = tokens * prompt.further_bytes // max(1, len(prompt.text.encode()))
    elif isinstance(prompt, ChatPrompt) and prompt.media_tokens:
        further = prompt.media_tokens
    elif isinstance(prompt, UnmatchedPrompt):
        further = prompt.further_bytes // BYTES_PER_TOKEN
    if domain == SHARED and not further:
        return keyed
    return KeyedPrompt(keyed.keys, tokens + further, source, domain != SHARED, further, keyed.tokenizers)


def _truncated(entry: PoolEntry, keyed: KeyedPrompt, prompt: Prompt) -> KeyedPrompt:
    """Return no keys for a prompt that the engine truncates, because only its tokenizer knows at which end."""
    keeps = None if isinstance(prompt, HashedPrompt | UnmatchedPrompt) else prompt.keeps
    if keeps is None:
        return keyed
    kept = keeps if keeps >= 0 else max(1, entry.max_prompt_tokens + 1 + keeps)
    return keyed if keyed.prompt_tokens <= kept else replace(keyed, keys=(), prompt_tokens=kept, source=UNMATCHED)


def needs_tokenizer(pool: LivePool, prompt: Prompt) -> bool:
    """Return whether an engine has to tokenize the prompt."""
    counted_here = isinstance(prompt, HashedPrompt | TokenPrompt | UnmatchedPrompt)
    return not counted_here and pool.entry.key_source != "approximate"


def _keyed_here(pool: LivePool, seed: int, prompt: Prompt) -> KeyedPrompt | None:
    """Return the keys of a prompt without text, None for one that takes several steps."""
    if isinstance(prompt, HashedPrompt):
        return _from_hashes(seed, prompt, pool.entry.block_tokens)
    if isinstance(prompt, UnmatchedPrompt):
        return KeyedPrompt((), max(1, prompt.text_bytes // BYTES_PER_TOKEN), UNMATCHED)
    if isinstance(prompt, TokenPrompt) and len(prompt.token_ids) <= TURN_BYTES // 8:
        return KeyedPrompt(_token_keys(pool, seed, prompt.token_ids), len(prompt.token_ids), TOKENS)
    return None


def _before_media(prompt: ChatPrompt) -> ChatPrompt | None:
    """Return the part before the first medium as a chat, None if it is empty or only added by the template."""
    engine_candidate = {"type": "text", "text": prompt.media[0].engine_candidate}
    for number, message in enumerate(prompt.messages):
        content = message.get("content")
        if isinstance(content, list) and engine_candidate in content:
            parts = content[: content.index(engine_candidate)]
            messages = [*prompt.messages[:number], *([{**message, "content": parts}] if parts else [])]
            # The prompt goes on behind this part: no answer begins there.
            template = {**prompt.template, "add_generation_prompt": False, "continue_final_message": False}
            return ChatPrompt(messages, template) if messages else None
    return None


def _guessed_keys(pool: LivePool, domain: str, prompt: ChatPrompt, lora: str) -> tuple[tuple[int, ...], int]:
    """Return (keys of the prompt from its first medium on, its assumed tokens there).

    A medium has one key per block that it fills, by an engine's events or else by its size. The text after it starts a
    new block.
    """
    entry, parent = pool.entry, pool.seed(domain, lora)
    processing = _encode([prompt.template.get(name) for name in MEDIA_FIELDS])
    media_seed = pool.seed(SHARED, lora) if processing == _UNPROCESSED else extend_key(parent, processing)
    data, position, tokens, keys = memoryview(_text_of(prompt)), 0, 0, list[int]()
    most, block_bytes = entry.max_prompt_tokens // entry.block_tokens, entry.block_tokens * BYTES_PER_TOKEN
    for number, end, after in _spans(data, prompt):
        text = data[position:end]
        if number:
            keys.extend(byte_block_keys(parent, text[: max(0, most - len(keys)) * block_bytes], block_bytes))
            tokens += len(text) // BYTES_PER_TOKEN
        parent, position = extend_key(parent, text), after
        if number < len(prompt.media):
            medium = prompt.media[number]
            name = pool.domains.media_name(domain, medium.digest)
            blocks = pool.domains.media_blocks.get(name) or max(1, medium.tokens // entry.block_tokens)
            tokens += blocks * entry.block_tokens
            blocks = min(blocks, max(0, most - len(keys)))
            keys.extend(media_block_key(media_seed, name, index) for index in range(blocks))
            parent = extend_key(parent, name.encode())
    return tuple(keys), tokens


def _spans(data: memoryview, prompt: ChatPrompt) -> Iterator[tuple[int, int, int]]:
    """Yield (number, start, end) of each placeholder in the prompt's bytes, and last the end of the bytes."""
    text, position = bytes(data), 0
    for number, medium in enumerate(prompt.media):
        mark = medium.engine_candidate.encode()
        start = text.index(mark, position)
        position = start + len(mark)
        yield number, start, position
    yield len(prompt.media), len(text), len(text)


def _from_hashes(seed: int, prompt: HashedPrompt, block_tokens: int) -> KeyedPrompt:
    try:
        keys = rekey_hashes(seed, prompt.block_hashes)
    except OverflowError:
        raise BadBodyError("bad_field", "A block hash must fit in 64 bits.", param="block_hashes") from None
    tokens = prompt.prompt_tokens
    return KeyedPrompt(keys, len(keys) * block_tokens if tokens is None else tokens, HASHES)


def _from_bytes(pool: LivePool, keys: tuple[int, ...], data: bytes) -> KeyedPrompt:
    entry = pool.entry
    return KeyedPrompt(keys, max(1, len(data) * entry.block_tokens // entry.block_bytes), BYTES)


async def _token_keys_in_turns(pool: LivePool, seed: int, tokens: Sequence[int]) -> KeyedPrompt:
    packed = pack_tokens(tokens)
    await asyncio.sleep(0)
    keys = await _keys_in_turns(seed, packed, pool.entry.block_tokens * TOKEN_BYTES)
    return KeyedPrompt(_findable(pool, keys, len(tokens)), len(tokens), TOKENS)


def _token_keys(pool: LivePool, seed: int, tokens: array[int] | Sequence[int]) -> tuple[int, ...]:
    return _findable(pool, token_block_keys(seed, tokens, pool.entry.block_tokens), len(tokens))


def _findable(pool: LivePool, keys: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    """Remove the block that the last token completes, because engines recompute that token and therefore its block."""
    return keys[: max(0, tokens - 1) // pool.entry.block_tokens]


async def _keys_in_turns(seed: int, data: bytes, block_bytes: int) -> tuple[int, ...]:
    """Return the keys of a long prompt. Each event loop step continues after the previous one."""
    piece_bytes = max(1, TURN_BYTES // block_bytes) * block_bytes
    keys: list[int] = []
    for start in range(0, len(data), piece_bytes):
        if start:
            await asyncio.sleep(0)
        keys.extend(byte_block_keys(keys[-1] if keys else seed, data[start : start + piece_bytes], block_bytes))
    return tuple(keys)


def _text_of(prompt: Prompt) -> bytes:
    """Return bytes that share a beginning if the prompts do: first the template's inputs, then the messages."""
    if isinstance(prompt, TextPrompt):
        return prompt.text.encode()
    if isinstance(prompt, ChatPrompt):
        return _encode([prompt.template, prompt.messages])
    raise TypeError(f"{type(prompt).__name__} has no text")
