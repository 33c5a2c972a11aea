"""Request bodies that are expensive to read: some are attacks, others only long prompts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from gateway.base.settings import PROXY_BODY_LIMIT
from tests.gateway.loop_time import FORM_START
from tests.gateway.served_gateway import CHAT, MODEL

MIB = 1 << 20
ROUND = 15 * MIB
MOST = PROXY_BODY_LIMIT - MIB
"""Nearly as much as a gateway takes by default."""


def _body(inner: bytes, field: bytes = b"prompt") -> bytes:
    return b'{"model":"%s","max_tokens":1,"%s":%s}' % (MODEL.encode(), field, inner)


def _many(unit: bytes, size: int, *, field: bytes = b"prompt") -> bytes:
    return _body(b"[" + unit * (size // len(unit)) + b"1]", field)


def _chat(content: str) -> bytes:
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": content}]}).encode()


def _ids(count: int) -> bytes:
    draw = random.Random(1)
    return json.dumps([draw.randrange(150_000) for _ in range(count)]).encode()


def _code(size: int) -> str:
    line = 'if (a["key"] == "b\\n") { f(x, y, [1, 2, 3]); } // é: "quoted", and so on\n\t'
    return line * (size // len(line))


def _image(size: int, count: int = 1) -> bytes:
    url = "data:image/png;base64," + "iVBORw0K" * (size // 8)
    parts = [{"type": "image_url", "image_url": {"url": url}} for _ in range(count)]
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": parts}], "stream": True}).encode()


def _form(size: int) -> bytes:
    model = b'Content-Disposition: form-data; name="model"\r\n\r\n' + MODEL.encode()
    file = b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + b"\x00\r\n--edg" * (size // 8)
    return FORM_START + model + b"\r\n" + FORM_START + file + b"\r\n" + FORM_START.rstrip() + b"--\r\n"


COMPLETIONS = "/v1/completions"
ROUTE = "/api/v1/route"


def _image_beside_text(size: int) -> bytes:
    url = "data:image/png;base64," + "iVBORw0K" * (size // 8)
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": parts}]}).encode()


def _turns(count: int) -> bytes:
    turn = {"role": "user", "content": "some words, said. " * 300}
    return json.dumps({"model": MODEL, "messages": [turn] * count}).encode()


def _keys(count: int) -> bytes:
    keys = b",".join(b'"k%d":1' % number for number in range(count))
    return b'{"model":"%s","messages":[{"role":"user","content":"x",%s}]}' % (MODEL.encode(), keys)


def _two_languages(count: int) -> bytes:
    messages = [{"role": "user", "content": "語é" * count}]
    return json.dumps({"model": MODEL, "messages": messages}, ensure_ascii=False).encode()


Bodies = dict[str, tuple[str, Callable[[], bytes]]]
"""A path and what makes its body, by name: some 600 MB in all, which no process holds that only collects tests."""

GOOD: Bodies = {
    "a string of 12 MiB": (COMPLETIONS, lambda: _body(b'"' + b"abcde fghij, klm: no " * (12 * MIB // 21) + b'"')),
    "a chat of 12 MiB": (CHAT, lambda: _chat("words and, more: words [and] {so} on " * (12 * MIB // 37))),
    "code of 8 MiB": (CHAT, lambda: _chat(_code(6 * MIB))),
    "two languages": (CHAT, lambda: _two_languages(MIB)),
    "audio of the largest size": ("/v1/audio/transcriptions", lambda: _form(MOST)),
    "a million escaped letters": (CHAT, lambda: _chat("語" * MIB)),
    "an image of 10 MiB": (CHAT, lambda: _image_beside_text(10 * MIB)),
    "an image of the largest size": (CHAT, lambda: _image(MOST)),
    "many images of the largest size together": (CHAT, lambda: _image(2 * MIB, MOST // (2 * MIB + 100))),
    "128k token ids": (COMPLETIONS, lambda: _body(_ids(128_000))),
    "a million token ids": (COMPLETIONS, lambda: _body(_ids(1_000_000))),
    "a stream with a salt of its own": (
        CHAT,
        lambda: b'{"stream":true,"cache_salt":"x",' + _chat("words and " * MIB)[1:],
    ),
    "a thousand turns": (CHAT, lambda: _turns(1000)),
    "100k token ids to route": (ROUTE, lambda: _body(_ids(100_000), b"token_ids")),
    "a MiB to route": (ROUTE, lambda: _body(b'"' + b"abcde fghij, klm: no " * (MIB // 21 - 20) + b'"')),
}  # fmt: skip

BAD: Bodies = {
    "a million keys": (CHAT, lambda: _keys(1_100_000)),
    "a MiB of keys": (CHAT, lambda: _keys(74_000)),
    "ones": (COMPLETIONS, lambda: _many(b"1,", ROUND)),
    "empty objects": (COMPLETIONS, lambda: _many(b"{},", ROUND)),
    "small objects": (COMPLETIONS, lambda: _many(b'{"":1},', ROUND)),
    "empty strings": (COMPLETIONS, lambda: _many(b'"",', ROUND)),
    "short strings": (COMPLETIONS, lambda: _many(b'"a\\n",', ROUND)),
    "nulls": (COMPLETIONS, lambda: _many(b"null,", ROUND)),
    "long floats": (COMPLETIONS, lambda: _many(b"0." + b"9" * 800 + b"e-300,", ROUND)),
    "floats between ones": (COMPLETIONS, lambda: _many(b"1," * 200 + b"0." + b"9" * 800 + b"e-300,", ROUND)),
    "long integers": (COMPLETIONS, lambda: _many(b"9" * 400 + b",", ROUND)),
    "blanks": (COMPLETIONS, lambda: _body(b" " * ROUND + b"1")),
    "opened": (COMPLETIONS, lambda: b"[" * ROUND),
    "quotes": (COMPLETIONS, lambda: b'"' * ROUND),
    "escaped quotes": (COMPLETIONS, lambda: _body(b'"' + b'\\"' * (ROUND // 2))),
    "backslashes": (COMPLETIONS, lambda: _body(b'"' + b"\\" * ROUND)),
    "a bad byte at the end": (COMPLETIONS, lambda: _body(b'"' + b"a" * ROUND + b'\xff"')),
    "half a pair at the end": (COMPLETIONS, lambda: _body(b'"' + b"\\u00e9" * (ROUND // 6) + b'\\ud800"')),
    "ones of the largest size": (COMPLETIONS, lambda: _many(b"1,", MOST)),
    "objects of the largest size": (COMPLETIONS, lambda: _many(b'{"":1},', MOST)),
    "backslashes of the largest size": (COMPLETIONS, lambda: _body(b'"' + b"\\" * MOST)),
    "text of the largest size": (CHAT, lambda: _chat("words and, more: words [and] {so} on " * (MOST // 37))),
    "no blank in text of the largest size": (COMPLETIONS, lambda: _body(b'"' + b"a" * MOST + b'"')),
    "half an image of the largest size": (CHAT, lambda: _image(MOST)[:-100]),
    "an image of the largest size with a wrong end": (CHAT, lambda: _image(MOST)[:-8] + b'\xff"}}]}]}'),
    "no end": (COMPLETIONS, lambda: _body(b'"' + b"\\u00e9" * (ROUND // 6))[:-1]),
    "objects to route": (ROUTE, lambda: _many(b'{"":1},', MIB - 200, field=b"messages")),
}  # fmt: skip
"""None of them is answered with 200, and none may hold the loop."""
