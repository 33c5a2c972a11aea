"""The container image, built as `make image` builds it, and containers of it on this host's network."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.packages.package_tools import DEPLOY, tool
from tests.program import end

ROOT = DEPLOY.parent
ACCOUNT = 10001
BASE = "localhost/headway-base:amd64"
_NAME = "localhost/headway-test"
# A host without CAP_SYS_RESOURCE lets no container raise a limit.
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
LIMITS = [f"--ulimit=nofile={_FILES}:{_FILES}", "--ulimit=nproc=4096:4096"]
# As in compose.yaml and in the chart.
_CONFINED = ["--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--no-healthcheck"]


class Container:
    """A running container."""

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in the container."""
        return subprocess.run([*self._command, *words], check=False, capture_output=True, text=True)


class Image:
    """A built image. Its containers run by podman; by `buildah run` where the kernel forbids podman's namespaces."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runtime = _runtime_that_works(name)
        """Podman's runtime, empty if none works."""
        self._podman = ["podman", "--runtime", self.runtime] if self.runtime else []

    @contextmanager
    def container(self, name: str, words: list[str], env: Mapping[str, str], state: Path) -> Iterator[Container]:
        """Run `words` in a container during the block, with `state` as its state directory; log to `state`.log."""
        state.mkdir(mode=0o700)
        os.chown(state, ACCOUNT, ACCOUNT)
        name = f"headway-test-{os.getpid()}-{name}"
        variables = [f"--env={key}={value}" for key, value in {**env, "HOME": "/var/lib/headway"}.items()]
        given = [*variables, f"--volume={state}:/var/lib/headway"]
        with state.with_suffix(".log").open("wb") as log:
            run, inside, drop = self._commands(name, words, given)
            if not self._podman:
                subprocess.run(["buildah", "from", "--name", name, self.name], check=True, stdout=log)
            process = subprocess.Popen(run, stdout=log, stderr=log)
            try:
                yield Container(inside)
            finally:
                end(process)
                subprocess.run(drop, check=False, capture_output=True)

    def _commands(self, name: str, words: list[str], given: list[str]) -> tuple[list[str], list[str], list[str]]:
        """Return the commands that run `words` in a new container, run more in it, and remove it."""
        if not self._podman:
            inside = ["buildah", "run", "--isolation=chroot", *given, name, "--"]
            return [*inside, *words], inside, ["buildah", "rm", name]
        run = [*self._podman, "run", f"--name={name}", "--network=host", *LIMITS, *_CONFINED, *given, self.name]
        return [*run, *words], [*self._podman, "exec", name], ["podman", "rm", "-f", name]


def _runtime_that_works(name: str) -> str:
    """Return the first of podman's runtimes that runs a container here, empty if none does."""
    for runtime in ("crun", "runc"):
        tried = ["podman", "--runtime", runtime, "run", "--rm", "--network=host", *LIMITS, *_CONFINED, name, "true"]
        if subprocess.run(tried, check=False, capture_output=True).returncode == 0:
            return runtime
    return ""


@contextmanager
def built_image() -> Iterator[Image]:
    """Build the image from the files that git knows; about 700 MB, for these tests alone."""
    debootstrap = tool("debootstrap")
    if os.geteuid() != 0:
        pytest.skip("only root may make a Debian root")
    for needed in ("buildah", "podman"):
        if shutil.which(needed) is None:
            pytest.skip(f"no {needed}: apt-get install buildah podman runc")
    source = Path(tempfile.mkdtemp(prefix="headway-image-"))
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        for file in listed.stdout.splitlines():
            if not file.startswith(("tests/", "bench/", "docs/")) and (ROOT / file).is_file():
                (source / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / file, source / file)
        env = {**os.environ, "IMAGE": _NAME, "BASE": "debootstrap", "DEBOOTSTRAP": debootstrap}
        script = source / "deploy" / "container" / "image.sh"
        built = subprocess.run(["sh", script], env=env, check=False, capture_output=True, text=True)
        assert built.returncode == 0, f"{built.stdout[-3000:]}{built.stderr[-3000:]}"
        yield Image(_NAME)
    finally:
        shutil.rmtree(source, ignore_errors=True)
        subprocess.run(["podman", "rmi", "-f", _NAME], check=False, capture_output=True)
