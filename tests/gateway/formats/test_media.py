"""Media in prompts are opaque: a digest stands for each part, and its length is a bounded guess."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.formats.media import LEAST_TOKENS, LINKED_TOKENS, MOST_TOKENS, without_media


def _message(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def _image(data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data}}


def test_messages_without_media_stay_the_same_objects() -> None:
    messages = [{"role": "user", "content": "hi"}, _message({"type": "text", "text": "a"}), {"role": "assistant"}, 5]
    plain, tokens = without_media(messages)
    assert plain is messages
    assert tokens == 0


@pytest.mark.parametrize(
    "part",
    [
        _image("https://example.org/a.png"),
        {"image_url": {"url": "https://example.org/a.png"}},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}},
        {"type": "file", "file": {"file_id": "f"}},
    ],
)
def test_each_kind_of_media_becomes_a_digest(part: dict[str, Any]) -> None:
    text = {"type": "text", "text": "look"}
    (message,), tokens = without_media([_message(text, part)])
    assert message["content"][0] is text
    assert message["content"][1]["type"] == "text"
    assert message["content"][1]["text"].startswith("[media ")
    assert tokens == LINKED_TOKENS


def test_equal_parts_have_equal_digests_and_others_have_not() -> None:
    told = [
        without_media([_message(part)])[0][0]["content"][0]["text"]
        for part in (
            _image("data:a"),
            {**_image("data:a"), "cache_control": {"type": "ephemeral"}},
            {"image_url": {"url": "data:a"}, "type": "image_url"},
            _image("data:b"),
            {"type": "image_url", "image_url": {"url": "data:a", "detail": "low"}},
        )
    ]
    assert told[0] == told[1] == told[2]
    assert len(set(told[2:])) == 3


@pytest.mark.parametrize(("size", "tokens"), [(5000, LEAST_TOKENS), (512_000, 2000), (4_000_000, MOST_TOKENS)])
def test_the_guess_grows_with_the_part_between_bounds(size: int, tokens: int) -> None:
    assert without_media([_message(_image("x" * size))])[1] == pytest.approx(tokens, abs=1)


def test_parts_do_not_run_into_each_other() -> None:
    first = without_media([_message({"type": "image", "a": "xy", "b": "z"})])[0]
    second = without_media([_message({"type": "image", "a": "x", "b": "yz"})])[0]
    assert first != second
