package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"holt"
)

// scanned keeps the first MiB of what is written, for a search.
type scanned struct{ b []byte }

func (s *scanned) Write(p []byte) (int, error) {
	s.b = append(s.b, p[:min(len(p), 1<<20-len(s.b))]...)
	return len(p), nil
}

func (s *scanned) String() string { return string(s.b) }

func allocated(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}

// tell writes what was answered, all of it.
func tell(heard io.Writer, v any) {
	if err := json.NewEncoder(heard).Encode(v); err != nil {
		fmt.Fprintf(heard, "%v", v)
	}
}

// errEnough ends what has no end.
var errEnough = errors.New("enough")

// ask is one call, or some that belong together.
type ask struct {
	name string
	do   func(ctx context.Context, heard io.Writer) error
}

// illPath is what is asked for.
func (i *ill) illPath() string {
	all := []string{
		"/", "/home/agent", "/home/agent/ill", "/home/agent/ill/links", "/home/agent/ill/crowd", "/home/agent/ill/canary", "/home/agent/ill/swap/secret",
		"/home/agent/ill/links/dir/secret", "/home/agent/ill/sparse3", "/etc/shadow", i.canary, "/proc/self/root" + i.canary, "/proc/1/environ", "/dev/zero", "/dev/ttyS0",
		fmt.Sprintf("/home/agent/ill/links/%d", i.intN(24)),
	}
	return all[i.intN(len(all))]
}

func (i *ill) intN(n int) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.rng.IntN(n)
}

// asks are the calls that reach into a computer.
func (i *ill) asks() []ask {
	const it = "mallory"
	first := func(heard io.Writer, most int) io.Writer { return &atMost{heard, most} }
	return []ask{
		{"stat", func(ctx context.Context, heard io.Writer) error {
			info, err := i.Files.Stat(ctx, it, i.illPath())
			tell(heard, info)
			return err
		}},
		{"list", func(ctx context.Context, heard io.Writer) error { return i.lists(ctx, heard) }},
		{"read", func(ctx context.Context, heard io.Writer) error {
			return i.Files.Read(ctx, it, i.illPath(), int64(i.intN(2)<<40), -1, first(heard, 8<<20))
		}},
		{"write", func(ctx context.Context, heard io.Writer) error {
			_, err := i.Files.Write(ctx, it, "/tmp/written", holt.WriteSpec{}, strings.NewReader(strings.Repeat("x", 1<<20)))
			return err
		}},
		{"run", func(ctx context.Context, heard io.Writer) error {
			r, err := i.Runs.Start(ctx, it, holt.RunSpec{Command: "true"}, "")
			if err != nil {
				return err
			}
			sum := first(heard, 16<<20)
			return i.Runs.Follow(ctx, r.ID, 0, func(e holt.RunEvent) error { _, err := sum.Write(e.Data); return err })
		}},
		{"runs", func(ctx context.Context, heard io.Writer) error {
			list, err := i.Runs.List(ctx, it, "", 100)
			tell(heard, list)
			return err
		}},
		{"terminal", func(ctx context.Context, heard io.Writer) error {
			term, err := i.Terminals.Open(ctx, it, holt.TerminalSpec{Command: "yes"}, "")
			if err != nil {
				return err
			}
			sum := first(heard, 1<<20)
			err = i.Terminals.Attach(ctx, it, string(term.ID), holt.AttachSpec{Offset: -1}, nil, func(e holt.TerminalEvent) error { _, err := sum.Write(e.Data); return err })
			_, no := i.Terminals.Close(ctx, it, string(term.ID), "")
			return errors.Join(err, no)
		}},
		{"terminals", func(ctx context.Context, heard io.Writer) error {
			list, err := i.Terminals.List(ctx, it)
			tell(heard, list)
			return err
		}},
		{"ports", func(ctx context.Context, heard io.Writer) error {
			list, err := i.Ports.List(ctx, it)
			tell(heard, list)
			return err
		}},
		{"dial", func(ctx context.Context, heard io.Writer) error {
			conn, err := i.Ports.Connect(ctx, it, holt.PortAddress{Port: 80})
			if err != nil {
				return err
			}
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			defer conn.Close()
			conn.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
			_, err = io.Copy(first(heard, 4<<20), conn)
			return err
		}},
		{"services", func(ctx context.Context, heard io.Writer) error {
			list, err := i.Services.List(ctx, it)
			tell(heard, list)
			return err
		}},
		{"service log", func(ctx context.Context, heard io.Writer) error {
			return i.Services.Logs(ctx, it, "flood", holt.ServiceLogQuery{Follow: true}, first(heard, 4<<20))
		}},
		{"stats", func(ctx context.Context, heard io.Writer) error { _, err := i.Stats.Get(ctx, it); return err }},
		{"awake", func(ctx context.Context, heard io.Writer) error {
			a, err := i.Computers.Awake(ctx, it)
			tell(heard, a)
			return err
		}},
		{"workspace read", func(ctx context.Context, heard io.Writer) error {
			return i.WorkspaceFiles.Read(ctx, it, strings.TrimPrefix(i.illPath(), "/home/agent"), 0, -1, first(heard, 8<<20))
		}},
		{"workspace list", func(ctx context.Context, heard io.Writer) error {
			list, err := i.WorkspaceFiles.List(ctx, it, "/ill/crowd", holt.PageSpec{})
			tell(heard, list)
			return err
		}},
		{"query", func(ctx context.Context, heard io.Writer) error {
			rows, err := i.Workspaces.Query(ctx, it, holt.QuerySpec{SQL: "SELECT * FROM files", MaxRows: 1000})
			tell(heard, rows)
			return err
		}},
		{"checkpoint and diff", func(ctx context.Context, heard io.Writer) error {
			c, err := i.History.Checkpoint(ctx, it, holt.CheckpointSpec{}, "")
			if err != nil {
				return err
			}
			return i.History.TextDiff(ctx, it, holt.DiffSpec{From: fmt.Sprint(c.ID)}, heard)
		}},
		{"export", func(ctx context.Context, heard io.Writer) error {
			return i.Workspaces.Export(ctx, it, holt.ExportSpec{Path: "/ill"}, first(heard, 16<<20))
		}},
		{"logs", func(ctx context.Context, heard io.Writer) error {
			return i.Computers.Logs(ctx, it, holt.LogQuery{}, heard)
		}},
		{"traffic", func(ctx context.Context, heard io.Writer) error {
			all, err := i.Networks.Traffic(ctx, it)
			tell(heard, all)
			return err
		}},
	}
}

// lists goes through some pages of a directory; each name must be one name.
func (i *ill) lists(ctx context.Context, heard io.Writer) error {
	pages, dir := 0, i.illPath()
	for page, err := range i.Files.Pages(ctx, "mallory", dir) {
		if err != nil {
			return err
		}
		for _, one := range page {
			name := string(one.Name)
			if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || string(one.Path) != path.Join(dir, name) {
				i.t.Errorf("%s lists %q at %q", dir, name, one.Path)
			}
		}
		tell(heard, page)
		if pages++; pages == 20 {
			return errEnough
		}
	}
	return nil
}

// atMost takes so many bytes and then refuses.
type atMost struct {
	w    io.Writer
	left int
}

func (a *atMost) Write(p []byte) (int, error) {
	if a.left -= len(p); a.left < 0 {
		return 0, errEnough
	}
	return a.w.Write(p)
}

// asking asks for all of it by turns, from several callers, until it is over.
func (i *ill) asking(over context.Context, all *sync.WaitGroup) {
	asks := i.asks()
	for caller := range 4 {
		all.Go(func() {
			for n := caller * 7; over.Err() == nil; n++ {
				a := asks[n%len(asks)]
				ctx, cancel := context.WithTimeout(i.t.Context(), illPatient)
				var heard scanned
				began := time.Now()
				err := a.do(ctx, &heard)
				cancel()
				i.saw("what "+a.name+" says", heard.b)
				if err != nil {
					i.saw("why "+a.name+" fails", []byte(err.Error()))
				}
				i.count(a.name, began, err)
			}
		})
	}
}

// count notes one call and how it ended.
func (i *ill) count(name string, began time.Time, err error) { i.counted(name, began, illPatient, err) }

// counted is that of a call with a patience of its own.
func (i *ill) counted(name string, began time.Time, patience time.Duration, err error) {
	took := time.Since(began)
	if took > (patience+illLate)*slower {
		i.t.Errorf("%s took %v: %v", name, took, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked[name]++
	if patience == illPatient {
		i.slow.call = max(i.slow.call, took)
	} else {
		i.slow.snapshot = max(i.slow.snapshot, took)
	}
	if !errors.Is(err, errEnough) {
		i.said[holt.CodeOf(err)]++
	}
}

// floods are what is had to pour by the API's own means.
func (i *ill) floods(over context.Context, all *sync.WaitGroup) {
	ctx := i.t.Context()
	if _, err := i.Services.Add(ctx, "mallory", holt.ServiceSpec{Name: "flood", Command: "yes flood", User: "root"}, ""); err != nil {
		i.t.Error(err)
	}
	for range 1 {
		all.Go(func() {
			r, err := i.Runs.Start(ctx, "mallory", holt.RunSpec{Command: "cat /dev/urandom", User: "root"}, "")
			if err != nil {
				i.t.Error(err)
				return
			}
			n := 0
			i.Runs.Follow(over, r.ID, 0, func(e holt.RunEvent) error { n += len(e.Data); return nil })
			if err := i.Runs.Signal(ctx, r.ID, "SIGKILL", ""); err != nil {
				i.t.Error(err)
			}
			i.mu.Lock()
			defer i.mu.Unlock()
			i.asked["MiB of output followed"] += n >> 20
		})
	}
	for range 2 {
		all.Go(func() {
			for n := 0; n < 20 && over.Err() == nil; n++ { // more would wait for each other in a slow guest, and all else for them
				began := time.Now()
				bounded, cancel := context.WithTimeout(ctx, illPatient)
				_, err := i.Runs.Start(bounded, "mallory", holt.RunSpec{Command: "head -c 100000 /dev/zero"}, "")
				cancel()
				i.count("runs that nobody follows", began, err)
			}
		})
	}
}
