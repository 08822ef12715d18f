#!/bin/sh
# "docker compose": Debian's Compose is a program of its own, docker-compose, that takes the same words.
# Another Compose in ~/.docker/cli-plugins or /usr/local/lib/docker/cli-plugins comes before this one.
if [ "$1" = docker-cli-plugin-metadata ]; then
	echo '{"SchemaVersion": "0.1.0", "Vendor": "Debian", "Version": "1.29.2", "ShortDescription": "Docker Compose"}'
	exit
fi
# Docker's own options stand before the word compose, and those of docker-compose before its command.
seen=
for word; do
	shift
	if [ -z "$seen" ] && [ "$word" = compose ]; then
		seen=1
	else
		set -- "$@" "$word"
	fi
done
exec docker-compose "$@"
