"""The output of `up` once the program answers."""

from __future__ import annotations

_NO_KEY = "create one on the Access page"


def welcome(
    *,
    url: str,
    user: str,
    password: str,
    api_key: str,
    served_model: str,
    log_dir: str,
    chat: str = "",
    show_secrets: bool,
) -> str:
    """Return the block of text; secrets are left out where others may see them or use them from outside.

    The password is empty if it no longer opens the console; the key and the address of the example chat are empty if
    there is none.
    """
    lines = ["", "  Headway is running", "", f"    Console   {url}"]
    if show_secrets:
        lines += [
            f"    Login     {_login(user, password)}",
            f"    API key   {api_key or _NO_KEY}",
        ]
    else:
        lines += ["    Login and API key are in first_run.json in the state directory."]
    if served_model:
        lines += [f"    Model     {served_model}   (POST {url}v1/chat/completions)"]
    if chat:
        lines += [f"    Chat      {chat}   (an example that sends advisories)"]
    return "\n".join([*lines, f"    Logs      {log_dir}", "", "  Stop with Ctrl-C.", ""])


def _login(user: str, password: str) -> str:
    if password:
        return f"{user} / {password}"
    return f"{user}, with the password you chose or were shown at the first start"
