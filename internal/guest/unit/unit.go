// Package unit writes what the systemd units of services have in common: of those in a template, and of those added to a
// computer. See systemd.service(5).
package unit

import (
	"strconv"
	"strings"
)

// Argument quotes s as one argument of a command, and escapes % and $.
func Argument(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`).Replace(s) + `"`
}

// AwaitReady returns the line that ends the start of a service when its port listens or, without a port (0), when its
// shell command succeeds; it fails when the service's process has ended. env comes before the command. It returns "" if
// there is neither.
func AwaitReady(env string, port int, command string) string {
	var probe string
	switch {
	case port != 0:
		probe = "(exec 3<>/dev/tcp/127.0.0.1/" + strconv.Itoa(port) + ")"
	case command != "":
		probe = "/bin/sh -c '" + strings.ReplaceAll(command, "'", `'\''`) + "'"
	default:
		return ""
	}
	return "ExecStartPost=" + env + "/bin/bash -c " + Argument("until "+probe+" >/dev/null 2>&1; do [ -d /proc/$MAINPID ] || exit 1; sleep 0.2; done") + "\n"
}
