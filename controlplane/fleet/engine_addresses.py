"""Follows engines whose host names resolve to a new address, such as rescheduled pods."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from celery import shared_task

from controlplane.fleet.engine_addressing import engine_url_rules
from controlplane.fleet.engine_registration import SOCKET_FIELDS
from controlplane.fleet.engine_url import CheckedUrl, RejectedUrlError, Resolver, bracketed, check_engine_url, resolve
from controlplane.fleet.models.engine import Engine
from controlplane.platform import recorded_change
from controlplane.platform.actor import program
from controlplane.platform.revisions import StaleRevisionError

ACTOR = program("addresses")
AT_ONCE = 16
"""Number of names resolved concurrently, so that a silent name server delays only this many."""

logger = logging.getLogger(__name__)


def follow_addresses(resolver: Resolver = resolve) -> int:
    """Publish the new addresses of engines whose host names resolve differently. Return how many changed.

    An engine is unchanged if its name has no address or a forbidden one.
    """
    named = [engine for engine in Engine.objects.select_related("pool") if _by_name(engine)]

    def ask(engine: Engine) -> CheckedUrl | None:
        try:
            return check_engine_url(engine.url, engine_url_rules(engine.pool), resolver)
        except RejectedUrlError as error:
            # Its name is resolved again in seconds, and engine health judges the engine.
            logger.info(
                "an engine's name was not followed", extra={"engine": engine.engine_id, "reason": str(error)[:200]}
            )
            return None

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="addresses") as threads:
        answers = list(threads.map(ask, named))
    return sum(_moved(engine, answer) for engine, answer in zip(named, answers, strict=True) if answer is not None)


def _by_name(engine: Engine) -> bool:
    """Return whether the engine's name was resolved. https connects by name, and its certificate is verified."""
    return urlsplit(engine.url).hostname != urlsplit(engine.connect_url).hostname


def _moved(engine: Engine, answer: CheckedUrl) -> bool:
    before = urlsplit(engine.connect_url).hostname or ""
    # Any of them: name servers rotate the order of a host's addresses.
    if before in answer.addresses:
        return False
    changes = {"connect_url": answer.connect_url}
    for field in SOCKET_FIELDS:
        # They were resolved at registration; those on the same machine have moved with it.
        endpoint = getattr(engine, field)
        if endpoint and urlsplit(endpoint).hostname == before:
            changes[field] = f"tcp://{bracketed(answer.address)}:{urlsplit(endpoint).port}"
    why = f"{urlsplit(engine.url).hostname} has another address"
    try:
        recorded_change.change(engine, changes, "engine.move", actor=ACTOR, expected=engine.revision, why=why)
    except (StaleRevisionError, Engine.DoesNotExist):
        # Another process changed it meanwhile; the next round reads the new state.
        return False
    return True


@shared_task(name="controlplane.engine_addresses", ignore_result=True)
def engine_addresses() -> None:
    """Run every ten seconds. It needs no lease, because an address change is conditional on the engine's revision."""
    follow_addresses()
