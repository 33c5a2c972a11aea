#!/bin/sh
# Build the container image with buildah, podman, or docker: make image [IMAGE=headway] [PLATFORM=linux/arm64] [BASE=debootstrap].
# BASE=debootstrap makes the base image from Debian's packages, for hosts that reach no registry; it needs root and podman.
set -eu
cd "$(dirname "$0")/../.."

IMAGE=${IMAGE:-headway}
ARCH=$(dpkg --print-architecture 2>/dev/null || uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
PLATFORM=${PLATFORM:-linux/$ARCH}
BASE=${BASE:-docker.io/library/debian:trixie-slim}

# A Debian root with the certificates that this host trusts in addition to Debian's, such as those of a company's proxy.
make_base() {
  BASE=localhost/headway-base:${PLATFORM#linux/}
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  "${DEBOOTSTRAP:-debootstrap}" --arch="${PLATFORM#linux/}" --variant=minbase trixie "$root" http://deb.debian.org/debian
  cp -R /usr/local/share/ca-certificates "$root/usr/local/share/"
  tar --numeric-owner -C "$root" -c . | podman import --quiet --os linux --arch "${PLATFORM#linux/}" - "$BASE"
}

tool=
for name in buildah podman docker; do
  if command -v "$name" >/dev/null; then tool=$name && break; fi
done
if [ -z "$tool" ]; then
  echo "Install buildah, podman, or docker to build the image (Debian: apt-get install buildah podman)." >&2
  exit 1
fi
if [ "$BASE" = debootstrap ]; then make_base; fi

# The OCI format has no health check; docker's has. Steps of buildah run without a namespace of their own, as a build
# inside a container has to.
case $tool in
  buildah) set -- buildah build --format docker --isolation chroot ;;
  podman) set -- podman build --format docker ;;
  docker) set -- docker build ;;
esac
"$@" --platform "$PLATFORM" --build-arg "BASE=$BASE" --tag "$IMAGE" --file deploy/container/Dockerfile .
