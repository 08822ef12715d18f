package image

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Service is a program that runs in every computer of the template from its
// start on. It becomes a systemd unit, so systemctl and journalctl know it by
// its name. A computer is ready, and its template's snapshot is taken, once all
// of them are.
type Service struct {
	Name        string            `json:"name"`                  // of the unit, without .service
	Command     string            `json:"command"`               // for /bin/sh -c
	User        string            `json:"user,omitempty"`        // default: root
	Directory   string            `json:"directory,omitempty"`   // that it runs in; default: /
	Environment map[string]string `json:"environment,omitempty"` // beside /etc/environment
	After       []string          `json:"after,omitempty"`       // units that it waits for and needs; a service of the template by its name
	// Restart says when it is started again after its end, a second later and
	// without a limit: always, on-failure (default) or no.
	Restart string `json:"restart,omitempty"`
	Ready   Ready  `json:"ready,omitzero"`
	// RestartInFork restarts it in each fork before the fork is ready.
	RestartInFork bool `json:"restart_in_fork,omitempty"`
}

// Ready says when a service is ready: when it accepts connections at a TCP port
// of its loopback, when a command succeeds, or as soon as it has begun. One that is
// not ready in time has failed, and Restart says what then.
type Ready struct {
	Port    int    `json:"port,omitempty"`
	Command string `json:"command,omitempty"` // for /bin/sh -c, as the service's user; asked five times a second
	Seconds int    `json:"seconds,omitempty"` // it may take; default: 60
}

const defaultReadySeconds = 60

func (s Service) check() error {
	if err := eachMatches("service", unitRE, slices.Concat(s.After, []string{s.Name})); err != nil {
		return err
	}
	bad := func(format string, args ...any) error { return fmt.Errorf("service "+s.Name+": "+format, args...) }
	switch {
	case strings.Contains(s.Name, "."):
		return bad("its name has a dot; the unit is %s.service", clip(s.Name))
	case !oneLine(s.Command) || strings.TrimSpace(s.Command) == "":
		return bad("its command is empty, or has more than one line")
	case s.User != "" && s.User != "root" && !userRE.MatchString(s.User):
		return bad("%q cannot be a user", clip(s.User))
	case s.Directory != "" && !cleanPath(s.Directory):
		return bad("%q is not an absolute, clean path", clip(s.Directory))
	case !slices.Contains([]string{"", "always", "on-failure", "no"}, s.Restart):
		return bad("restart is always, on-failure or no")
	case s.Ready.Port < 0 || s.Ready.Port > 65535:
		return bad("%d is no port", s.Ready.Port)
	case s.Ready.Port != 0 && s.Ready.Command != "":
		return bad("ready has a port and a command; choose one")
	case !oneLine(s.Ready.Command):
		return bad("its ready command has more than one line")
	case s.Ready.Seconds < 0 || s.Ready.Seconds > 3600:
		return bad("ready may take 1 to 3600 seconds")
	case len(s.Environment) > 256:
		return bad("its environment has more than 256 variables")
	}
	for k, v := range s.Environment {
		if !variableRE.MatchString(k+"=") || !oneLine(v) {
			return bad("%q cannot be a variable, or its value has more than one line", clip(k))
		}
	}
	return nil
}

// units are the units that have to be up before a computer is ready: the services defined and
// what they come after, and those that are enabled.
func (s Services) units() []string {
	names := slices.Concat(defined(s.Define), s.Enable)
	for _, one := range s.Define {
		names = append(names, one.After...)
	}
	var out []string
	for _, name := range names {
		if !slices.Contains(s.Disable, name) && !slices.Contains(s.Mask, name) && !strings.Contains(name, "@.") { // a template unit is none itself
			out = append(out, unitName(name))
		}
	}
	return uniq(out)
}

// unitName is the whole name of a unit.
func unitName(name string) string {
	if strings.Contains(name, ".") {
		return name
	}
	return name + ".service"
}

// oneLine tells whether s can stand in a line of a unit.
func oneLine(s string) bool {
	return len(s) <= 8192 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r == '\ufffd' })
}

// unit is the text of its systemd unit, as systemd.service(5) has it.
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
	env := "" // not Environment=, which counts less than a file
	if len(s.Environment) > 0 {
		env = "/usr/bin/env "
	}
	for _, k := range slices.Sorted(maps.Keys(s.Environment)) {
		env += argument(k+"="+s.Environment[k]) + " "
	}
	if s.User != "" {
		line("User=%s", s.User)
	}
	if s.Directory != "" {
		line("WorkingDirectory=%s", strings.ReplaceAll(s.Directory, "%", "%%"))
	}
	line("ExecStart=%s/bin/sh -c %s", env, argument(s.Command))
	if probe := s.Ready.probe(); probe != "" {
		line("ExecStartPost=%s/bin/bash -c %s", env, argument("until "+probe+" >/dev/null 2>&1; do sleep 0.2; done"))
	}
	line("TimeoutStartSec=%d", cmp.Or(s.Ready.Seconds, defaultReadySeconds))
	line("Restart=%s\nRestartSec=1", cmp.Or(s.Restart, "on-failure"))
	line("\n[Install]\nWantedBy=multi-user.target")
	return b.String()
}

// probe is a shell command that succeeds once the service is ready, or "".
func (r Ready) probe() string {
	if r.Port != 0 {
		return "(exec 3<>/dev/tcp/127.0.0.1/" + strconv.Itoa(r.Port) + ")"
	}
	if r.Command == "" {
		return ""
	}
	return "/bin/sh -c " + quote(r.Command)
}

// word makes one word of s for a unit file, where % would stand for something else.
func word(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`).Replace(s) + `"`
}

// argument makes one word of s for a command in a unit file, where $ would, too.
func argument(s string) string { return strings.ReplaceAll(word(s), "$", "$$") }
