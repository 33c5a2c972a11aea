"""Images on real vLLM engines: their names at the gateway, their names in events, and the engines of conversations."""

from __future__ import annotations

import struct
import subprocess
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.proxy.media_chats import CHAT, ask, user
from tests.gateway.served_gateway import KEY, OTHER_KEY, ServedGateway
from tests.patience import until
from tests.vllm.conftest import MODEL as TEXT_MODEL
from tests.vllm.conftest import PYTHON
from tests.vllm.exact_gateway import exact_gateway
from tests.vllm.models import tiny_vision_model
from tests.vllm.real_engine import BLOCK_TOKENS, MODEL, RealEngine, while_running

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def vision_engines(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RealEngine]]:
    """Run two engines of a model that reads images."""
    folder = tmp_path_factory.mktemp("vision")
    subprocess.run([PYTHON, tiny_vision_model.__file__, folder, TEXT_MODEL], check=True)
    flags = ("--limit-mm-per-prompt", '{"image": 4}', "--mm-processor-cache-gb", "0.1")
    made = [RealEngine(PYTHON, folder, logs / f"vision-{number}.log", flags=flags) for number in range(2)]
    with while_running(made):
        yield made


@pytest.fixture
async def gateway(vision_engines: list[RealEngine], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    """Run a gateway over both, which isolates its tenants' caches."""
    async with exact_gateway(vision_engines, tmp_path, isolated=True) as running:
        yield running


def image(shade: int, **more: str) -> dict[str, Any]:
    """Return an image of one shade of gray."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head, rows = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0), zlib.compress((b"\0" + bytes([shade] * 8)) * 8)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64encode(png).decode()}"}, **more}


async def test_conversations_with_a_leading_image_stay_and_events_identify_their_images(
    gateway: ServedGateway,
) -> None:
    talks = {shade: [user(image(shade, uuid="picture"), "What is it?")] for shade in (10, 80, 150, 220)}
    last: dict[int, tuple[str, int]] = {}
    for turn in range(3):
        for shade in sorted(talks, reverse=turn % 2 == 0):
            engine, predicted, cached, tokens = await ask(gateway, talks[shade])
            if turn:
                before, length = last[shade]
                assert engine == before
                assert cached >= length - 2 * BLOCK_TOKENS
                assert abs(predicted - cached) <= 4 * BLOCK_TOKENS
            else:
                assert (predicted, cached) == (0, 0)
            last[shade] = engine, tokens
            talks[shade] += [{"role": "assistant", "content": "a wall " * 9}, user(f"And turn {turn}? " * 9)]
    # The image has 74 tokens, from the sixth of the prompt. vLLM's own names have 64 digits.
    known = gateway.pool.domains.media_blocks
    await until(lambda: sorted(known.values()) == [3] * 4)
    assert {len(name) for name in known} == {32}


async def test_equal_images_of_two_tenants_share_no_hit(gateway: ServedGateway) -> None:
    messages = [user(image(33), "What is it? " * 20)]
    for key in (KEY, OTHER_KEY):
        assert (await ask(gateway, messages, key))[1:3] == (0, 0)
    for key in (KEY, OTHER_KEY):
        _, predicted, cached, _ = await ask(gateway, messages, key)
        assert min(predicted, cached) >= 2 * BLOCK_TOKENS


async def test_another_image_with_the_same_text_shares_the_blocks_before_it(gateway: ServedGateway) -> None:
    system = {"role": "system", "content": "Be brief and kind. " * 30}
    first, *_ = await ask(gateway, [system, user(image(44), "What is it? " * 20)])
    engine, predicted, cached, _ = await ask(gateway, [system, user(image(55), "What is it? " * 20)])
    assert engine == first
    assert 0 < predicted <= cached <= predicted + 2 * BLOCK_TOKENS


async def test_an_engine_stores_no_image_under_a_name_of_a_client(gateway: ServedGateway) -> None:
    bare = {"type": "image_url", "image_url": None, "uuid": "wall"}
    await ask(gateway, [user(image(66, uuid="wall"), "What is it?")])
    for key in (KEY, OTHER_KEY):
        status, answer, _ = await gateway.post(CHAT, {"model": MODEL, "messages": [user(bare, "x")]}, key=key)
        assert status == 400, answer
