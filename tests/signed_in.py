"""A client with a browser's session at a running console."""

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
        """Send the login form and return the status of the next page; 200 may also be the form with an error."""
        _, form = self.open("/login")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token is not None, form
        fields = {"username": name, "password": password, "csrfmiddlewaretoken": token[1], "next": "/"}
        return self.open("/login", urllib.parse.urlencode(fields).encode())[0]

    @property
    def is_in(self) -> bool:
        """Return whether there is a session."""
        return any(cooky.name == "sessionid" for cooky in self._cookies)

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Send JSON to the API; return the status and the response."""
        token = next(cooky.value for cooky in self._cookies if cooky.name == "csrftoken")
        headers = {"Content-Type": "application/json", "X-CSRFToken": token or ""}
        status, text = self.open(f"/api/v1/{path}", json.dumps(body).encode(), headers)
        return status, json.loads(text)

    def open(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, str]:
        """Request a page; return the status and the page."""
        request = urllib.request.Request(self._url + path, body, {"Referer": self._url + path, **(headers or {})})
        try:
            with self._browser.open(request, timeout=PATIENCE_S) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
