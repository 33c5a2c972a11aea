"""Serves each static file of the console as a single body, for browsers to keep under its version.

WhiteNoise returns files as blocking iterators. Under ASGI, Django cannot stream such an iterator: it reads the whole
file first and warns on each request. The console's files are small, so they are read here.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.http import HttpRequest, HttpResponse
from typing_extensions import override
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile


class WholeFileMiddleware(WhiteNoiseMiddleware):
    """WhiteNoise, except that each response contains its whole body."""

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        """Return the response for a static file: full, partial (Range), or not modified, as WhiteNoise decides."""
        response = static_file.get_response(request.method, request.META)
        body = b""
        if response.file is not None:
            with response.file:
                body = response.file.read()
        answer = HttpResponse(body, status=int(response.status))
        del answer["content-type"]
        for name, value in response.headers:
            answer[name] = value
        if response.file is not None:
            # The headers date from the start; a file that was rebuilt since then may have another length.
            answer["Content-Length"] = str(len(body))
        name = request.path.removeprefix(settings.STATIC_URL)
        if settings.STATIC_ROOT is None and request.GET.get("v", "-") == _version(name):
            answer["Cache-Control"] = "max-age=31536000, public, immutable"
        return answer


class VersionedStorage(StaticFilesStorage):
    """Adds a digest of a file's content to its URL. For files that no collectstatic has put under hashed names."""

    @override
    def url(self, name: str | None) -> str:
        address: str = super().url(name)
        version = _version(name or "")
        return f"{address}?v={version}" if version else address


def _version(name: str) -> str:
    """Return a digest of the file's content; empty for an unknown file."""
    path = finders.find(name)
    return _digest(path, Path(path).stat().st_mtime_ns) if isinstance(path, str) and Path(path).is_file() else ""


@lru_cache(maxsize=256)
def _digest(path: str, _changed_ns: int) -> str:
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=6).hexdigest()
