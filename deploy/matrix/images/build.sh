#!/bin/sh
# Build the images of compose.yaml from Debian packages and PyPI, without a registry. As root, with
# mmdebstrap, podman and pip; any arguments are passed to podman before its command.
#
#     sh build.sh
#
# BUILD is where the downloads are kept (build/), SUITE the release of Debian.
set -eu
cd "$(dirname "$0")"
build=${BUILD:-build} suite=${SUITE:-bookworm}
synapse=matrix-synapse==1.163.0
driver=psycopg2-binary==2.9.11 # Synapse itself asks for psycopg2, which needs a compiler
mkdir -p "$build"

if [ ! -e "$build/rootfs.tar" ]; then
    packages=python3,postgresql,curl,ca-certificates
    mmdebstrap --quiet --variant=minbase --include="$packages" \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        "$suite" "$build/rootfs.part.tar"
    mv "$build/rootfs.part.tar" "$build/rootfs.tar"
fi
if [ ! -e "$build/site/complete" ]; then
    rm -rf "$build/site"
    # For the Python of the image, whatever this machine has.
    ${PIP:-python3 -m pip install} --quiet --target "$build/site" --python-version 3.11 \
        --only-binary :all: "$synapse" "$driver"
    touch "$build/site/complete"
fi

podman "$@" import "$build/rootfs.tar" localhost/rekindle-debian:"$suite"
for name in synapse postgres; do
    podman "$@" build --layers=false --network none --build-arg "SUITE=$suite" --file "Containerfile.$name" \
        --tag "localhost/rekindle-$name:$suite" --volume "$(cd "$build" && pwd)/site:/site:ro" .
done
echo "Built localhost/rekindle-synapse:$suite and localhost/rekindle-postgres:$suite. To use them, add to .env:"
echo "MATRIX_SYNAPSE_IMAGE=localhost/rekindle-synapse:$suite"
echo "MATRIX_POSTGRES_IMAGE=localhost/rekindle-postgres:$suite"
