"""Copy deploy/nginx/nginx.conf to another folder with other ports, for benchmarks and tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[3] / "deploy/nginx"


def nginx_folder(folder: Path, port: int, gateway: str, changes: Mapping[str, str]) -> Path:
    """Write nginx.conf and the script into `folder` and return the configuration's path.

    `gateway` is host:port of Headway. `changes` are further replacements. Raises ValueError for one without effect.
    """
    text = (DEPLOY / "nginx.conf").read_text()
    moved = {
        "127.0.0.1:8000": gateway,
        "127.0.0.1:8080": f"127.0.0.1:{port}",
        "/etc/headway": str(folder),
        "/var/log/nginx": str(folder),
        "/run/": f"{folder}/",
        "modules/": "/usr/lib/nginx/modules/",
        **changes,
    }
    for ours, here in moved.items():
        if ours not in text:
            raise ValueError(f"nginx.conf has no {ours!r}")
        text = text.replace(ours, here)
    (folder / "nginx.conf").write_text(text)
    (folder / "headway.js").write_text((DEPLOY / "headway.js").read_text())
    return folder / "nginx.conf"
