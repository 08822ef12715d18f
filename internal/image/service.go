package image

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"holt/internal/guest/unit"
)

// Service is a program that runs in every computer of the template from its
// start on. It is a systemd unit, for systemctl and journalctl. A computer is ready,
// and its template's snapshot is taken, once all its services are ready.
type Service struct {
	Name        string            `json:"name"`                  // of the unit, without .service
	Command     string            `json:"command"`               // for /bin/sh -c
	User        string            `json:"user,omitempty"`        // default: root
	Directory   string            `json:"directory,omitempty"`   // working directory; default: /
	Environment map[string]string `json:"environment,omitempty"` // in addition to /etc/environment
	After       []string          `json:"after,omitempty"`       // units that it requires and starts after; a service of the template by its name
	// Restart says whether it is started again after its end: always, on-failure (default)
	// or no. It is started after a second, any number of times.
	Restart string `json:"restart,omitempty"`
	Ready   Ready  `json:"ready,omitzero"`
	// RestartInFork restarts it in each fork before the fork is ready.
	RestartInFork bool `json:"restart_in_fork,omitempty"`
}

// Ready says when a service is ready: when it accepts connections at a TCP port
// of the loopback, when a command succeeds, or as soon as it has started. A service that is
// not ready in time has failed; see Restart.
type Ready struct {
	Port    int    `json:"port,omitempty"`
	Command string `json:"command,omitempty"` // for /bin/sh -c, as the service's user; run five times a second
	Seconds int    `json:"seconds,omitempty"` // timeout; default: 60
}

const defaultReadySeconds = 60

func (s Service) check() error {
	if err := eachMatches("service", unitRE, slices.Concat(s.After, []string{s.Name})); err != nil {
		return err
	}
	bad := func(format string, args ...any) error { return fmt.Errorf("service "+s.Name+": "+format, args...) }
	switch {
	case strings.Contains(s.Name, "."):
		return bad("the name has a dot; the unit would be %s.service", clip(s.Name))
	case !oneLine(s.Command) || strings.TrimSpace(s.Command) == "":
		return bad("the command is empty or has more than one line")
	case s.User != "" && s.User != "root" && !userRE.MatchString(s.User):
		return bad("invalid user %q", clip(s.User))
	case s.Directory != "" && !cleanPath(s.Directory):
		return bad("%q is not an absolute, clean path", clip(s.Directory))
	case !slices.Contains([]string{"", "always", "on-failure", "no"}, s.Restart):
		return bad("restart must be always, on-failure or no")
	case s.Ready.Port < 0 || s.Ready.Port > 65535:
		return bad("invalid port %d", s.Ready.Port)
	case s.Ready.Port != 0 && s.Ready.Command != "":
		return bad("ready has a port and a command; choose one")
	case !oneLine(s.Ready.Command):
		return bad("the ready command has more than one line")
	case s.Ready.Seconds < 0 || s.Ready.Seconds > 3600:
		return bad("seconds of ready must be 1 to 3600")
	case len(s.Environment) > 256:
		return bad("the environment has more than 256 variables")
	}
	for k, v := range s.Environment {
		if !variableRE.MatchString(k+"=") || !oneLine(v) {
			return bad("invalid variable %q, or its value has more than one line", clip(k))
		}
	}
	return nil
}

// units returns the units that must be active before a computer is ready: the defined services, the
// units that they come after, and the enabled units.
func (s Services) units() []string {
	names := slices.Concat(defined(s.Define), s.Enable)
	for _, one := range s.Define {
		names = append(names, one.After...)
	}
	var out []string
	for _, name := range names {
		if !slices.Contains(s.Disable, name) && !slices.Contains(s.Mask, name) && !strings.Contains(name, "@.") { // a template unit cannot be active
			out = append(out, unitName(name))
		}
	}
	return uniq(out)
}

// unitName returns the name of a unit with its type.
func unitName(name string) string {
	if strings.Contains(name, ".") {
		return name
	}
	return name + ".service"
}

// oneLine reports whether s can be in a line of a unit file.
func oneLine(s string) bool {
	return len(s) <= 8192 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r == '\ufffd' })
}

// unit returns the text of the unit file, see systemd.service(5).
func (s Service) unit() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("[Unit]\nDescription=%s, of the template", s.Name)
	line("StartLimitIntervalSec=0")
	if s.RestartInFork {
		line("PartOf=holt-fork.target\nBefore=holt-fork.target") // see package agent
	}
	for _, u := range s.After {
		u = unitName(u)
		line("Requires=%s\nAfter=%s", u, u)
	}
	line("\n[Service]\nType=exec\nEnvironmentFile=-/etc/environment")
	env := "" // not Environment=, which EnvironmentFile= overrides
	if len(s.Environment) > 0 {
		env = "/usr/bin/env "
	}
	for _, k := range slices.Sorted(maps.Keys(s.Environment)) {
		env += unit.Argument(k+"="+s.Environment[k]) + " "
	}
	if s.User != "" {
		line("User=%s", s.User)
	}
	if s.Directory != "" {
		line("WorkingDirectory=%s", strings.ReplaceAll(s.Directory, "%", "%%"))
	}
	line("ExecStart=%s/bin/sh -c %s", env, unit.Argument(s.Command))
	b.WriteString(unit.AwaitReady(env, s.Ready.Port, s.Ready.Command))
	line("TimeoutStartSec=%d", cmp.Or(s.Ready.Seconds, defaultReadySeconds))
	line("Restart=%s\nRestartSec=1", cmp.Or(s.Restart, "on-failure"))
	line("\n[Install]\nWantedBy=multi-user.target")
	return b.String()
}
