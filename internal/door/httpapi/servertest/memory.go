// Package servertest holds a real implementation of the server's nouns in
// memory, and the conformance suite that every implementation passes: this
// one, the daemon's, and package client in front of either.
//
// It is not an engine: its computers are directories, and a run is a process
// of this host in that directory, with nothing around it. So a test may run
// small shell commands that work on relative paths, and nothing else. Its
// workspaces are real ones, but no computer has them mounted: what a computer
// does is not seen in its workspace.
package servertest

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"holt"
	"holt/internal/access"
	"holt/internal/audit"
	"holt/internal/control"
	"holt/internal/door/preview"
	"holt/internal/event"
	"holt/internal/idempotency"
	"holt/internal/nouns"
	"holt/internal/schedule"
	"holt/internal/store/db"
	"holt/internal/upload"
	"holt/internal/workspace"
)

// Memory is a set of nouns. Its lock guards everything below it; runs have
// their own, taken after it.
type Memory struct {
	Version string
	Kept    int // bytes of output kept for each run; 0: 4 MiB

	dir     string
	jobs    *jobSet // nil until they are opened
	began   time.Time
	ended   chan struct{}
	endOnce sync.Once

	events event.Feed

	mu         sync.Mutex
	computers  map[holt.ComputerID]*holt.Computer
	snapshots  []holt.Snapshot // oldest first
	holds      []holt.Hold
	runs       []*run
	terminals  []*terminal
	services   []*service
	workspaces map[holt.WorkspaceID]*holt.Workspace
	trees      map[holt.WorkspaceID]*workspace.Workspace // opened when first used
	answers    map[string]answer                         // by idempotency key

	firstNouns sync.Once // opens these, which have locks of their own, taken after mu
	control    *db.DB
	keys       *idempotency.Keys
	uploads    *upload.Store
	schedules  *schedule.Store
	previews   *preview.Store
	log        *audit.Log
	policies   map[holt.ComputerID]holt.NetworkPolicy
	limits     map[string]holt.Limit // by tenant
	secrets    map[holt.ComputerID]map[string]holt.ComputerSecret
}

// answer is what a call with an idempotency key got.
type answer struct {
	args   string
	result any
	err    error
}

// New returns empty nouns that keep files in dir.
func New(dir string) *Memory {
	return &Memory{
		Version:    "test",
		dir:        dir,
		began:      time.Now().UTC(),
		ended:      make(chan struct{}),
		computers:  map[holt.ComputerID]*holt.Computer{},
		workspaces: map[holt.WorkspaceID]*holt.Workspace{},
		trees:      map[holt.WorkspaceID]*workspace.Workspace{},
		answers:    map[string]answer{},
		policies:   map[holt.ComputerID]holt.NetworkPolicy{},
		secrets:    map[holt.ComputerID]map[string]holt.ComputerSecret{},
	}
}

// Nouns returns what a server needs.
func (m *Memory) Nouns() nouns.Set {
	m.firstNouns.Do(m.openSchedules)
	set := nouns.Set{
		Computers: computers{m}, Snapshots: snapshots{m}, Runs: runs{m}, Terminals: terminals{m}, Ports: ports{m}, Services: services{m}, Files: files{m},
		Workspaces: workspaces{m}, WorkspaceFiles: workspaceFiles{m}, History: history{m}, Archive: archive{},
		Images: images{m}, Schedules: m.schedules, Jobs: m.openJobs(), Networks: networks{m}, Limits: limits{m}, Stats: stats{m}, Secrets: secrets{m}, SSH: ssh{m}, SSHKeys: &sshKeys{}, Previews: m.previews, Events: &m.events, Uploads: m.uploads, Audit: m.log, Daemon: daemon{m},
	}
	control.Fill(&set, m.control, m.keys, access.New(m.control))
	return set
}

// Ended is closed by the noun Daemon's Down.
func (m *Memory) Ended() <-chan struct{} { return m.ended }

// Close ends all runs and terminals and waits for them.
func (m *Memory) Close() {
	m.closeSchedules()
	if m.jobs != nil {
		m.jobs.close()
	}
	m.mu.Lock()
	for _, s := range m.services {
		s.kill()
	}
	all, terminals := slices.Clone(m.runs), slices.Clone(m.terminals)
	m.mu.Unlock()
	for _, t := range terminals {
		t.kill(syscall.SIGKILL)
		<-t.gone
	}
	for _, r := range all {
		r.kill()
		<-r.gone
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, w := range m.trees {
		_ = w.Close() // its directory goes with the test
		delete(m.trees, id)
	}
}

// once gives a repeated call its first answer. f runs with m's lock held.
func once[T any](m *Memory, key string, args []any, f func() (T, error)) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if key == "" {
		return f()
	}
	text, err := json.Marshal(args)
	if err != nil {
		panic(err) // arguments come off the wire
	}
	if a, ok := m.answers[key]; ok {
		if a.args != string(text) {
			var none T
			return none, holt.Errorf(holt.Conflict, "the idempotency key was used for another call").
				WithHint("use a fresh key for every call")
		}
		return a.result.(T), a.err
	}
	result, err := f()
	m.answers[key] = answer{string(text), result, err}
	return result, err
}

// before asks what is asked before a call, unless it is a repeat.
func (m *Memory) before(ctx context.Context, key string) error {
	m.mu.Lock()
	_, repeat := m.answers[key]
	m.mu.Unlock()
	if repeat {
		return nil
	}
	_, err := holt.AskBefore(ctx)
	return err
}

// computer finds one; the lock is held.
func (m *Memory) computer(ref string) (*holt.Computer, error) {
	for id, c := range m.computers {
		if string(id) == ref || c.Name == ref {
			return c, nil
		}
	}
	return nil, holt.Errorf(holt.NotFound, "there is no computer %q", ref).WithHint("holt computer list shows what there is")
}

// happened tells of a computer.
func (m *Memory) happened(kind holt.EventKind, c *holt.Computer) {
	m.events.Add(holt.Event{Kind: kind, Tenant: c.Tenant, Computer: c.ID, ComputerName: c.Name, Ref: string(c.ID), Name: c.Name, State: string(c.State)})
}

// root is the directory that stands for a computer's root.
func (m *Memory) root(c *holt.Computer) string { return filepath.Join(m.dir, string(c.ID)) }

// home is its workspace.
func (m *Memory) home(c *holt.Computer) string { return filepath.Join(m.root(c), "home/agent") }

type computers struct{ m *Memory }

func (n computers) Create(_ context.Context, spec holt.ComputerSpec, key string) (holt.Computer, error) {
	return once(n.m, key, []any{"create computer", spec}, func() (holt.Computer, error) {
		spec.Name, spec.Template = cmp.Or(spec.Name, "curie"), cmp.Or(spec.Template, "base")
		if _, err := holt.ParseName(spec.Name); err != nil {
			return holt.Computer{}, err
		}
		if spec.Template != "base" {
			return holt.Computer{}, holt.Errorf(holt.NotFound, "there is no template %q", spec.Template).WithHint("templates are base")
		}
		if spec.CPUs < 0 || spec.MemoryMB < 0 || spec.DiskSizeMB < 0 {
			return holt.Computer{}, holt.Errorf(holt.InvalidArgument, "a computer cannot have less than nothing").WithHint("leave sizes out for their defaults")
		}
		if _, err := n.m.computer(spec.Name); err == nil {
			return holt.Computer{}, holt.Errorf(holt.AlreadyExists, "there is a computer %q already", spec.Name).WithHint("choose another name")
		}
		now := time.Now().UTC()
		c := &holt.Computer{
			ID: holt.NewComputerID(), Name: spec.Name, Template: spec.Template, State: holt.ComputerRunning, Engine: "memory",
			CPUs: cmp.Or(spec.CPUs, 1), MemoryMB: cmp.Or(spec.MemoryMB, 1024), DiskSizeMB: cmp.Or(spec.DiskSizeMB, 10240), WorkspaceSizeMB: n.m.workspaceSize(spec),
			Workspace: cmp.Or(spec.Workspace, spec.Name), CreatedAt: now, StartedAt: &now, BootMS: 1, IdleTimeout: spec.IdleTimeout.Or(holt.DefaultIdleTimeout), Tenant: holt.DefaultTenant,
		}
		if err := n.m.admit(1, c.MemoryMB, c.DiskSizeMB+c.WorkspaceSizeMB); err != nil {
			return holt.Computer{}, err
		}
		if err := n.m.attach(c, spec.Workspace); err != nil {
			return holt.Computer{}, err
		}
		if err := n.m.reach(c.ID, spec.Network, holt.NetworkPolicy{Egress: holt.EgressOpen}); err != nil {
			return holt.Computer{}, err
		}
		if err := n.m.lend(c.ID, spec.SecretsOf); err != nil {
			return holt.Computer{}, err
		}
		n.m.computers[c.ID] = c
		n.m.happened(holt.EventComputerCreated, c)
		return *c, os.MkdirAll(n.m.home(c), 0o755)
	})
}

func (n computers) Get(_ context.Context, ref string) (holt.Computer, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	c, err := n.m.computer(ref)
	if err != nil {
		return holt.Computer{}, err
	}
	return *c, nil
}

func (n computers) List(context.Context) ([]holt.Computer, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	var all []holt.Computer
	for _, c := range n.m.computers {
		all = append(all, *c)
	}
	return all, nil
}

func (n computers) Start(_ context.Context, ref, key string) (holt.Computer, error) {
	return n.turn(ref, key, holt.ComputerRunning)
}

func (n computers) Stop(_ context.Context, ref, key string) (holt.Computer, error) {
	return n.turn(ref, key, holt.ComputerStopped)
}

func (n computers) turn(ref, key string, state holt.ComputerState) (holt.Computer, error) {
	return once(n.m, key, []any{state, ref}, func() (holt.Computer, error) {
		c, err := n.m.computer(ref)
		if err != nil {
			return holt.Computer{}, err
		}
		if state == holt.ComputerRunning && c.State != state {
			if err := n.m.admit(0, c.MemoryMB, 0); err != nil {
				return holt.Computer{}, err
			}
		}
		if c.State != state {
			defer func() { n.m.happened(holt.EventComputerState, c) }()
		}
		if c.State = state; state == holt.ComputerStopped && c.Pending != nil {
			c.CPUs, c.MemoryMB = cmp.Or(c.Pending.CPUs, c.CPUs), cmp.Or(c.Pending.MemoryMB, c.MemoryMB)
			c.Pending = nil
		}
		return *c, nil
	})
}

func (n computers) Delete(ctx context.Context, ref, key string) (holt.DeletedComputer, error) {
	return once(n.m, key, []any{"delete computer", ref}, func() (out holt.DeletedComputer, err error) {
		c, err := n.m.computer(ref)
		if err != nil {
			return out, err
		}
		n.m.detach(c)
		delete(n.m.computers, c.ID)
		n.m.happened(holt.EventComputerDeleted, c)
		out = n.m.orphan(c)
		if out.Schedules, err = n.m.forgetSchedules(ctx, c.ID); err != nil {
			return out, err
		}
		return out, os.RemoveAll(n.m.root(c))
	})
}

const console = "[    0.000000] Linux version 6.1.0\n[    0.900000] Run /init as init process\nready\n"

func (n computers) Logs(ctx context.Context, ref string, q holt.LogQuery, w io.Writer) error {
	if _, err := n.Get(ctx, ref); err != nil {
		return err
	}
	text := console
	if q.TailBytes > 0 && q.TailBytes < int64(len(text)) {
		text = text[len(text)-int(q.TailBytes):]
	}
	_, err := io.WriteString(w, text)
	if err == nil && q.Follow {
		<-ctx.Done()
	}
	return err
}
