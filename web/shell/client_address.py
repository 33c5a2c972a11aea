"""The address from which a request came."""

from __future__ import annotations

import ipaddress

from django.conf import settings
from django.http import HttpRequest

UNKNOWN = ""


def client_address(request: HttpRequest) -> str:
    """Return the client's IP address. Behind our TLS proxy, it is the header's last one, added by the proxy."""
    if settings.SECURE_PROXY_SSL_HEADER:
        forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
        if _is_address(forwarded):
            return forwarded
    offered = request.META.get("REMOTE_ADDR", "")
    return offered if _is_address(offered) else UNKNOWN


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
