package holt

import (
	"slices"
	"strings"
	"time"
)

// ServiceSpec describes a program that a computer keeps running.
type ServiceSpec struct {
	Name    string                `json:"name" doc:"a DNS label; also the name of the systemd unit"`
	Command OSString              `json:"command" minLength:"1" doc:"for /bin/bash -c, on one line"`
	User    string                `json:"user,omitempty" doc:"Linux user by name or number; default: agent"`
	Cwd     OSString              `json:"cwd,omitempty" doc:"working directory, absolute; default: the workspace"`
	Env     map[OSString]OSString `json:"env,omitempty" doc:"environment variables in addition to /etc/environment; not shown again"`
	Restart ServiceRestart        `json:"restart,omitempty" enum:"always,on-failure,no" doc:"when it is restarted; default: on-failure"`
	Ready   ServiceReady          `json:"ready,omitzero"`
	// RestartInFork restarts it in each fork before the fork is ready, for programs that generate random numbers in advance.
	RestartInFork bool `json:"restart_in_fork,omitempty" doc:"restart it in each fork and when a snapshot is restored, before the computer answers any call"`
}

// ServiceRestart says when a service is restarted, one second after its end.
type ServiceRestart string

// The kinds of restart.
const (
	RestartAlways    ServiceRestart = "always"
	RestartOnFailure ServiceRestart = "on-failure"
	RestartNo        ServiceRestart = "no"
)

// ServiceReady says when a service is ready: when it accepts connections on a TCP port
// of the loopback, when a command exits with 0, or when it has started. If it is not
// ready in time, it has failed.
type ServiceReady struct {
	Port    int      `json:"port,omitempty" minimum:"0" maximum:"65535"`
	Command OSString `json:"command,omitempty" doc:"for /bin/sh -c, as the service's user, on one line; run five times a second"`
	Seconds int      `json:"seconds,omitempty" minimum:"0" maximum:"3600" doc:"time limit to become ready; default: 60"`
}

const (
	defaultReady    = 60 // seconds
	mostReady       = 3600
	mostServiceLine = 8 << 10 // bytes
	mostServiceEnv  = 256
)

// ServiceState is the state of a service.
type ServiceState string

// The states of services.
const (
	ServiceStarting   ServiceState = "starting" // running, not ready yet
	ServiceRunning    ServiceState = "running"  // running and ready
	ServiceRestarting ServiceState = "restarting"
	ServiceStopping   ServiceState = "stopping"
	ServiceStopped    ServiceState = "stopped" // stopped, or ended with status 0
	ServiceFailed     ServiceState = "failed"
)

// Service is a program that a computer keeps running, as its systemd reports it.
type Service struct {
	Name        string       `json:"name"`
	Spec        ServiceSpec  `json:"spec" doc:"without its environment"`
	Template    bool         `json:"template,omitempty" doc:"it is part of the template"`
	State       ServiceState `json:"state" enum:"starting,running,restarting,stopping,stopped,failed"`
	Wanted      bool         `json:"wanted" doc:"it is started with the computer"`
	Since       *time.Time   `json:"since,omitempty" doc:"when the state began"`
	PID         int          `json:"pid,omitempty"`
	Restarts    int          `json:"restarts,omitempty" doc:"number of automatic restarts"`
	ExitCode    int          `json:"exit_code,omitempty" doc:"exit status of its last end; 128 + signal number if a signal ended it"`
	Signal      string       `json:"signal,omitempty" doc:"the signal of its last end"`
	Reason      string       `json:"reason,omitempty" doc:"why it has failed, as reported by systemd: exit-code, signal, timeout, oom-kill, …"`
	OutOfMemory *OutOfMemory `json:"out_of_memory,omitempty" doc:"the kernel recently killed processes of the service because memory ran out"`
}

// ServiceLogQuery selects a part of a service's log.
type ServiceLogQuery struct {
	Lines  int  // number of lines from the end; 0: 1,000
	Follow bool // continue with new lines
}

// MostServiceLines is the maximum number of lines of a service's log in one call.
const MostServiceLines = 100_000

// Normal returns a spec with its defaults filled in. Errors: InvalidArgument.
func (s ServiceSpec) Normal() (ServiceSpec, error) {
	if _, err := ParseName(s.Name); err != nil {
		return s, err
	}
	bad := func(format string, args ...any) (ServiceSpec, error) {
		return s, Errorf(InvalidArgument, "service "+s.Name+": "+format, args...).WithHint("holt service add --help lists the settings")
	}
	if s.Restart == "" {
		s.Restart = RestartOnFailure
	}
	if s.User == "" {
		s.User = "agent"
	}
	if s.Cwd == "" {
		s.Cwd = "/home/agent"
	}
	if s.Ready.Seconds == 0 {
		s.Ready.Seconds = defaultReady
	}
	switch {
	case strings.TrimSpace(string(s.Command)) == "" || !unitLine(s.Command):
		return bad("the command is empty, has more than one line, or is longer than %d bytes", mostServiceLine)
	case !unitLine(s.Ready.Command):
		return bad("the ready command has more than one line, or is longer than %d bytes", mostServiceLine)
	case !userWord(s.User):
		return bad("invalid user %q", clip(s.User))
	case s.Cwd[0] != '/' || !unitLine(s.Cwd):
		return bad("%q is not an absolute directory", clip(string(s.Cwd)))
	case !slices.Contains([]ServiceRestart{RestartAlways, RestartOnFailure, RestartNo}, s.Restart):
		return bad("restart must be always, on-failure or no")
	case s.Ready.Port < 0 || s.Ready.Port > mostPort:
		return bad("invalid port %d", s.Ready.Port)
	case s.Ready.Port != 0 && s.Ready.Command != "":
		return bad("the ready port and the ready command exclude each other")
	case s.Ready.Seconds < 0 || s.Ready.Seconds > mostReady:
		return bad("the ready time must be 1 to %d seconds", mostReady)
	case len(s.Env) > mostServiceEnv:
		return bad("the environment has more than %d variables", mostServiceEnv)
	}
	for k, v := range s.Env {
		if !variableName(string(k)) || !unitLine(v) {
			return bad("invalid variable name %q, or its value has more than one line", clip(string(k)))
		}
	}
	return s, nil
}

// unitLine reports whether s fits on a line of a unit file.
func unitLine(s OSString) bool {
	return len(s) <= mostServiceLine && !strings.ContainsFunc(string(s), func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r == '\ufffd' })
}

func userWord(s string) bool {
	return len(s) <= 32 && s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.')
	})
}

func variableName(s string) bool {
	return s != "" && len(s) <= 255 && (s[0] < '0' || s[0] > '9') && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_')
	})
}
