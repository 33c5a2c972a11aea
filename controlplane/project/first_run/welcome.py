"""What `up` prints once the program answers."""

from __future__ import annotations

from dataclasses import dataclass

_NO_KEY = "create one on the Access page"


@dataclass(frozen=True, slots=True)
class Welcome:
    """What a person needs to get started."""

    url: str
    user: str
    password: str
    """Empty where it no longer opens the console."""
    api_key: str
    """Empty where there is none."""
    served_model: str
    log_dir: str
    chat: str = ""
    """Address of the example chat; empty: there is none."""


def render(welcome: Welcome, *, show_secrets: bool) -> str:
    """Return the block of text; secrets are left out where others may see them or use them from outside."""
    lines = ["", "  Switchyard is running", "", f"    Console   {welcome.url}"]
    if show_secrets:
        lines += [
            f"    Login     {_login(welcome)}",
            f"    API key   {welcome.api_key or _NO_KEY}",
        ]
    else:
        lines += ["    Login and API key are in first_run.json in the state directory."]
    if welcome.served_model:
        lines += [f"    Model     {welcome.served_model}   (POST {welcome.url}v1/chat/completions)"]
    if welcome.chat:
        lines += [f"    Chat      {welcome.chat}   (an example that sends advisories)"]
    return "\n".join([*lines, f"    Logs      {welcome.log_dir}", "", "  Stop with Ctrl-C.", ""])


def _login(welcome: Welcome) -> str:
    if welcome.password:
        return f"{welcome.user} / {welcome.password}"
    return f"{welcome.user}, with the password you chose or were shown at the first start"
