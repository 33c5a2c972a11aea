"""`manage.py up --engines URL…`: connects a fixed list of engines in the background, as each of them answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from django.core.management.base import CommandError, OutputWrapper
from django.db import connections

from controlplane.fleet.connect.engine_facts import ConnectRejectedError
from controlplane.fleet.engine_addressing import at_url
from controlplane.fleet.engine_url import RejectedUrlError, normal_url
from controlplane.fleet.models.engine import Engine

RETRY_S = 5.0
"""Pause between two tries. An engine that loads its weights takes minutes until it answers."""


def listed_urls(words: Sequence[str]) -> list[str]:
    """Return the engines' URLs, also of comma-separated lists. Raises ValueError for a text that is no URL."""
    urls = [url for word in words for url in word.split(",") if url]
    try:
        return list(dict.fromkeys(normal_url(url.rstrip("/").removesuffix("/v1")) for url in urls))
    except RejectedUrlError as error:
        raise ValueError(str(error)) from error


def connect_in_background(urls: Sequence[str], out: OutputWrapper, port: int) -> None:
    """Connect these engines in a thread, and print a request once all of them serve."""
    threading.Thread(target=_connect, args=(urls, out, port), name="engines", daemon=True).start()


def _connect(urls: Sequence[str], out: OutputWrapper, port: int) -> None:
    # It imports Celery, which the supervisor does not need at its start.
    from controlplane.management.commands.connect import ready_to_ask

    engines: list[Engine] = []
    said: dict[str, str] = {}
    try:
        # Engines of an earlier start keep the state that operators gave them.
        waiting = [url for url in urls if not Engine.objects.filter(at_url(url)).exists()]
        while waiting:
            for url in list(waiting):
                connected, problem = _connected(url, out)
                engines += connected
                if not problem:
                    waiting.remove(url)
                elif said.get(url) != problem:
                    said[url] = problem
                    out.write(f"  {url}: {problem} Trying again every {RETRY_S:.0f} s.")
                    out.flush()
            time.sleep(RETRY_S if waiting else 0)
        if engines:
            ready_to_ask(out, engines, port)
            out.flush()
    finally:
        connections.close_all()


def _connected(url: str, out: OutputWrapper) -> tuple[list[Engine], str]:
    """Connect one engine. Return the serving engines behind its URL, or why there are none.

    An engine whose cache contents cannot be followed is routed by estimated hits.
    """
    from controlplane.management.commands.connect import Connecting

    problem = ""
    for approximate in (False, True):
        options = {"pool": "", "region": "", "key_env": "", "approximate": approximate}
        connecting = Connecting(out, yes=True, options=options)
        try:
            if connecting.connect(url):
                return connecting.engines, ""
            return [], "Its preflight failed."
        except ConnectRejectedError as rejection:
            problem = f"{rejection.sentence} {rejection.remedy}"
            if not rejection.estimable:
                break
        except CommandError as error:
            return [], str(error)
    return [], problem
