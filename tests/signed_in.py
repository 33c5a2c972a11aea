"""A browser's session with a running console, without a browser."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from typing import Any

from tests.patience import PATIENCE_S


class SignedIn:
    """One person at one console."""

    def __init__(self, url: str) -> None:
        self._url, self._cookies = url, CookieJar()
        self._browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._cookies))

    def sign_in(self, name: str, password: str) -> int:
        """Send the form and return the status of the page behind it; 200 is also that of the form with an error."""
        _, form = self.open("/login")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token is not None, form
        fields = {"username": name, "password": password, "csrfmiddlewaretoken": token[1], "next": "/"}
        return self.open("/login", urllib.parse.urlencode(fields).encode())[0]

    @property
    def is_in(self) -> bool:
        """Whether there is a session."""
        return any(cooky.name == "sessionid" for cooky in self._cookies)

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Send JSON to the API; returns the status and the answer."""
        token = next(cooky.value for cooky in self._cookies if cooky.name == "csrftoken")
        headers = {"Content-Type": "application/json", "X-CSRFToken": token or ""}
        status, text = self.open(f"/api/v1/{path}", json.dumps(body).encode(), headers)
        return status, json.loads(text)

    def open(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Ask for a page; returns the status and the page."""
        request = urllib.request.Request(self._url + path, body, {"Referer": self._url + path, **(headers or {})})
        try:
            with self._browser.open(request, timeout=PATIENCE_S) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
