package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"holt"
	"holt/client"
)

const apiAbout = `
Through the real program with the local engine (processes, no machines), so that what is measured is the daemon and its door. %d callers at once send the next call when the last is
answered; *p99* is what one call in a hundred takes at least. *bare* is net/http on loopback in one process of a few lines that answers the same bytes (a list from memory, a file with http.ServeFile, an upload with io.Copy into a file): the
ceiling for any such door in Go. The callers are on the same two processors.`

const (
	unixColumn = "unix socket"
	tcpColumn  = "TCP + token"
	callers    = 16
)

// apiRoom is a daemon with its doors, and what they are held against.
type apiRoom struct {
	dir     string
	d       *daemon
	doors   map[string]*door
	preview string // where previews are
	gate    string // where SSH clients come in
}

// door is one way in.
type door struct {
	http   *http.Client
	base   string
	token  string
	client *client.Client // nil: bare
}

// apiGroup measures the HTTP API, previews and SSH.
func apiGroup(ctx context.Context, b *bench) (all []*section, err error) {
	dir, err := b.sub("api")
	if err != nil {
		return nil, err
	}
	r, err := openAPIRoom(ctx, b, dir)
	if err != nil {
		return nil, err
	}
	type part struct {
		name string
		run  func(context.Context, *bench, *section) error
	}
	for _, s := range []struct {
		*section
		parts []part
	}{
		{&section{title: "The HTTP API", columns: []string{unixColumn, tcpColumn, bareColumn}, ratios: [][2]string{{tcpColumn, bareColumn}}, about: fmt.Sprintf(apiAbout, callers)},
			[]part{{"calls", r.calls}, {"echo", r.echoes}, {"terminals", r.terminals}, {"transfer", r.transfers}}},
		{&section{title: "Previews", columns: []string{previewColumn, forwardColumn, directColumn}, ratios: [][2]string{{previewColumn, forwardColumn}, {previewColumn, directColumn}}, about: fmt.Sprintf(previewAbout, callers)},
			[]part{{"previews", r.previews}}},
		{&section{title: "SSH", columns: []string{gateColumn, sshdColumn}, ratios: [][2]string{{gateColumn, sshdColumn}}, about: sshAbout},
			[]part{{"ssh", r.ssh}}},
	} {
		for _, p := range s.parts {
			if b.wants("api", p.name) {
				if err := p.run(ctx, b, s.section); err != nil {
					return nil, fmt.Errorf("%s: %w", p.name, err)
				}
			}
		}
		if len(s.figures) > 0 {
			all = append(all, s.section)
		}
	}
	return all, nil
}

func openAPIRoom(ctx context.Context, b *bench, dir string) (*apiRoom, error) {
	var ports [3]string
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	port := ports[0]
	d := &daemon{b: b, data: filepath.Join(dir, "data"), exited: make(chan struct{})}
	if err := os.MkdirAll(d.data, 0o700); err != nil {
		return nil, err
	}
	if err := d.launch(ctx, "local", "--listen", "127.0.0.1:"+port, "--token-rate", "0", "--preview-listen", "127.0.0.1:"+ports[1], "--ssh-listen", "127.0.0.1:"+ports[2]); err != nil {
		return nil, err
	}
	overTCP, token, err := d.overTCP(port)
	if err != nil {
		return nil, err
	}
	for i := range 3 {
		if _, err := d.client.Computers.Create(ctx, holt.ComputerSpec{Name: fmt.Sprint("bench-", i), IdleTimeout: holt.NeverIdle}, ""); err != nil {
			return nil, err
		}
	}
	content := bytes.Repeat([]byte("holt"), 1024)
	if _, err := d.client.Files.Write(ctx, "bench-0", "/home/agent/file", holt.WriteSpec{}, bytes.NewReader(content)); err != nil {
		return nil, err
	}
	socket := &http.Transport{MaxIdleConnsPerHost: callers, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(d.data, "holt.sock"))
	}}
	r := &apiRoom{dir: dir, d: d, preview: "127.0.0.1:" + ports[1], gate: ports[2], doors: map[string]*door{
		unixColumn: {&http.Client{Transport: socket}, "http://holt", "", d.client},
		tcpColumn:  {&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}, "http://127.0.0.1:" + port, token, overTCP},
	}}
	return r, r.bare(ctx, dir, content)
}

// bare starts the server that the others are held against.
func (r *apiRoom) bare(ctx context.Context, dir string, content []byte) error {
	if err := os.WriteFile(filepath.Join(dir, "file"), content, 0o600); err != nil {
		return err
	}
	listed, err := r.doors[unixColumn].do(ctx, "GET", "/v1/computers", nil)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/computers", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(listed)
	})
	mux.HandleFunc("GET /v1/computers/bench-0/files/content", func(w http.ResponseWriter, q *http.Request) {
		http.ServeFile(w, q, filepath.Join(dir, filepath.Base(q.URL.Query().Get("path"))))
	})
	mux.HandleFunc("PUT /upload", func(w http.ResponseWriter, q *http.Request) {
		f, err := os.Create(filepath.Join(dir, "large"))
		if err == nil {
			_, err = io.Copy(f, q.Body)
			err = errors.Join(err, f.Sync(), f.Close())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := httptest.NewServer(mux)
	r.d.b.own("the bare server", func() error { server.Close(); return nil })
	r.doors[bareColumn] = &door{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}, base: server.URL}
	return nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// do makes one call and returns what it was answered.
func (d *door) do(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	q, err := http.NewRequestWithContext(ctx, method, d.base+path, body)
	if err != nil {
		return nil, err
	}
	if d.token != "" {
		q.Header.Set("Authorization", "Bearer "+d.token)
	}
	resp, err := d.http.Do(q)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, answer)
	}
	return answer, err
}

// crowd has several callers make n calls together, and returns how many a second that were, and the time that one in a
// hundred took at least, milliseconds.
func crowd(n, callers int, call func() error) (rate, p99 float64, err error) {
	var wg sync.WaitGroup
	took, failed := make([][]float64, callers), make([]error, callers)
	began := time.Now()
	for i := range callers {
		wg.Go(func() {
			for range max(1, n/callers) {
				at := time.Now()
				if failed[i] = call(); failed[i] != nil {
					return
				}
				took[i] = append(took[i], float64(time.Since(at).Microseconds())/1e3)
			}
		})
	}
	wg.Wait()
	lasted := time.Since(began).Seconds()
	all := slices.Concat(took...)
	if err := errors.Join(failed...); err != nil {
		return nan, nan, err
	}
	slices.Sort(all)
	return float64(len(all)) / lasted, all[len(all)*99/100], nil
}

// calls are many small ones.
func (r *apiRoom) calls(ctx context.Context, b *bench, s *section) error {
	get := func(path string) func(*door) error {
		return func(d *door) error { _, err := d.do(ctx, "GET", path, nil); return err }
	}
	for _, w := range []struct {
		name    string
		n       int
		callers int
		call    func(*door) error
	}{
		{"list of 3 computers", b.apiCalls, callers, get("/v1/computers")},
		{"read of a file, 4 KiB, in a computer", b.apiCalls, callers, get("/v1/computers/bench-0/files/content?path=/home/agent/file")},
		{"run of `true`, started and followed to its end, 4 callers", b.apiCalls / 20, 4, func(d *door) error {
			if d.client == nil {
				return errNothing
			}
			run, err := d.client.Runs.Start(ctx, "bench-0", holt.RunSpec{Argv: []string{"true"}}, "")
			if err != nil {
				return err
			}
			return d.client.Runs.Follow(ctx, run.ID, 0, func(holt.RunEvent) error { return nil })
		}},
	} {
		if err := s.crowds(b, w.name, w.n, w.callers, func(column string) error { return w.call(r.doors[column]) }); err != nil {
			return err
		}
	}
	return nil
}

// crowds adds how often, and how late, many callers are answered in each column.
func (s *section) crowds(b *bench, name string, n, callers int, call func(column string) error) error {
	rates, tails := &figure{name: name, unit: perSecond}, &figure{name: name + ", p99", unit: millis}
	for range b.rounds {
		for _, column := range s.columns {
			rate, p99, err := crowd(n, callers, func() error { return call(column) })
			if err != nil && !errors.Is(err, errNothing) {
				return err
			}
			rates.add(column, rate)
			tails.add(column, p99)
		}
	}
	b.say("%s: %s and %s /s", name, spread(rates.samples[s.columns[0]]), spread(rates.samples[s.columns[1]]))
	s.figures = append(s.figures, rates, tails)
	return nil
}

// errNothing says that there is nothing to hold something against.
var errNothing = errors.New("nothing like it")

// echoes are keys, one at a time.
func (r *apiRoom) echoes(ctx context.Context, b *bench, s *section) error {
	middle, tail := &figure{name: "a key into a terminal and back, one at a time, median", unit: millis}, &figure{name: "a key into a terminal and back, p99", unit: millis}
	for range b.rounds {
		for _, column := range []string{unixColumn, tcpColumn} {
			took, err := echoTimes(ctx, r.doors[column].client, "bench-0", "stty raw -echo; echo ready; exec cat", max(20, b.apiCalls/20))
			if err != nil {
				return err
			}
			slices.Sort(took)
			middle.add(column, median(took))
			tail.add(column, took[len(took)*99/100])
		}
	}
	s.figures = append(s.figures, middle, tail)
	return nil
}

// terminals are many that show nothing, each with a client.
func (r *apiRoom) terminals(ctx context.Context, b *bench, s *section) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := r.doors[tcpColumn].client
	f := &figure{name: fmt.Sprintf("memory of the daemon for each of %d idle terminals that are attached", b.apiTerminals), unit: unit{"KiB", true}}
	before, err := residentKiB(r.d)
	if err != nil {
		return err
	}
	const perComputer = 50 // of the 64 that may be
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	attached := make(chan error, b.apiTerminals)
	for i := range b.apiTerminals {
		computer := fmt.Sprint("crowd-", i/perComputer)
		if i%perComputer == 0 {
			if _, err := c.Computers.Create(ctx, holt.ComputerSpec{Name: computer, IdleTimeout: holt.NeverIdle}, ""); err != nil {
				return err
			}
		}
		t, err := c.Terminals.Open(ctx, computer, holt.TerminalSpec{Name: fmt.Sprint("t", i), Argv: []string{"cat"}}, "")
		if err != nil {
			return err
		}
		wg.Go(func() {
			err := c.Terminals.Attach(ctx, computer, string(t.ID), holt.AttachSpec{Offset: -1}, nil, func(e holt.TerminalEvent) error {
				if e.Kind == holt.TerminalAttached {
					attached <- nil
				}
				return nil
			})
			if ctx.Err() == nil {
				attached <- fmt.Errorf("an attachment ended: %w", err)
			}
		})
		if err := <-attached; err != nil {
			return err
		}
	}
	after, err := residentKiB(r.d)
	if err != nil {
		return err
	}
	f.add(tcpColumn, float64(after-before)/float64(b.apiTerminals))
	s.notes = append(s.notes, fmt.Sprintf("The daemon had %s MiB before the terminals, and %s with %d of them attached over TCP, each to a terminal of its own, with the machines of %d computers.",
		number(float64(before)/1024), number(float64(after)/1024), b.apiTerminals, (b.apiTerminals+perComputer-1)/perComputer))
	s.figures = append(s.figures, f)
	return nil
}

// transfers are one large file each way, and what the daemon has of memory meanwhile.
func (r *apiRoom) transfers(ctx context.Context, b *bench, s *section) error {
	bytesOf := int64(b.apiMB) << 20
	title := fmt.Sprintf("%s MiB", number(float64(b.apiMB)))
	up, down := &figure{name: "upload of " + title + " to a workspace, in pieces, committed", unit: megabytes}, &figure{name: "download of it", unit: megabytes}
	held := &figure{name: "memory of the daemon at most meanwhile, above what it had before", unit: megabytesHeld}
	if _, err := r.d.client.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "large"}, ""); err != nil {
		return err
	}
	for _, column := range s.columns {
		d := r.doors[column]
		before, err := residentKiB(r.d)
		if err != nil {
			return err
		}
		most, stop := watchResident(r.d)
		began := time.Now()
		if d.client != nil {
			_, err = d.client.Uploads.Send(ctx, holt.UploadSpec{Workspace: "large", Path: "/file", Size: bytesOf}, sameBytes{}, nil)
		} else {
			_, err = d.do(ctx, "PUT", "/upload", io.NewSectionReader(sameBytes{}, 0, bytesOf))
		}
		if err != nil {
			stop()
			return err
		}
		up.add(column, float64(bytesOf)/1e6/time.Since(began).Seconds())
		began = time.Now()
		counted := new(counter)
		if d.client != nil {
			err = d.client.WorkspaceFiles.Read(ctx, "large", "/file", 0, -1, counted)
		} else {
			err = d.pour(ctx, "/v1/computers/bench-0/files/content?path=large", counted)
		}
		down.add(column, float64(bytesOf)/1e6/time.Since(began).Seconds())
		stop()
		if err != nil || int64(*counted) != bytesOf {
			return fmt.Errorf("%d bytes came back: %w", int64(*counted), err)
		}
		if d.client != nil {
			held.add(column, float64(max(0, most()-before))/1024)
		}
	}
	s.figures = append(s.figures, up, down, held)
	return r.publish(ctx, s, bytesOf, title)
}

// publish makes artifacts of the large file; what is held against it copies that file, durably.
func (r *apiRoom) publish(ctx context.Context, s *section, bytesOf int64, title string) error {
	answer := &figure{name: "publish a file of " + title + " of a workspace as an artifact, until the answer; bare: copy it", unit: millis, targets: []target{{column: unixColumn, limit: 50}}}
	linked := &figure{name: "copy that artifact into the workspace; bare: copy it", unit: millis, targets: []target{{column: unixColumn, limit: 100}}}
	stored := &figure{name: "the same, until its bytes, which repeat, are stored and its SHA-256 is known", unit: megabytes}
	for _, column := range s.columns {
		began, d := time.Now(), r.doors[column]
		if d.client == nil {
			if err := copyFile(filepath.Join(r.dir, "large"), filepath.Join(r.dir, "copy")); err != nil {
				return err
			}
			answer.add(column, float64(time.Since(began).Microseconds())/1000)
			linked.add(column, float64(time.Since(began).Microseconds())/1000)
			continue
		}
		a, err := d.client.Artifacts.Publish(ctx, holt.ArtifactSpec{Workspace: "large", Path: "/file"}, "")
		answer.add(column, float64(time.Since(began).Microseconds())/1000)
		for ; err == nil && a.State != holt.ArtifactReady; time.Sleep(10 * time.Millisecond) {
			a, err = d.client.Artifacts.Get(ctx, string(a.ID))
		}
		if err != nil {
			return err
		}
		stored.add(column, float64(bytesOf)/1e6/time.Since(began).Seconds())
		began = time.Now()
		if _, err := d.client.Artifacts.Copy(ctx, string(a.ID), holt.ArtifactCopy{Workspace: "large", Path: "/copy"}, ""); err != nil {
			return err
		}
		linked.add(column, float64(time.Since(began).Microseconds())/1000)
	}
	s.figures = append(s.figures, answer, stored, linked)
	return nil
}

// copyFile copies a file and syncs the copy.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(struct{ io.Writer }{out}, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// pour copies an answer.
func (d *door) pour(ctx context.Context, path string, to io.Writer) error {
	q, err := http.NewRequestWithContext(ctx, "GET", d.base+path, nil)
	if err != nil {
		return err
	}
	resp, err := d.http.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(to, resp.Body)
	return err
}

// sameBytes is a file without end that does not compress: byte i depends on i alone.
type sameBytes struct{}

func (sameBytes) ReadAt(p []byte, off int64) (int, error) {
	x := uint64(off)/8*0x9e3779b97f4a7c15 + 1
	for i := range p {
		if i%8 == 0 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		p[i] = byte(x >> (i % 8 * 8))
	}
	return len(p), nil
}

// residentKiB is what the daemon has of memory.
func residentKiB(d *daemon) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
}

// watchResident looks at it until stop is called; most then is the most that was seen.
func watchResident(d *daemon) (most func() int64, stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	var highest int64
	go func() {
		defer close(ended)
		for {
			now, err := residentKiB(d)
			if err == nil {
				highest = max(highest, now)
			}
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() int64 { return highest }, sync.OnceFunc(func() { close(done); <-ended })
}
