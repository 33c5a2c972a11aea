"""Element counts of a large body, distinguishing strings from the syntax between them."""

from __future__ import annotations

import json
from array import array
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.route_request import prompt_of, read
from gateway.requests.formats.media import without_media
from gateway.server.http import large_body
from gateway.server.http.json_body import (
    BadBodyError,
    _read_in_turns,
    decode_object,
    decode_object_in_turns,
    read_object_in_turns,
)
from gateway.server.http.large_body import (
    MAX_NUMBERS,
    MAX_PARTS,
    MAX_TEXT_BYTES,
    TooManyPartsError,
    held_text,
    surveyed,
    surveyed_at_once,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\[{,:', max_size=5), inner, max_size=4),
    max_leaves=40,
)


@given(VALUES, st.sampled_from([None, 2]))
def test_syntax_outside_strings_matches_a_parser(value: object, indent: int | None) -> None:
    def bare(part: Any) -> Any:
        if isinstance(part, str):
            return ""
        if isinstance(part, list):
            return [bare(item) for item in part]
        return [[bare(name), bare(value)] for name, value in part.items()] if isinstance(part, dict) else part

    signs = json.dumps(bare(value)).replace('""', "").translate({ord(sign): None for sign in " ,"})
    survey = surveyed_at_once(json.dumps(value, indent=indent, ensure_ascii=False).encode()).outside.decode()
    as_lists = survey.translate({ord("{"): "[", ord("}"): "]", ord(":"): None, ord(","): None})
    assert as_lists.replace("[", "").replace("]", "") == signs.replace("[", "").replace("]", "")


@given(st.binary(max_size=300))
def test_no_input_bytes_break_the_scanner(body: bytes) -> None:
    for item in (body, body + b'\\"' * 20 + body):
        try:
            surveyed_at_once(item)
        except UnicodeDecodeError:
            with pytest.raises(UnicodeDecodeError):
                item.decode()
        else:
            item.decode()


@pytest.mark.parametrize("backslashes", [0, 1, 2, 3, 63, 64, 65, 1000, 1001])
def test_a_quote_after_an_odd_number_of_backslashes_is_escaped(backslashes: int) -> None:
    body = b'"' + b"\\" * backslashes + b'" [1] "'
    assert surveyed_at_once(body).outside == (b"[1]" if backslashes % 2 == 0 else b"")


@pytest.mark.parametrize(
    ("part", "most"),
    [
        (b"1,", MAX_NUMBERS),
        (b"0.5,", MAX_PARTS),
        (b'"",', MAX_PARTS // 2),
        (b"[],", MAX_PARTS // 3),
        (b'"\\n",', MAX_PARTS * 4 // 9),
    ],
)
async def test_the_number_of_parts_is_limited(part: bytes, most: int) -> None:
    await surveyed(b"[" + part * (most * 9 // 10) + b"1]", takes_lists=True)
    with pytest.raises(TooManyPartsError):
        await surveyed(b"[" + part * (most * 11 // 10) + b"1]", takes_lists=True)


async def test_a_large_body_is_parsed_like_a_small_one() -> None:
    value = {"messages": [{"role": "user", "content": 'é "quoted", [1] and \\ "\n' * 20_000}], "ids": [1, 2] * 5000}
    body = msgspec.json.encode(value)
    assert len(body) > large_body.SMALL_BYTES
    assert await decode_object_in_turns(body) == decode_object(body) == value


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (b"[" * 70 + b"]" * 70 + b"}", "too_deep"),
        (b'"\\ud800"}', "lone_surrogate"),
        (b'"\\', "not_json"),
        (b'"\xc3"}', "bad_utf8"),
    ],
)
async def test_a_large_body_is_rejected_like_a_small_one(end: bytes, cause: str) -> None:
    for body in (b'{"a":"x","b":' + end, b'{"a":"' + b"x" * 2 * large_body.SMALL_BYTES + b'","b":' + end):
        with pytest.raises(BadBodyError) as caught:
            await decode_object_in_turns(body)
        assert caught.value.cause == cause


async def test_numbers_separated_by_blanks_count_as_short_numbers() -> None:
    await surveyed(json.dumps(list(range(1000)), indent=8).encode(), takes_lists=True)
    with pytest.raises(TooManyPartsError):
        await surveyed(b"[" + b"1,\n" * 1000 + b"9" * 100 + b"]", takes_lists=True)


@pytest.mark.parametrize("blank", ["", " ", "\n    "])
@pytest.mark.parametrize("shape", ['{"prompt":%s,"n":1}', '{"prompt":[%s,[7]],"n":1}', '{"a":[1],"prompt":%s}'])
async def test_a_long_list_is_parsed_in_pieces(blank: str, shape: str) -> None:
    body = (shape % ("[" + f",{blank}".join(map(str, range(300_000))) + "]")).encode()
    survey = await surveyed(body, takes_lists=True)
    assert len(survey.rest) < 100
    assert plain(await decode_object_in_turns(body)) == json.loads(body)


def plain(value: Any) -> Any:
    """Return the value with arrays replaced by lists."""
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | array) else value


@pytest.mark.parametrize("name", ["prompt", "token_ids", "block_hashes"])
async def test_a_route_request_can_hold_a_long_list(name: str) -> None:
    numbers = list(range(60_000))
    body = json.dumps({"model": "m", name: numbers, "other": numbers}).encode()
    asked = await read(body)
    assert list(getattr(asked, name)) == numbers
    assert prompt_of(asked) == prompt_of(await read(json.dumps({"model": "m", name: [*numbers]}).encode()))


@pytest.mark.parametrize("wrong", ["1,,2", "1 2", ",", "01", "", "-", "[[1]]"])
@pytest.mark.parametrize("field", [0, 70_000, 140_000])
async def test_an_invalid_item_of_a_long_list_is_reported_as_not_json(wrong: str, field: int) -> None:
    numbers = list(map(str, range(140_000)))
    body = ('{"a":[' + ",".join([*numbers[:field], wrong, *numbers[field:]]) + "]}").encode()
    if wrong == "[[1]]":
        assert plain(await decode_object_in_turns(body)) == json.loads(body)
        return
    with pytest.raises(BadBodyError) as caught:
        await decode_object_in_turns(body)
    assert caught.value.cause == "not_json"


@pytest.mark.parametrize("shape", ['{"a":{"b":%s}}', '[{"a":%s}]', '{"prompt":[[1],%s]}'])
async def test_a_long_list_in_another_field_is_parsed_with_the_document(shape: str) -> None:
    body = (shape % ("[" + "1," * large_body.SMALL_BYTES + "1]")).encode()
    assert plain((await _read_in_turns(body, takes_lists=True))[0]) == json.loads(body)
    with pytest.raises(BadBodyError, match="quarters"):
        await _read_in_turns(body.replace(b"[1,", b"[" + b"1," * 40_000), takes_lists=True)


def image(fill: str, size: int = 9 << 20) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + fill * size}}


def chat(*parts: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": list(parts)}], **fields}).encode()


async def test_long_media_are_held_separately_and_restored_unchanged() -> None:
    body = chat(image("A"), image("B"), image("A"), {"type": "text", "text": 'with "quotes"'})
    value, held = await read_object_in_turns(body)
    assert held is not None
    urls = [part["image_url"]["url"] for part in value["messages"][0]["content"][:3]]
    assert urls[0] == urls[2] != urls[1]
    assert all(url.startswith("data:ima") and len(url) < 100 for url in urls)
    assert len(held.rest) < 1000
    changed = held.rest.replace(b'"m"', b'"other"')
    sent = b"".join([bytes(piece) async for piece in held.chunks(changed)])
    assert sent == body.replace(b'"m"', b'"other"')
    assert held.size(changed) == len(sent)


async def test_an_image_has_the_same_digest_in_bodies_of_any_size() -> None:
    alone, _ = await read_object_in_turns(chat(image("A")))
    among, held = await read_object_in_turns(chat(image("A"), image("B")))
    assert held is not None
    small, large = (without_media(value["messages"])[0][0]["content"][0] for value in (alone, among))
    assert small == large


@pytest.mark.parametrize("field", ["content", "unknown", "prompt"])
async def test_text_is_not_held_separately_and_has_its_own_limit(field: str) -> None:
    text = "A" * (MAX_TEXT_BYTES // 2)
    inner = json.dumps({field: text})
    value, held = await read_object_in_turns(f'{{"a":{inner},"b":[{json.dumps(image("B"))}]}}'.encode())
    assert value["a"][field] == text
    assert held is not None and len(held.spans) == 1
    with pytest.raises(BadBodyError, match="besides base64 media"):
        await read_object_in_turns(json.dumps({field: text, "a": text + "A"}).encode())


async def test_no_client_can_forge_the_name_of_a_held_text() -> None:
    value, _ = await read_object_in_turns(chat(image("A"), image("B")))
    name = value["messages"][0]["content"][0]["image_url"]["url"]
    assert held_text(name) is not None
    assert held_text(name.replace(name[8:40], "0" * 32)) is None
    assert held_text("data:image/png;base64,AAAA") is None
