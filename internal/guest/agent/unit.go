package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"holt"
	"holt/internal/guest/unit"
)

// unitDir is the directory of the units of services, both added ones and those of the template.
const unitDir = "/etc/systemd/system"

const (
	unitSuffix = ".service"
	// inFork are the lines of a unit that is restarted in a fork, before the target
	// is reached; package image also writes them.
	inFork = "PartOf=" + forkTarget + "\nBefore=" + forkTarget
	// specMark begins the line with a service's spec in a unit, in a section that
	// systemd ignores. A unit without it was not created here.
	specMark = "Spec="
	// ofTemplate ends the description of a service of the template; package image writes it.
	ofTemplate = ", of the template"
)

// unitText returns the systemd unit of a service (systemd.service(5)).
func unitText(s holt.ServiceSpec) (string, error) {
	shown := s
	shown.Env = nil // written as lines of their own
	spec, err := json.Marshal(shown)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Made by holt service add; holt service delete removes it.\n[Unit]\nDescription=%s\nStartLimitIntervalSec=0", s.Name)
	if s.RestartInFork {
		line(inFork)
	}
	line("\n[Service]\nType=exec\nEnvironmentFile=-/etc/environment\nEnvironmentFile=-/%s", proxyEnvironment)
	env := "" // not Environment=, which EnvironmentFile= overrides
	if len(s.Env) > 0 {
		env = "/usr/bin/env "
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		env += unit.Argument(string(k+"="+s.Env[k])) + " "
	}
	line("User=%s\nWorkingDirectory=%s", s.User, strings.ReplaceAll(string(s.Cwd), "%", "%%"))
	line("ExecStart=%s/bin/bash -c %s", env, unit.Argument(string(s.Command)))
	b.WriteString(unit.AwaitReady(env, s.Ready.Port, string(s.Ready.Command)))
	line("TimeoutStartSec=%d\nTimeoutStopSec=10\nRestart=%s\nRestartSec=1", s.Ready.Seconds, s.Restart)
	line("\n[Install]\nWantedBy=multi-user.target\n\n[X-Holt]\n%s%s", specMark, spec)
	return b.String(), nil
}

// readUnit returns the service of a unit file; ok is false if it is not one.
func readUnit(path, text string) (s holt.Service, ok bool) {
	s.Name = strings.TrimSuffix(filepath.Base(path), unitSuffix)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		key, value, _ := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, specMark):
			ok = json.Unmarshal([]byte(value), &s.Spec) == nil && s.Spec.Name == s.Name
		case key == "Description" && value == s.Name+ofTemplate:
			s.Template, ok = true, true
		case key == "PartOf" && value == forkTarget:
			s.Spec.RestartInFork = true
		case key == "User":
			s.Spec.User = value
		case key == "WorkingDirectory":
			s.Spec.Cwd = holt.OSString(value)
		case key == "Restart":
			s.Spec.Restart = holt.ServiceRestart(value)
		case key == "ExecStart" && s.Spec.Command == "":
			if _, word, found := strings.Cut(value, `/bin/sh -c "`); found { // after the variables
				value = word
			}
			command := strings.Trim(value, `"`)
			s.Spec.Command = holt.OSString(strings.NewReplacer(`\\`, `\`, `\"`, `"`, "%%", "%", "$$", "$").Replace(command))
		}
	}
	s.Spec.Name, s.Spec.Env = s.Name, nil
	if s.Template && s.Spec.User == "" {
		s.Spec.User = "root"
	}
	return s, ok
}
