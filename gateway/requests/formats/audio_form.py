"""Reads the forms of OpenAI's audio API (`multipart/form-data`): their fields and the file's length.

The file is not decoded, and the form is sent to the engine unchanged.
"""

from __future__ import annotations

import asyncio
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from gateway.requests.formats.owned_fields import REMOVED
from gateway.requests.formats.prompt import UnmatchedPrompt
from gateway.server.http.json_body import BadBodyError, lax_flag

FILE = "file"
AUDIO_BYTES_PER_TOKEN = 320
"""Whisper makes 50 tokens from a second of audio, which is 16 kB at 128 kbit/s. Raw audio counts as more tokens."""
MAX_PARTS = 64
MAX_VALUE = 64 * 1024
"""Limit of all fields except the file, in bytes."""
_TURN_BYTES = 256 * 1024
_TEXT_TOKEN_BYTES = 4


def audio_prompt(body: dict[str, Any]) -> UnmatchedPrompt:
    """Return the assumed work: the file's tokens, in pieces within a pool's limit; raise BadBodyError."""
    size = body.get(FILE)
    if not isinstance(size, int):
        raise BadBodyError("bad_field", "Send file as a part with a filename.", param=FILE)
    return UnmatchedPrompt(0, size // AUDIO_BYTES_PER_TOKEN * _TEXT_TOKEN_BYTES)


async def read_form(body: bytes, content_type: bytes) -> dict[str, Any]:
    """Return the form's fields as texts, `stream` as a bool, and the file as its number of bytes.

    Raise BadBodyError. Parsing never blocks the event loop for long.
    """
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise BadBodyError("not_a_form", "Send a form: Content-Type multipart/form-data with a boundary.")
    form = _Form()
    try:
        parser = MultipartParser(boundary, form.callbacks())
        for start in range(0, len(body), _TURN_BYTES):
            if start:
                await asyncio.sleep(0)
            parser.write(body[start : start + _TURN_BYTES])
        parser.finalize()
    except FormParserError:
        form.ended = False
    if not form.ended:
        raise BadBodyError("not_a_form", "The form cannot be read, or ends early.")
    return form.read()


class _Form:
    """The parser's results. Mutable: the parts so far, and the current header and part."""

    def __init__(self) -> None:
        self.ended = False
        self._sizes: dict[str, int] = {}
        self._texts: dict[str, bytes] = {}
        self._parts = self._text_bytes = 0
        self._header, self._value = b"", b""
        self._name, self._is_file = "", False

    def callbacks(self) -> Any:
        """Return the parser's callbacks by name."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers,
            "on_part_data": self._on_data,
            "on_end": self._end,
        }

    def read(self) -> dict[str, Any]:
        """Return the fields by name, with the last value of each; raise BadBodyError for content that engines must not
        receive.
        """
        # Forms may write lists and objects as name[…].
        if sent := sorted(REMOVED & {name.partition("[")[0] for name in (*self._texts, *self._sizes)}):
            raise BadBodyError("bad_field", f"Only Headway sets {sent[0]}; leave it out of forms.", param=sent[0])
        try:
            fields: dict[str, Any] = {name: value.decode() for name, value in self._texts.items()}
        except UnicodeDecodeError:
            raise BadBodyError("bad_utf8", "A field of the form is not UTF-8.") from None
        fields["stream"] = lax_flag(fields.get("stream", "").strip()) is True
        return {**fields, **self._sizes}

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise BadBodyError("too_complex", f"The form has more than {MAX_PARTS} parts; send fewer.")
        self._name, self._is_file = "", False
        self._header = self._value = b""

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            _, options = parse_options_header(self._value)
            self._name = options.get(b"name", b"").decode(errors="replace")
            self._is_file = b"filename" in options
        self._header = self._value = b""

    def _on_headers(self) -> None:
        if self._is_file:
            self._sizes[self._name] = 0
        else:
            self._texts[self._name] = b""

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._sizes[self._name] += end - start
            return
        self._text_bytes += end - start
        if self._text_bytes > MAX_VALUE:
            raise BadBodyError("too_complex", f"The form's fields have more than {MAX_VALUE} bytes beside the file.")
        self._texts[self._name] += data[start:end]

    def _end(self) -> None:
        self.ended = True
