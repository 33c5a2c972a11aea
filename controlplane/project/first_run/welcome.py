"""The text that `up` prints when the program responds."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.project.processes.child_process import ChildSpec
from simulator.replay.host_pace import ReplayPace, allowed_cores, pace_words

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
    children: Sequence[ChildSpec] = (),
    show_secrets: bool,
) -> str:
    """Return the text. Secrets are omitted if others could see them or use them from other machines.

    The password is empty if it is no longer valid. The key and the chat's address are empty if there are none.
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
    # Those of the demo whose rate the host sets.
    rates = [float(child.argv[child.argv.index("--qps") + 1]) for child in children if "--pace-file" in child.argv]
    if rates:
        lines += [f"    Traffic   {pace_words([ReplayPace(allowed_cores(), rate, rate) for rate in rates])}"]
    return "\n".join([*lines, f"    Logs      {log_dir}", "", "  Stop with Ctrl-C.", ""])


def _login(user: str, password: str) -> str:
    if password:
        return f"{user} / {password}"
    return f"{user}, with the password you chose or were shown at the first start"
