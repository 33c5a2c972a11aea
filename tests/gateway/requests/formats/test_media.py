"""Media in prompts are opaque: a digest represents each part, and its length is a bounded estimate."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.requests.formats.endpoints import BY_PATH
from gateway.requests.formats.media import LEAST_TOKENS, LINKED_TOKENS, MOST_TOKENS, with_names, without_media
from gateway.server.http.json_body import BadBodyError


def _message(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def _image(data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data}}


def test_messages_without_media_stay_the_same_objects() -> None:
    messages = [{"role": "user", "content": "hi"}, _message({"type": "text", "text": "a"}), {"role": "assistant"}, 5]
    plain, media = without_media(messages)
    assert plain is messages
    assert media == ()


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
    (message,), (medium,) = without_media([_message(text, part)])
    assert message["content"][0] is text
    assert message["content"][1] == {"type": "text", "text": medium.engine_candidate}
    assert medium.engine_candidate.startswith("[media ")
    assert medium.tokens == LINKED_TOKENS


def test_equal_parts_have_equal_digests_and_different_parts_differ() -> None:
    reported = [
        without_media([_message(part)])[0][0]["content"][0]["text"]
        for part in (
            _image("data:a"),
            {**_image("data:a"), "cache_control": {"type": "ephemeral"}},
            {"image_url": {"url": "data:a"}, "type": "image_url"},
            _image("data:b"),
            {"type": "image_url", "image_url": {"url": "data:a", "detail": "low"}},
        )
    ]
    assert reported[0] == reported[1] == reported[2]
    assert len(set(reported[2:])) == 3


@pytest.mark.parametrize(("size", "tokens"), [(5000, LEAST_TOKENS), (512_000, 2000), (4_000_000, MOST_TOKENS)])
def test_the_length_estimate_grows_with_the_part_between_bounds(size: int, tokens: int) -> None:
    (medium,) = without_media([_message(_image("data:" + "x" * size))])[1]
    assert medium.tokens == pytest.approx(tokens, abs=1)


def test_field_boundaries_change_the_digest() -> None:
    first = without_media([_message({"type": "image", "a": "xy", "b": "z"})])[0]
    second = without_media([_message({"type": "image", "a": "x", "b": "yz"})])[0]
    assert first != second


FOREIGN = ("file:///etc/passwd", "FILE:///a.png", "/etc/hostname.png", "a.jpg", "ftp://host/a.png", "AAAA", "")


@pytest.mark.parametrize("address", FOREIGN)
@pytest.mark.parametrize("kind", ["image_url", "audio_url", "video_url", "input_image", "document", "image"])
def test_media_read_from_the_engines_own_files_are_rejected(kind: str, address: str) -> None:
    for held in ({"url": address}, {"source": {"type": "url", "url": address}}):
        with pytest.raises(BadBodyError, match="data:, http:, or https: URL"):
            without_media([_message({"type": kind, kind: held})])
    with pytest.raises(BadBodyError, match="data:, http:, or https: URL"):
        without_media([_message({"type": kind, "image_url": address})])


@pytest.mark.parametrize("address", ["data:image/png;base64,AAAA", "https://example.org/a.png", "HTTP://example.org/a"])
def test_inline_and_web_media_are_accepted(address: str) -> None:
    (medium,) = without_media([_message(_image(address))])[1]
    assert (medium.tokens, medium.linked) == (LINKED_TOKENS, not address.startswith("data:"))


@pytest.mark.parametrize("part", [{"type": "image_url"}, {"type": "text", "text": "a"}])
def test_media_named_for_use_by_other_clients_are_rejected(part: dict[str, Any]) -> None:
    with pytest.raises(BadBodyError, match="Leave uuid out"):
        without_media([_message({**part, "image_url": None, "uuid": "logo"})])


def test_a_digest_covers_the_content_or_else_the_name() -> None:
    image, bare = _image("data:a"), {"type": "image_url", "image_url": None}
    parts = (image, {**image, "uuid": "logo"}, {**bare, "uuid": "logo"}, {**bare, "uuid": "icon"}, bare)
    media = without_media([_message(*parts)], named=True)[1]
    assert media[0].digest == media[1].digest
    assert len({item.digest for item in media}) == 4


def test_no_content_has_the_digest_of_a_name() -> None:
    bare = {"type": "image_url", "image_url": {"url": None}, "uuid": "logo"}
    alike = [{"type": "image_url", "image_url": ["uuid", "logo"]}, {"uuid": "logo", "file": ["logo"]}]
    media = without_media([_message(bare, *alike)], named=True)[1]
    assert len({item.digest for item in media}) == 3


def test_a_client_supplied_media_hash_is_rejected() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:a", "content_hash": "0" * 64}}
    for named in (False, True):
        with pytest.raises(BadBodyError, match="Leave content_hash out"):
            without_media([_message(part)], named=named)


@pytest.mark.parametrize("name", [5, "", ["logo"]])
def test_a_media_name_must_be_a_string(name: object) -> None:
    with pytest.raises(BadBodyError, match="non-empty string"):
        without_media([_message({**_image("data:a"), "uuid": name})], named=True)


@pytest.mark.parametrize(
    "path", ["/v1/embeddings", "/v1/responses", "/v1/messages", "/tokenize", "/pooling", "/rerank", "/score"]
)
def test_only_chats_accept_media_names(path: str) -> None:
    part = {"type": "image", "source": {"type": "base64", "data": "AAAA"}, "uuid": "logo"}
    chat = [_message({"type": "text", "text": "a"}, part)]
    pairs = path in ("/rerank", "/score")
    body = {"query": "a", "text_1": "a", "documents": [part], "text_2": [part]} if pairs else {"messages": chat}
    with pytest.raises(BadBodyError, match="Leave uuid out"):
        BY_PATH[path].prompt({**body, "input": chat} if path == "/v1/responses" else body)
    BY_PATH["/v1/chat/completions"].prompt({"messages": chat})


def test_engines_get_our_media_names_and_none_of_the_clients() -> None:
    text = {"type": "text", "text": "look"}
    linked = {**_image("https://example.org/a.png"), "uuid": "theirs"}
    messages = [{"role": "system", "content": "s"}, _message(text, {**_image("data:a"), "uuid": "logo"}, linked)]
    _, after = with_names(messages, ["ours", ""])
    assert after["content"] == [text, {**_image("data:a"), "uuid": "ours"}, _image("https://example.org/a.png")]
    assert messages[1]["content"][1]["uuid"] == "logo"


IMAGE = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
ANTHROPIC = {"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [ANTHROPIC]}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [_message(IMAGE)]}),
        ("/v1/embeddings", {"messages": [_message(IMAGE)]}),
        ("/tokenize", {"messages": [_message(IMAGE)]}),
        ("/v1/responses", {"input": [_message({"type": "input_image", "image_url": "/etc/a.png"})]}),
        ("/v1/messages", {"messages": [RESULT]}),
        ("/v1/messages/count_tokens", {"messages": [RESULT]}),
        ("/v1/rerank", {"query": "a", "documents": [{"content": [IMAGE]}]}),
        ("/v1/score", {"data_1": {"content": [IMAGE]}, "data_2": "b"}),
    ],
)
def test_every_endpoint_rejects_client_media_names(path: str, body: dict[str, Any]) -> None:
    with pytest.raises(BadBodyError, match="data:, http:, or https: URL"):
        BY_PATH[path].prompt(body)
