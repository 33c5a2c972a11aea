"""`python -m deploy.container.healthy URL`: check that this container's server answers URL with status 200."""

from __future__ import annotations

import http.client
import sys
from urllib.parse import urlsplit

TIMEOUT_S = 4.0


def main() -> int:
    """Return 0 if the server answers with status 200, else 1."""
    asked = urlsplit(sys.argv[1])
    connection = http.client.HTTPConnection(asked.netloc, timeout=TIMEOUT_S)
    try:
        connection.request("GET", asked.path)
        return 0 if connection.getresponse().status == http.client.OK else 1
    except (OSError, http.client.HTTPException):
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
