"""Sends one message to one address by Apprise."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from django.core.exceptions import ImproperlyConfigured

from controlplane.notifications.models.notification import ADDRESS_ENV
from controlplane.platform.environment import env

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Message:
    """A message as people read it, in plain text."""

    title: str
    text: str
    is_bad: bool = False
    """Whether something got worse: receivers may show it in another color."""


def send(address_env: str, message: Message) -> str:
    """Send the message, and return why it failed; empty: the receiver accepted it.

    The answer never contains the address, which is a secret.
    """
    # Its first import takes half a second, and most processes send nothing.
    import apprise

    try:
        address = env.text(address_env) if re.match(ADDRESS_ENV, address_env) else ""
    except ImproperlyConfigured:
        return f"{address_env}_FILE cannot be read."
    if not address:
        return f"{address_env} is not set in this process."
    receiver = apprise.Apprise(asset=apprise.AppriseAsset(secure_logging=True, app_id="Headway", async_mode=False))
    if not receiver.add(address):
        return f"{address_env} is not an Apprise URL."
    kind = apprise.NotifyType.WARNING if message.is_bad else apprise.NotifyType.INFO
    try:
        accepted = receiver.notify(message.text or message.title, title=message.title, notify_type=kind)
    except Exception as error:  # noqa: BLE001 - plug-ins of many services: what they raise must not end the job
        # Its text could contain the address.
        logger.warning("a notification failed", extra={"error": type(error).__name__, "variable": address_env})
        return f"The receiver's plug-in failed: {type(error).__name__}."
    return "" if accepted else "The receiver did not accept the message."
