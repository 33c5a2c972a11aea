"""A real OpenID provider in a process of its own, which can be made to answer wrongly.

`python -m tests.web.access.oidc_provider` prints its port. PUT /fault chooses what is wrong with its id tokens, POST
/rotate gives it a new signing key, and GET /exchanges returns what clients sent to its token endpoint.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import requests

CLIENT, SECRET = "headway-console", "the-secret-of-this-client-for-its-provider"


class Provider:
    """A running provider. `issuer` is its address."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    def has(self, subject: str, **claims: Any) -> None:
        """Store a person with these claims."""
        assert requests.put(f"{self.issuer}/users/{subject}", json=claims, timeout=10).ok

    def fails(self, fault: str) -> None:
        """Make the next id tokens wrong."""
        assert requests.put(f"{self.issuer}/fault", json=fault, timeout=10).ok

    def rotate(self) -> None:
        """Use another signing key from now on, and publish only that."""
        assert requests.post(f"{self.issuer}/rotate", timeout=10).ok

    def exchanges(self) -> list[dict[str, str]]:
        """Return the forms that clients sent for codes."""
        answer: list[dict[str, str]] = requests.get(f"{self.issuer}/exchanges", timeout=10).json()
        return answer

    def signs_in(self, address: str, subject: str) -> str:
        """Consent as this person at an authorization address. Return the path to which the browser is sent."""
        answer = requests.post(address, data={"sub": subject}, allow_redirects=False, timeout=10)
        parts = urlsplit(answer.headers["Location"])
        return f"{parts.path}?{parts.query}"


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Yield a provider in another process."""
    environment = {**os.environ, "AUTHLIB_INSECURE_TRANSPORT": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.web.access.oidc_provider"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield Provider(f"http://127.0.0.1:{int(process.stdout.readline())}")
        process.terminate()


def _application() -> Any:
    import flask
    import jwt
    import oidc_provider_mock
    from authlib.jose import RSAKey

    app = oidc_provider_mock.app(require_nonce=True)
    state: dict[str, Any] = {"fault": "", "exchanges": []}
    changed = {
        "nonce": lambda now: {"nonce": "of another sign-in"},
        "expired": lambda now: {"iat": now - 7200, "exp": now - 3600},
        "audience": lambda now: {"aud": "another client"},
        "issuer": lambda now: {"iss": "https://another.example.com"},
        "party": lambda now: {"aud": [CLIENT, "x"], "azp": "x"},
        "subject": lambda now: {"sub": ""},
    }

    @app.put("/fault")
    def choose_fault() -> str:
        state["fault"] = flask.request.json
        return ""

    @app.post("/rotate")
    def rotate() -> str:
        flask.g.oidc_provider_mock_storage.jwk = RSAKey.generate_key(is_private=True)
        return ""

    @app.get("/exchanges")
    def exchanges() -> Any:
        return flask.jsonify(state["exchanges"])

    def signed(claims: dict[str, Any], kid: str) -> str:
        fault = state["fault"]
        if fault == "none":
            return jwt.encode(claims, None, algorithm="none", headers={"kid": kid})
        if fault == "secret":
            return jwt.encode(claims, SECRET, algorithm="HS256", headers={"kid": kid})
        key = RSAKey.generate_key(is_private=True) if fault == "key" else flask.g.oidc_provider_mock_storage.jwk
        return jwt.encode(claims, key.as_pem(is_private=True), algorithm="RS256", headers={"kid": kid})

    @app.after_request
    def spoil(answer: Any) -> Any:
        if flask.request.path == "/oauth2/token" and answer.status_code == 200:
            state["exchanges"].append(flask.request.form.to_dict())
            body = answer.get_json()
            claims = jwt.decode(body["id_token"], options={"verify_signature": False})
            kid = flask.g.oidc_provider_mock_storage.jwk.as_dict(add_kid=True)["kid"]
            claims |= changed.get(state["fault"], lambda now: {})(int(time.time()))
            answer.set_data(json.dumps({**body, "id_token": signed(claims, kid)}))
        return answer

    return app


if __name__ == "__main__":
    import werkzeug.serving

    server = werkzeug.serving.make_server("127.0.0.1", 0, _application(), threaded=True)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
