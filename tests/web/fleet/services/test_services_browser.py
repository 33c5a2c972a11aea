"""Layout of the Services page: no panel overflows a desktop or a phone, and axe reports no serious violation."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Page

from controlplane.fleet.model_services import create_service
from controlplane.fleet.models.model_service import ProviderUsage
from controlplane.platform.actor import program
from tests.web.axe import assert_fits, serious_violations, serious_violations_in_both_themes
from tests.web.conftest import OpenPage
from tests.web.fleet.sovereignty.some_regions import some_regions

pytestmark = [
    pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("database_beside_playwright"),
]  # fmt: skip
PICTURES = os.environ.get("SERVICES_PICTURES", "")
PROVIDER = {"provider_url": "https://api.example.com/v1", "provider_model": "big-1", "provider_region": "eu"}


@pytest.fixture
def page(transactional_db: None, open_page: OpenPage) -> Page:
    """Return a browser page that is signed in as an admin."""
    some_regions()
    actor = program("test")
    pools = ["chat-eu", "chat-us"]
    create_service("chat", aliases=["gpt-4o-mini", "gpt-4o"], pools=pools, fallback=True, actor=actor, **PROVIDER)
    create_service("code", aliases=["org/code-model"], pools=["chat-asia"], actor=actor)
    ProviderUsage.objects.create(service="chat", day=datetime.now(UTC).date(), requests=1287, cost=12.4)
    return open_page("admin", color_scheme="dark")


def test_services_page_fits_and_has_no_axe_violation(page: Page) -> None:
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto("/engines/services?service=chat")
        page.get_by_label("Provider URL").wait_for()
        if PICTURES:
            page.screenshot(path=Path(PICTURES) / f"services-{width}.png", full_page=True)
        assert_fits(page, width)
        assert (serious_violations_in_both_themes if width == 1440 else serious_violations)(page) == []
