package holt

import (
	"slices"
	"strings"
	"time"
)

// ServiceSpec describes a program that a computer is to keep running.
type ServiceSpec struct {
	Name    string                `json:"name" doc:"a DNS label; of the systemd unit, too"`
	Command OSString              `json:"command" minLength:"1" doc:"for /bin/bash -c, in one line"`
	User    string                `json:"user,omitempty" doc:"Linux user by name or number; default: agent"`
	Cwd     OSString              `json:"cwd,omitempty" doc:"working directory, absolute; default: the workspace"`
	Env     map[OSString]OSString `json:"env,omitempty" doc:"environment beside /etc/environment; it is not shown again"`
	Restart ServiceRestart        `json:"restart,omitempty" enum:"always,on-failure,no" doc:"when it is started again after its end; default: on-failure"`
	Ready   ServiceReady          `json:"ready,omitzero"`
	// RestartInFork restarts it in each fork before the fork is ready: for programs that draw random numbers ahead.
	RestartInFork bool `json:"restart_in_fork,omitempty" doc:"restart it in each fork and when a snapshot is restored, before the computer answers any call"`
}

// ServiceRestart says when a service is started again after its end, a second later.
type ServiceRestart string

// The kinds of restart.
const (
	RestartAlways    ServiceRestart = "always"
	RestartOnFailure ServiceRestart = "on-failure"
	RestartNo        ServiceRestart = "no"
)

// ServiceReady says when a service is ready: when it accepts connections at a TCP port
// of its loopback, when a command ends with 0, or as soon as it has begun. One that is
// not ready in time has failed.
type ServiceReady struct {
	Port    int      `json:"port,omitempty" minimum:"0" maximum:"65535"`
	Command OSString `json:"command,omitempty" doc:"for /bin/sh -c, as the service's user, in one line; asked five times a second"`
	Seconds int      `json:"seconds,omitempty" minimum:"0" maximum:"3600" doc:"it may take; default: 60"`
}

const (
	defaultReady    = 60 // seconds
	mostReady       = 3600
	mostServiceLine = 8 << 10 // bytes
	mostServiceEnv  = 256
)

// ServiceState says how a service is.
type ServiceState string

// The states of services.
const (
	ServiceStarting   ServiceState = "starting" // it runs and is not ready yet
	ServiceRunning    ServiceState = "running"  // and ready
	ServiceRestarting ServiceState = "restarting"
	ServiceStopping   ServiceState = "stopping"
	ServiceStopped    ServiceState = "stopped" // it was stopped, or has ended well
	ServiceFailed     ServiceState = "failed"
)

// Service is a program that a computer keeps running, as its systemd tells of it.
type Service struct {
	Name        string       `json:"name"`
	Spec        ServiceSpec  `json:"spec" doc:"without its environment"`
	Template    bool         `json:"template,omitempty" doc:"the template declares it"`
	State       ServiceState `json:"state" enum:"starting,running,restarting,stopping,stopped,failed"`
	Wanted      bool         `json:"wanted" doc:"it is started when the computer is"`
	Since       *time.Time   `json:"since,omitempty" doc:"when it came into this state"`
	PID         int          `json:"pid,omitempty"`
	Restarts    int          `json:"restarts,omitempty" doc:"how often it was started again by itself"`
	ExitCode    int          `json:"exit_code,omitempty" doc:"of its last end; 128 and the signal's number if a signal ended it"`
	Signal      string       `json:"signal,omitempty" doc:"that ended it last"`
	Reason      string       `json:"reason,omitempty" doc:"why it has failed, in systemd's words: exit-code, signal, timeout, oom-kill, …"`
	OutOfMemory *OutOfMemory `json:"out_of_memory,omitempty" doc:"the kernel recently killed processes of the service because memory ran out"`
}

// ServiceLogQuery says which part of a service's log to read.
type ServiceLogQuery struct {
	Lines  int  // only the last so many; 0: 1,000
	Follow bool // go on with what is added
}

// MostServiceLines is how many lines of a service's log one can have at once.
const MostServiceLines = 100_000

// Normal returns a spec with its defaults, or what is wrong with it.
func (s ServiceSpec) Normal() (ServiceSpec, error) {
	if _, err := ParseName(s.Name); err != nil {
		return s, err
	}
	bad := func(format string, args ...any) (ServiceSpec, error) {
		return s, Errorf(InvalidArgument, "service "+s.Name+": "+format, args...).WithHint("holt service add --help says what there may be")
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
		return bad("its command is empty, has more than one line, or is longer than %d bytes", mostServiceLine)
	case !unitLine(s.Ready.Command):
		return bad("its ready command has more than one line, or is longer than %d bytes", mostServiceLine)
	case !userWord(s.User):
		return bad("%q cannot be a user", clip(s.User))
	case s.Cwd[0] != '/' || !unitLine(s.Cwd):
		return bad("%q is not an absolute directory", clip(string(s.Cwd)))
	case !slices.Contains([]ServiceRestart{RestartAlways, RestartOnFailure, RestartNo}, s.Restart):
		return bad("restart is always, on-failure or no")
	case s.Ready.Port < 0 || s.Ready.Port > mostPort:
		return bad("%d is no port", s.Ready.Port)
	case s.Ready.Port != 0 && s.Ready.Command != "":
		return bad("it is ready by a port or by a command; choose one")
	case s.Ready.Seconds < 0 || s.Ready.Seconds > mostReady:
		return bad("ready may take 1 to %d seconds", mostReady)
	case len(s.Env) > mostServiceEnv:
		return bad("its environment has more than %d variables", mostServiceEnv)
	}
	for k, v := range s.Env {
		if !variableName(string(k)) || !unitLine(v) {
			return bad("%q cannot be a variable, or its value has more than one line", clip(string(k)))
		}
	}
	return s, nil
}

// unitLine says whether s can stand in a line of a unit file.
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
