"""Forms of the audio API, as an engine reads them: each second of assumed audio becomes tokens."""

from __future__ import annotations

import zlib
from array import array
from email.parser import BytesParser
from email.policy import HTTP
from typing import Literal

import msgspec

from simulator.engine_server.api_error import ApiError
from simulator.engine_server.request_bodies import GenerationBody

Format = Literal["json", "text", "srt", "vtt", "verbose_json"]
BYTES_PER_S, TOKENS_PER_S = 16_000, 50
"""128 kbit/s, and what Whisper's encoder makes of a second."""


class AudioBody(GenerationBody, frozen=True, kw_only=True):
    """Body of /v1/audio/transcriptions and /v1/audio/translations."""

    file: bytes
    response_format: Format = "json"


def audio_body(form: bytes, content_type: str) -> AudioBody:
    """Return the body in a form; raises ApiError 400 where it is wrong."""
    message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + form)
    fields: dict[str, object] = {}
    for part in message.iter_parts() if message.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        held = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(held, bytes):
            fields[name] = held if part.get_filename() is not None else held.decode(errors="replace")
    fields["stream"] = str(fields.get("stream", "")).lower() in ("true", "1")
    try:
        return msgspec.convert(fields, AudioBody, strict=False)
    except msgspec.ValidationError as error:
        raise ApiError(400, str(error)) from None


def audio_tokens(file: bytes) -> array[int]:
    """Return the tokens of audio: so many as its length has, of its content."""
    seed = zlib.crc32(file)
    return array("I", [(seed + number) % 50_000 for number in range(max(1, len(file) * TOKENS_PER_S // BYTES_PER_S))])
