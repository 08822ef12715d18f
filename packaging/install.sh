#!/bin/sh
# Installs the program holt:
#
#   curl -fsSL URL/install.sh | sh -s URL
#
# URL is where this file is served with the others of the release, or a directory of this machine. As root it installs to
# /usr/local/bin, else to ~/.local/bin, or to $HOLT_BIN. Nothing is installed unless its SHA-256 is right.
set -eu
url=${1:-@URL@}
say() { echo "install holt: $*" >&2; }
fail() {
	say "$*"
	exit 1
}
[ -n "$url" ] || fail "say where the release is: sh -s URL"
[ "$(uname -s)" = Linux ] || fail "holt runs on Linux"
case $(uname -m) in
x86_64) name=holt_linux_amd64 ;;
aarch64) name=holt_linux_arm64 ;;
*) fail "there is no release for $(uname -m)" ;;
esac
if [ "$(id -u)" = 0 ]; then bin=${HOLT_BIN:-/usr/local/bin}; else bin=${HOLT_BIN:-$HOME/.local/bin}; fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for file in "$name" SHA256SUMS; do
	case $url in
	*://*)
		if command -v curl >/dev/null; then
			curl -fsSL -o "$tmp/$file" "$url/$file" || fail "cannot fetch $url/$file"
		else
			wget -qO "$tmp/$file" "$url/$file" || fail "cannot fetch $url/$file"
		fi
		;;
	*) cp "$url/$file" "$tmp/$file" || fail "there is no $url/$file" ;;
	esac
done
(cd "$tmp" && grep "  $name\$" SHA256SUMS | sha256sum -c --quiet >&2) || fail "the SHA-256 of $name is not that in SHA256SUMS"
mkdir -p "$bin"
install -m 755 "$tmp/$name" "$bin/.holt.new"
mv "$bin/.holt.new" "$bin/holt"
say "$bin/holt is version $("$bin/holt" version | sed -n 's/^ *"version": "\(.*\)".*/\1/p')"
case :$PATH: in
*:$bin:*) say "next: holt up" ;;
*) say "$bin is not in PATH; next: $bin/holt up" ;;
esac
