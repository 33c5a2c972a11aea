"""Addresses of the console's pages."""

from __future__ import annotations

from django.urls import path

from web.pages.fleet import fleet
from web.pages.login import sign_in, sign_out
from web.pages.policies import policies
from web.pages.topology import topology

urlpatterns = [
    path("", fleet, name="fleet"),
    path("policies", policies, name="policies"),
    path("topology", topology, name="topology"),
    path("login", sign_in, name="login"),
    path("logout", sign_out, name="logout"),
]
