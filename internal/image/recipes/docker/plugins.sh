#!/bin/sh
# Installs Compose 2 and buildx, which Debian 12 does not have, from Debian 13, with the sources
# that this build installs everything from. They need nothing of Debian 13 but themselves: a C library
# of Debian 12 does. Nothing else of it is installed, and nothing of it stays in apt's lists.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial"
cat /etc/apt/sources.list.d/0000* | sed '/^Suites:/s/bookworm/trixie/g' >"$work/next.sources"
next() {
	apt-get -q -o APT::Sandbox::User=root -o Dir::Etc::SourceList="$work/next.sources" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State::Lists="$work/lists" "$@"
}
cd "$work"
next update
next download docker-compose docker-buildx
dpkg --install docker-compose_2.*.deb docker-buildx_*.deb
docker-compose version --short
