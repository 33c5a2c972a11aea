"""Serves each static file of the console as a single body.

WhiteNoise returns files as blocking iterators. Under ASGI, Django cannot stream such an iterator: it reads the whole
file first and warns on each request. The console's files are small, so they are read here.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
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
        return answer
