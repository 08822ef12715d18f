package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

const (
	maxServices = 128       // of one computer
	maxUnit     = 256 << 10 // bytes of a unit file
)

// Verbs of services.
const (
	opSvcPut  = "service.put"
	opSvcDo   = "service.do"
	opSvcList = "service.list"
	opSvcLog  = "service.log"
)

type serviceArgs struct {
	Name   string            `json:"name,omitempty"`
	Spec   *holt.ServiceSpec `json:"spec,omitempty"`
	Verb   string            `json:"verb,omitempty"`
	Lines  int               `json:"lines,omitempty"`
	Follow bool              `json:"follow,omitempty"`
}

// ownsServices returns an error if this agent cannot manage services. After a
// start it waits for systemd.
func (s *Server) ownsServices(ctx context.Context) error {
	if !s.opt.Machine {
		return holt.Errorf(holt.Unsupported, "computers of the local engine have no services, because they have no systemd").
			WithHint("start the program with holt computer run --background; virtual machines have services: holt down, then holt up --engine qemu, and make a new computer there")
	}
	if init, err := filepath.EvalSymlinks(initPath); (err != nil || filepath.Base(init) != "systemd") && !systemdRuns() {
		return holt.Errorf(holt.Unsupported, "this computer has no systemd, which services need").
			WithHint("start the program with holt computer run --background, or use a template with systemd")
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return awaitSystemd(bounded)
}

// systemctl runs systemctl and returns its output, or an error with its messages.
func systemctl(ctx context.Context, args ...string) (string, error) {
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", args[0], err, holt.Clip(strings.TrimSpace(complaint.String()), maxSentence))
	}
	return out.String(), nil
}

// listServices sends the computer's services and their states.
func (s *Server) listServices(ctx context.Context, st *serverStream) error {
	if err := s.ownsServices(ctx); err != nil {
		return err
	}
	list, err := services(ctx)
	if err != nil {
		return err
	}
	if err := st.agree(nil); err != nil {
		return err
	}
	return sendItems(st, list)
}

// services returns the services that have unit files, by name.
func services(ctx context.Context) ([]holt.Service, error) {
	paths, err := filepath.Glob(unitDir + "/*" + unitSuffix)
	if err != nil {
		return nil, err
	}
	list, units := []holt.Service{}, []string{}
	for _, path := range paths {
		if one, ok := unitAt(path); ok && len(list) < maxServices {
			list, units = append(list, one), append(units, one.Name+unitSuffix)
		}
	}
	if len(list) == 0 {
		return list, nil
	}
	shown, err := systemctl(ctx, append([]string{"show", "--timestamp=unix", "--property=" + strings.Join(serviceProperties, ","), "--"}, units...)...)
	if err != nil {
		return nil, err
	}
	texts := strings.Split(strings.TrimSpace(shown), "\n\n") // in the order of the arguments
	if len(texts) != len(list) {
		return nil, fmt.Errorf("systemd shows %d units of %d", len(texts), len(list))
	}
	for i, text := range texts {
		showService(&list[i], text)
	}
	showMemory(list)
	return list, nil
}

// showMemory adds out-of-memory kills to services that failed or were restarted.
func showMemory(list []holt.Service) {
	var kills []oomKill
	if slices.ContainsFunc(list, func(s holt.Service) bool { return s.Reason != "" || s.Restarts > 0 }) {
		kills, _ = oomKills()
	}
	for i := range list {
		s := &list[i]
		if s.Reason == "" && s.Restarts == 0 {
			continue
		}
		if s.OutOfMemory = killed(kills, s.Name+unitSuffix); s.OutOfMemory == nil && s.Reason == "oom-kill" {
			s.OutOfMemory = &holt.OutOfMemory{Count: 1}
		}
		if s.OutOfMemory != nil {
			s.OutOfMemory.LimitMB = memoryLimitMB("/sys/fs/cgroup/system.slice/" + s.Name + unitSuffix)
		}
	}
}

// unitAt reads a unit file; ok is false if it is not a service's.
func unitAt(path string) (holt.Service, bool) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxUnit {
		return holt.Service{}, false
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return holt.Service{}, false
	}
	return readUnit(path, string(text))
}

var serviceProperties = []string{"ActiveState", "SubState", "Result", "MainPID", "NRestarts", "ExecMainCode", "ExecMainStatus", "StateChangeTimestamp", "UnitFileState"}

// showService adds the state from systemctl's output.
func showService(s *holt.Service, text string) {
	p := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		p[name] = value
	}
	s.State = serviceState(p["ActiveState"], p["SubState"])
	s.Wanted = strings.HasPrefix(p["UnitFileState"], "enabled")
	s.PID, _ = strconv.Atoi(p["MainPID"])
	s.Restarts, _ = strconv.Atoi(p["NRestarts"])
	status, _ := strconv.Atoi(p["ExecMainStatus"])
	switch p["ExecMainCode"] {
	case "1": // CLD_EXITED
		s.ExitCode = status
	case "2", "3": // killed, dumped
		s.ExitCode, s.Signal = 128+status, unix.SignalName(unix.Signal(status))
	}
	if seconds, err := strconv.ParseInt(strings.TrimPrefix(p["StateChangeTimestamp"], "@"), 10, 64); err == nil && seconds > 0 {
		at := time.Unix(seconds, 0).UTC()
		s.Since = &at
	}
	if p["Result"] != "success" {
		s.Reason = p["Result"]
	}
}

// serviceState converts systemd's two states to one of ours.
func serviceState(active, sub string) holt.ServiceState {
	switch {
	case sub == "auto-restart":
		return holt.ServiceRestarting
	case active == "active", active == "reloading":
		return holt.ServiceRunning
	case active == "activating":
		return holt.ServiceStarting
	case active == "deactivating":
		return holt.ServiceStopping
	case active == "failed":
		return holt.ServiceFailed
	}
	return holt.ServiceStopped
}

// putService writes a unit and starts it. An existing unit with the same spec is not changed.
func (s *Server) putService(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[serviceArgs](raw)
	if err != nil {
		return nil, err
	}
	if args.Spec == nil {
		return nil, holt.Errorf(holt.InvalidArgument, "a service needs a spec")
	}
	spec, err := args.Spec.Normal()
	if err != nil {
		return nil, err
	}
	if err := s.ownsServices(ctx); err != nil {
		return nil, err
	}
	s.serving.Lock()
	defer s.serving.Unlock()
	a, err := findAccount(spec.User)
	if err != nil {
		return nil, err
	}
	text, err := unitText(spec)
	if err != nil {
		return nil, err
	}
	unit := spec.Name + unitSuffix
	path := filepath.Join(unitDir, unit)
	if err := mayPut(ctx, path, text); err != nil {
		return nil, err
	}
	if _, err := os.Stat(string(spec.Cwd)); err != nil {
		return nil, holt.Errorf(holt.NotFound, "user %s cannot find the directory %s: %w", a.Name, clip(string(spec.Cwd)), errors.Unwrap(err)).WithHint("create it first: holt computer run NAME \"mkdir -p …\"")
	}
	if err := replaceFile(path, text); err != nil {
		return nil, fmt.Errorf("write %s: %w", unit, err)
	}
	if _, err := systemctl(ctx, "daemon-reload"); err != nil {
		return nil, err
	}
	if _, err := systemctl(ctx, "enable", "--quiet", "--now", "--no-block", unit); err != nil {
		return nil, err
	}
	return service(ctx, spec.Name)
}

// mayPut returns an error if a unit must not be written.
func mayPut(ctx context.Context, path, text string) error {
	name := strings.TrimSuffix(filepath.Base(path), unitSuffix)
	old, err := os.ReadFile(path)
	if err == nil {
		if string(old) == text {
			return nil
		}
		if _, ours := readUnit(path, string(old)); ours {
			return holt.Errorf(holt.AlreadyExists, "the service %s already exists", name).WithHint("choose another name, or delete it with holt service delete")
		}
	}
	list, err := services(ctx)
	if err != nil {
		return err
	}
	if len(list) >= maxServices {
		return holt.Errorf(holt.TooMany, "too many services: this computer has %d", len(list)).WithHint("delete one with holt service delete")
	}
	loaded, err := systemctl(ctx, "show", "--property=LoadState", "--value", name+unitSuffix)
	if err != nil {
		return err
	}
	if state := strings.TrimSpace(loaded); state != "not-found" {
		return holt.Errorf(holt.AlreadyExists, "the system already has a unit %s%s (%s)", name, unitSuffix, state).WithHint("choose another name")
	}
	return nil
}

// service returns a service by name.
func service(ctx context.Context, name string) (holt.Service, error) {
	list, err := services(ctx)
	if err != nil {
		return holt.Service{}, err
	}
	for _, one := range list {
		if one.Name == name {
			return one, nil
		}
	}
	return holt.Service{}, holt.Errorf(holt.NotFound, "there is no service %q in this computer", clip(name)).WithHint("list the services with holt service list, add one with holt service add")
}

// doService starts, stops, restarts or deletes a service, and returns its new
// state or, after a deletion, its last one.
func (s *Server) doService(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[serviceArgs](raw)
	if err != nil {
		return nil, err
	}
	if err := s.ownsServices(ctx); err != nil {
		return nil, err
	}
	s.serving.Lock()
	defer s.serving.Unlock()
	one, err := service(ctx, args.Name)
	if err != nil {
		return nil, err
	}
	unit := one.Name + unitSuffix
	switch args.Verb {
	case "start":
		_, err = systemctl(ctx, "enable", "--quiet", "--now", "--no-block", unit)
	case "restart":
		_, err = systemctl(ctx, "enable", "--quiet", unit)
		if err == nil {
			_, err = systemctl(ctx, "restart", "--no-block", unit)
		}
	case "stop":
		_, err = systemctl(ctx, "disable", "--quiet", "--now", unit)
	case "delete":
		return one, deleteService(ctx, one)
	default:
		return nil, holt.Errorf(holt.InvalidArgument, "invalid verb for a service: %q", clip(args.Verb))
	}
	if err != nil {
		return nil, err
	}
	return service(ctx, one.Name)
}

// deleteService stops a service and removes its unit.
func deleteService(ctx context.Context, one holt.Service) error {
	if one.Template {
		return holt.Errorf(holt.Conflict, "the template declares the service %s", one.Name).WithHint("stop it with holt service stop; it then stays stopped after restarts")
	}
	unit := one.Name + unitSuffix
	if _, err := systemctl(ctx, "disable", "--quiet", "--now", unit); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(unitDir, unit)); err != nil {
		return err
	}
	if _, err := systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	systemctl(ctx, "reset-failed", unit) // fails if the unit has not failed
	return nil
}

// logService sends a service's log in chunks.
func (s *Server) logService(ctx context.Context, st *serverStream) error {
	args, err := decode[serviceArgs](st.args)
	if err != nil {
		return err
	}
	if err := s.ownsServices(ctx); err != nil {
		return err
	}
	one, err := service(ctx, args.Name)
	if err != nil {
		return err
	}
	argv := []string{"--unit=" + one.Name + unitSuffix, "--lines=" + strconv.Itoa(min(max(args.Lines, 1), holt.MostServiceLines)), "--output=short-iso", "--no-hostname", "--no-pager", "--quiet"}
	if args.Follow {
		argv = append(argv, "--follow")
	}
	if err := st.agree(nil); err != nil {
		return err
	}
	ctx, cancel := st.untilClosed(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "journalctl", argv...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w := newChunkWriter(st, smallChunk)
	_, err = w.ReadFrom(io.Reader(out))
	if err != nil {
		cancel() // the host has stopped reading
	}
	if ended := cmd.Wait(); err == nil && ended == nil {
		return w.end()
	}
	return err
}
