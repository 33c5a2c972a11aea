"""Build the Helm chart, and the wheels with their bills of materials, into dist/.

`make dist` or `python -m deploy.packages [--out DIR]`.

Equal sources give equal files: their times are that of the last commit. The console must be built (`make setup`).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).parent
CHART = ROOT / "deploy" / "helm" / "headway"
ROOMS = (
    *("controlplane", "deploy", "examples", "gateway", "headway_client", "kvstore", "planning", "routing", "simulator"),
    *("templates", "web", "manage.py", "pyproject.toml", "requirements.txt"),
)
"""What the application runs from."""
CONNECTOR = ("backends", "connector", "keys", "tiers", "transfer", "__init__.py")
"""The parts of kvstore/ that run inside vLLM."""
CONNECTOR_NEEDS = ("msgspec", "xxhash")
EXTRAS = {
    "psycopg": "postgres",
    "kubernetes": "k8s",
    "opentelemetry-sdk": "otel",
    "opentelemetry-semantic-conventions": "otel",
    "opentelemetry-exporter-otlp-proto-http": "otel",
}
"""Packages that only some installations need, with the extra that installs them."""
_EXCLUDED = shutil.ignore_patterns("__pycache__", "*.pyc", "frontend")


def main(argv: Sequence[str] | None = None) -> None:
    """Build the chart and all three wheels."""
    parser = argparse.ArgumentParser(prog="python -m deploy.packages", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheels (default: dist)")
    out = parser.parse_args(argv).out.resolve()
    if not (ROOT / "web" / "static" / "dist").is_dir():
        raise SystemExit("The console is not built: run `make setup` first.")
    out.mkdir(parents=True, exist_ok=True)
    _pack_chart(out)
    needs = {item.name: item for item in requirements_in(ROOT / "requirements.txt")}
    for name, summary, wants, options in (
        ("headway", _project()["description"], *application_needs(needs)),
        ("headway-client", "Client of Headway's decision API", ["httpx>=0.28,<1"], {}),
        (
            "headway-vllm-connector",
            "KV connector for vLLM that stores blocks on Headway's node managers",
            [f"{item}>={_least(needs[item])}" for item in CONNECTOR_NEEDS],
            {},
        ),
    ):
        with TemporaryDirectory() as folder:
            stage = Path(folder)
            _STAGED[name](stage)
            (stage / "pyproject.toml").write_text(metadata(name, summary, wants, options))
            for text in ("LICENSE", "NOTICE", "README.md"):
                shutil.copy(ROOT / text, stage)
            (stage / "sbom.cdx.json").write_text(json.dumps(bill_of_materials(name), indent=1, sort_keys=True))
            _build(stage, out)


def requirements_in(path: Path) -> Iterator[Requirement]:
    """Return the pins of a requirements file."""
    for line in path.read_text().splitlines():
        if pin := line.partition("#")[0].strip():
            yield Requirement(pin)


def application_needs(needs: Mapping[str, Requirement]) -> tuple[list[str], dict[str, list[str]]]:
    """Return what each installation of the application needs, and what each extra adds."""
    options: dict[str, list[str]] = {
        "picker": [str(item) for item in requirements_in(ROOT / "deploy/requirements-envoy.txt")]
    }
    for name, extra in EXTRAS.items():
        options.setdefault(extra, []).append(str(needs[name]))
    return [str(item) for name, item in needs.items() if name not in EXTRAS], options


def metadata(name: str, summary: str, wants: Sequence[str], options: Mapping[str, Sequence[str]]) -> str:
    """Return the pyproject.toml of a package."""
    project = _project()
    fields = {
        "name": name,
        "version": project["version"],
        "description": summary,
        "readme": "README.md",
        "requires-python": project["requires-python"],
        "license": project["license"],
        "license-files": ["LICENSE", "NOTICE"],
        "dependencies": list(wants),
    }
    lines = ["[project]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items())]
    if options:
        lines += [
            "[project.optional-dependencies]",
            *(f"{key} = {json.dumps(options[key])}" for key in sorted(options)),
        ]
    if name == "headway":
        lines += ["[project.scripts]", 'headway = "headway:main"']
    lines += [
        "[build-system]",
        'requires = ["hatchling"]',
        'build-backend = "hatchling.build"',
        "[tool.hatch.build.targets.wheel]",
        f'packages = ["{name.replace("-", "_")}"]',
        'sbom-files = ["sbom.cdx.json"]',
        # The console's scripts are built files, which .gitignore excludes.
        "[tool.hatch.build]",
        "ignore-vcs = true",
    ]
    return "\n".join([*lines, ""])


def bill_of_materials(name: str) -> dict[str, Any]:
    """Return the CycloneDX document: for the application also the npm packages inside its console."""
    version = _project()["version"]
    root = {"type": "application" if name == "headway" else "library", "name": name, "version": version}
    root |= {"bom-ref": name, "purl": f"pkg:pypi/{name}@{version}", "licenses": [{"license": {"id": "Apache-2.0"}}]}
    parts = []
    if name == "headway":
        parts = [*_python_parts(), *_console_parts()]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root},
        "components": parts,
        "dependencies": [{"ref": name, "dependsOn": sorted(part["bom-ref"] for part in parts)}],
    }


def _python_parts() -> list[dict[str, Any]]:
    """Return the locked packages that pip installs beside the application, extras included."""
    pins = [line.rstrip(" \\") for line in (ROOT / "requirements.lock").read_text().splitlines() if line[:1].isalnum()]
    return [_part("pypi", item.name, _least(item)) for item in map(Requirement, pins)]


def _console_parts() -> list[dict[str, Any]]:
    """Return the packages whose code the bundles contain: the locked dependencies that are no tools of the build."""
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    parts = []
    for path, facts in sorted(locked.items()):
        name = path.rpartition("node_modules/")[2]
        if not name or facts.get("dev") or facts.get("optional") or name in _BUILD_TOOLS:
            continue
        part = _part("npm", name, facts["version"])
        if licence := facts.get("license"):
            part["licenses"] = [{"expression": licence}]
        parts.append(part)
    return parts


_BUILD_TOOLS = frozenset({"esbuild", "axe-core"})


def _part(kind: str, name: str, version: str) -> dict[str, Any]:
    purl = f"pkg:{kind}/{name.replace('@', '%40', 1)}@{version}"
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


def _application(stage: Path) -> None:
    package = stage / "headway"
    shutil.copytree(SOURCES / "headway", package, ignore=_EXCLUDED)
    for room in ROOMS:
        _copy(ROOT / room, package / "_rooms" / room)
    # What builds the wheels needs the source tree.
    shutil.rmtree(package / "_rooms" / "deploy" / "packages")


def _client(stage: Path) -> None:
    _copy(ROOT / "headway_client", stage / "headway_client")
    (stage / "headway_client" / "py.typed").touch()


def _connector(stage: Path) -> None:
    package = stage / "headway_vllm_connector"
    shutil.copytree(SOURCES / "headway_vllm_connector", package, ignore=_EXCLUDED)
    for part in CONNECTOR:
        _copy(ROOT / "kvstore" / part, package / "_rooms" / "kvstore" / part)


_STAGED = {"headway": _application, "headway-client": _client, "headway-vllm-connector": _connector}


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=_EXCLUDED)
    else:
        shutil.copy(source, target)


def _build(stage: Path, out: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": _last_change()}
    done = subprocess.run(command, cwd=stage, env=environment, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    # hatchling names the file on standard error.
    print(out / Path((done.stdout + done.stderr).split()[-1]).name)  # noqa: T201


def _pack_chart(out: Path) -> None:
    """Pack the Helm chart as `helm package` does, with the files that its links name."""
    [version] = re.findall(r"^version: (\S+)$", (CHART / "Chart.yaml").read_text(), re.MULTILINE)

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode, member.mtime = 0o644, int(_last_change())
        return member

    path = out / f"headway-{version}.tgz"
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", dereference=True) as archive,
    ):
        for item in sorted(CHART.rglob("*")):
            if item.is_file():
                archive.add(item, Path("headway") / item.relative_to(CHART), filter=plain)
    print(path)  # noqa: T201


def _last_change() -> str:
    """Return the time of the last commit; outside a checkout the given SOURCE_DATE_EPOCH, or a fixed time."""
    command = ["git", "log", "-1", "--format=%ct"]
    try:
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("SOURCE_DATE_EPOCH", "1700000000")


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def _least(item: Requirement) -> str:
    return next(iter(item.specifier)).version


if __name__ == "__main__":
    main()
