package daemon_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holt"
	"holt/internal/cli"
	"holt/internal/door/httpapi/servertest"
)

// What a hostile computer may cost the daemon.
const (
	illMemory  = 256 << 20        // bytes of memory above what it had before, at most
	illDisk    = 128 << 20        // bytes in the computer's directory beside its disks
	illHealth  = 5 * time.Second  // for a call of the daemon, beside it
	illDelete  = 30 * time.Second // for it to be deleted
	illPatient = 8 * time.Second  // how long a call of it is waited for
	illLate    = 5 * time.Second  // and how much longer it may take to say so
	illLines   = 400              // that the daemon logs of it a minute
)

// ill is a hostile computer, mallory, beside curie, and what is known of both.
type ill struct {
	*vm
	rng     *rand.Rand
	canary  string // a file of the host
	secret  string // that is in it
	seconds int    // of each part
	// computers is how many there are at least. Where it is alone nothing is run beside it.
	computers int
	base      figures
	log       int64 // lines that the daemon had logged

	mu    sync.Mutex
	peak  figures
	asked map[string]int
	said  map[holt.Code]int
	tried map[string]int
	slow  struct{ run, health, call, snapshot time.Duration }
}

// TestHostileGuest: a root of a computer who means ill does to the daemon and the host all that is known, first
// beside the true agent and then in its place, while it is asked for everything there is to ask: files, links,
// lists, exports, runs, terminals, ports, services, snapshots. Nothing of the host is read or written, no call
// hangs, others go on beside it, and memory, disk and log stay bounded; when it is deleted nothing
// is left. HOLT_SOAK=1: ten times as long; HOLT_SEED says with which numbers.
func TestHostileGuest(t *testing.T) {
	i, seed := newIll(t, vmHome(t))
	program := hostileProgram(t)
	i.again("")
	ctx := t.Context()
	if _, err := i.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	i.says("curie", "true")
	mallory, began := i.makes()
	if _, err := i.Files.Write(ctx, "mallory", "/usr/local/bin/hostile", holt.WriteSpec{Mode: 0o755}, bytes.NewReader(program)); err != nil {
		t.Fatal(err)
	}
	end := i.watch()
	i.inside(seed)
	i.takes()
	i.impostor(seed)
	i.takesAway()
	end()
	i.fits(mallory.ID, time.Since(began))
	i.goes()
	i.close(seed)
	i.remove("curie")
	endAll(t, i.process)
}

// illSeed returns with which numbers and how many times a test is to be.
func illSeed(t *testing.T) (seed uint64, times int) {
	t.Helper()
	seed, times = uint64(time.Now().UnixNano()), 1
	if s := os.Getenv("HOLT_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("HOLT_SOAK") != "" {
		times = 10
	}
	t.Logf("seed %d", seed)
	return seed, times
}

// newIll has a secret on the host.
func newIll(t *testing.T, dir string) (*ill, uint64) {
	t.Helper()
	seed, times := illSeed(t)
	i := &ill{vm: &vm{t: t, dir: dir}, seconds: 2 * times, computers: 2, asked: map[string]int{}, said: map[holt.Code]int{}, tried: map[string]int{}}
	i.rng = rand.New(rand.NewPCG(seed, 0))
	i.bury()
	return i, seed
}

// hostileProgram builds what mallory runs.
func hostileProgram(t *testing.T) []byte {
	path := filepath.Join(t.TempDir(), "hostile")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "holt/internal/daemon/testdata/hostile")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bury puts a secret on the host.
func (i *ill) bury() {
	dir, err := os.MkdirTemp("", "holt-canary")
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { os.RemoveAll(dir) })
	b := make([]byte, 24)
	for n := range b {
		b[n] = byte(i.rng.Uint32())
	}
	i.canary, i.secret = filepath.Join(dir, "secret"), "canary-"+hex.EncodeToString(b)
	if err := os.WriteFile(i.canary, []byte(i.secret+"\n"), 0o644); err != nil {
		i.t.Fatal(err)
	}
}

// start has mallory run the program.
func (i *ill) start(part string, seed uint64) holt.Run {
	i.t.Helper()
	back := []byte(i.secret)
	slices.Reverse(back)
	r, err := i.Runs.Start(i.t.Context(), "mallory", holt.RunSpec{
		Argv: holt.OSStrings{"/usr/local/bin/hostile", part, strconv.Itoa(i.seconds), strconv.FormatUint(seed, 10), i.canary, string(back)}, User: "root", Cwd: "/",
	}, "")
	if err != nil {
		i.t.Fatal(err)
	}
	return r
}

// makes makes mallory, and notes how all was before.
func (i *ill) makes() (mallory holt.Computer, began time.Time) {
	i.t.Helper()
	i.base = i.figures()
	i.log = servertest.Logged.Load()
	began = time.Now()
	mallory, err := i.Computers.Create(i.t.Context(), holt.ComputerSpec{Name: "mallory"}, "")
	if err != nil {
		i.t.Fatal(err)
	}
	return mallory, began
}

// inside has mallory be ill beside the true agent, and asks it everything.
func (i *ill) inside(seed uint64) {
	i.t.Helper()
	r := i.start("inside", seed)
	over, stop := context.WithCancel(i.t.Context())
	var asking sync.WaitGroup
	i.floods(over, &asking)
	i.asking(over, &asking)
	var out strings.Builder
	if err := i.Runs.Follow(i.t.Context(), r.ID, 0, func(e holt.RunEvent) error { out.Write(e.Data); return nil }); err != nil {
		i.t.Error(err)
	}
	stop()
	asking.Wait()
	i.heard(out.String())
}

// impostor has mallory take the agent's place, and asks it everything.
func (i *ill) impostor(seed uint64) {
	i.t.Helper()
	i.start("agent", seed)
	over, stop := context.WithTimeout(i.t.Context(), 4*time.Duration(i.seconds)*time.Second)
	defer stop()
	var asking sync.WaitGroup
	i.asking(over, &asking)
	asking.Wait()
	i.tells()
}

// tells waits for what the program says on mallory's console, which takes a while in a guest that is asked everything.
func (i *ill) tells() {
	i.t.Helper()
	console := i.console()
	for end := time.Now().Add(2 * time.Minute); lastTried(console) == nil && time.Now().Before(end); console = i.console() {
		time.Sleep(time.Second)
	}
	i.saw("console", []byte(console))
	i.heard(console)
}

// console is what the program has said so far.
func (i *ill) console() string {
	i.t.Helper()
	var b strings.Builder
	if err := i.Computers.Logs(i.t.Context(), "mallory", holt.LogQuery{}, &b); err != nil {
		i.t.Error(err)
	}
	return b.String()
}

// heard adds up what the program says that it has tried: the last it said.
func (i *ill) heard(said string) {
	i.t.Helper()
	tried := lastTried(said)
	if len(tried) == 0 {
		i.t.Errorf("the program says nothing of what it tried: %.2000q", said)
	}
	for kind, n := range tried {
		i.tried[kind] += n
	}
}

// saw fails if what came from somewhere has the host's secret in it.
func (i *ill) saw(where string, b []byte) {
	if bytes.Contains(b, []byte(i.secret)) {
		i.t.Errorf("the host's secret is in %s", where)
	}
}

// watch looks until it is ended how the daemon and curie do.
func (i *ill) watch() (end func()) {
	over := make(chan struct{})
	var watching sync.WaitGroup
	every := func(look func() *time.Duration) {
		watching.Go(func() {
			for {
				began := time.Now()
				longest := look()
				if i.t.Context().Err() != nil {
					return
				}
				i.mu.Lock()
				*longest = max(*longest, time.Since(began))
				i.mu.Unlock()
				select {
				case <-over:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	ctx := i.t.Context()
	if i.computers > 1 {
		every(func() *time.Duration { i.beside(ctx); return &i.slow.run })
	}
	every(func() *time.Duration {
		_, err := i.Daemon.Health(ctx)
		list, no := i.Computers.List(ctx)
		if (err != nil || no != nil || len(list) < i.computers) && ctx.Err() == nil {
			i.t.Errorf("%d computers, %v, %v", len(list), err, no)
		}
		return &i.slow.health
	})
	watching.Go(func() {
		for {
			now := i.sizes()
			i.mu.Lock()
			i.peak.Resident, i.peak.FDs = max(i.peak.Resident, now.Resident), max(i.peak.FDs, now.FDs)
			i.mu.Unlock()
			select {
			case <-over:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() { close(over); watching.Wait() }
}

// beside runs something in curie.
func (i *ill) beside(ctx context.Context) {
	r, err := i.Runs.Start(ctx, "curie", holt.RunSpec{Command: "true", User: "root"}, "")
	if err == nil {
		err = i.Runs.Follow(ctx, r.ID, 0, func(holt.RunEvent) error { return nil })
	}
	if err != nil && ctx.Err() == nil {
		i.t.Errorf("beside it: %v", err)
	}
}

// fits looks at what it has cost.
func (i *ill) fits(mallory holt.ComputerID, took time.Duration) {
	t := i.t
	t.Helper()
	if most := i.base.Resident + illMemory*slower; i.peak.Resident > most {
		t.Errorf("the daemon had %d MiB of memory, before it %d", i.peak.Resident>>20, i.base.Resident>>20)
	}
	if i.slow.run > hogLimit*slower || i.slow.health > illHealth*slower {
		t.Errorf("beside it a run took %v, a call %v", i.slow.run, i.slow.health)
	}
	if lines := servertest.Logged.Load() - i.log; float64(lines) > illLines*max(1, took.Minutes()) {
		t.Errorf("the daemon logged %d lines in %v", lines, took)
	}
	var disk int64
	filepath.WalkDir(filepath.Join(i.dir, "computers", string(mallory)), func(path string, d fs.DirEntry, err error) error {
		if info, no := d.Info(); err == nil && no == nil && info.Mode().IsRegular() && !strings.HasSuffix(path, ".qcow2") {
			disk += info.Size()
		}
		return nil
	})
	if disk > illDisk {
		t.Errorf("%d MiB are in its directory beside its disks", disk>>20)
	}
	for kind, n := range i.tried {
		if strings.HasPrefix(kind, "LEAK") {
			t.Errorf("%s: %d", kind, n)
		}
	}
}

// goes deletes it; then the daemon has what it had before.
func (i *ill) goes() {
	t := i.t
	t.Helper()
	if report, err := i.Workspaces.Check(t.Context(), "mallory"); err != nil || len(report.Problems) > 0 {
		t.Errorf("check: %.5v %v", report.Problems, err)
	}
	began := time.Now()
	i.remove("mallory")
	if took := time.Since(began); took > illDelete*slower {
		t.Errorf("to delete it took %v", took)
	}
	var now figures
	end := time.Now().Add(time.Minute)
	for ; ; time.Sleep(200 * time.Millisecond) {
		i.Close() // idle connections, of which some are only now
		now = i.figures()
		if now.Goroutines <= i.base.Goroutines && len(more(now.Open, i.base.Open)) == 0 || time.Now().After(end) {
			break
		}
	}
	if files := more(now.Open, i.base.Open); len(files) > 0 || now.Most > illReaders {
		t.Errorf("files are left open, those of a database %d times: %q", now.Most, files)
	}
	if now.Goroutines > i.base.Goroutines {
		t.Errorf("%d goroutines, before it %d\n%s", now.Goroutines, i.base.Goroutines, strings.Join(more(now.Stacks, i.base.Stacks), "\n"))
	}
	if now.Heap > i.base.Heap+illMemory/4 {
		t.Errorf("%d MiB of heap are left, before it %d", now.Heap>>20, i.base.Heap>>20)
	}
	i.base.Goroutines, i.base.FDs, i.base.Heap = now.Goroutines-i.base.Goroutines, now.FDs-i.base.FDs, now.Heap-i.base.Heap
}

// close says what was tried, and what it has cost.
func (i *ill) close(seed uint64) {
	codes := map[string]int{}
	for code, n := range i.said {
		codes[cmp.Or(string(code), "ok")] = n
	}
	i.t.Logf("tried: %s", counted(i.tried))
	i.t.Logf("asked: %s", counted(i.asked))
	i.t.Logf("answers: %s", counted(codes))
	total := 0
	for _, n := range i.asked {
		total += n
	}
	i.t.Logf("counts: seed %d: %d calls of it, none more than %v, its snapshots %v; %d connections, %d requests and %d MiB of endless answers of it; the daemon's memory at most %d MiB (%d before), %d open files (%+d after), goroutines %+d and heap %+d KiB after; beside it a run took at most %v, health %v",
		seed, total, i.slow.call.Round(time.Millisecond), i.slow.snapshot.Round(time.Millisecond), i.tried["connections"], i.tried["requests"], (i.tried["bytes of endless answers"]+i.tried["bytes of endless output"])>>20,
		i.peak.Resident>>20, i.base.Resident>>20, i.peak.FDs, i.base.FDs, i.base.Goroutines, i.base.Heap>>10, i.slow.run.Round(time.Millisecond), i.slow.health.Round(time.Millisecond))
}

// takes copies out of mallory what lies in its workspace: as holt computer cp and holt workspace export do.
func (i *ill) takes() {
	out := i.t.TempDir()
	for n, args := range [][]string{
		{"computer", "cp", "-r", "mallory:ill/links", out + "/a"},
		{"computer", "cp", "-r", "mallory:ill/names", out + "/b"},
		{"computer", "cp", "-r", "mallory:ill/swap", out + "/c"},
		{"computer", "cp", "mallory:ill/canary", out + "/d"},
		{"workspace", "cp", "-r", "mallory:ill/links", out + "/e"},
		{"workspace", "export", "mallory:/ill/links", out + "/f"},
		{"workspace", "export", "mallory:/ill/names", out + "/f"},
		{"workspace", "export", "mallory", out + "/g"},
		{"workspace", "export", "mallory", out + "/g"}, // over the links that the first one made
	} {
		i.runsCLI(args, n)
	}
	i.outside(out)
}

// takesAway is the same when there is no agent that says the truth.
func (i *ill) takesAway() {
	out := i.t.TempDir()
	i.runsCLI([]string{"computer", "cp", "-r", "mallory:/etc", out + "/a"}, 0)
	i.runsCLI([]string{"computer", "ports", "mallory"}, 1)
	i.runsCLI([]string{"workspace", "cp", "-r", "mallory:/", out + "/b"}, 2)
	i.outside(out)
}

// runsCLI runs the command line for a while.
func (i *ill) runsCLI(args []string, n int) {
	ctx, cancel := context.WithTimeout(i.t.Context(), illPatient/2)
	defer cancel()
	var said scanned
	began := time.Now()
	status := cli.Main(ctx, append([]string{"--data-dir", i.dir}, args...), cli.Streams{In: strings.NewReader(""), Out: &said, Err: &said}, cli.Local{})
	i.t.Logf("holt %s: status %d after %v: %.300q", strings.Join(args, " "), status, time.Since(began).Round(time.Millisecond), said.String())
	i.saw("what holt "+strings.Join(args, " ")+" says", []byte(said.String()))
	if bytes.ContainsAny([]byte(said.String()), "\x1b\x07") {
		i.t.Errorf("holt %v does things to a terminal: %q", args, said.String())
	}
	if took := time.Since(began); took > (illPatient+illLate)*slower {
		i.t.Errorf("holt %v took %v", args, took)
	}
	i.count(fmt.Sprintf("holt %s %s", args[0], args[1]), began, nil)
}

// outside fails if something was written beside a directory of copies, or the host's secret is in it.
func (i *ill) outside(dir string) {
	t := i.t
	t.Helper()
	var blocks int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, syscall.ENAMETOOLONG) {
			return fs.SkipDir
		} else if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, syscall.ENAMETOOLONG) { // a workspace takes deeper directories than one path can name
			return nil
		} else if err != nil || !info.Mode().IsRegular() {
			return err
		}
		blocks += allocated(info)
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, 1<<20))
		i.saw(path, b)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if blocks > illDisk {
		t.Errorf("copies take %d MiB", blocks>>20)
	}
	b, err := os.ReadFile(i.canary)
	if entries, no := os.ReadDir(filepath.Dir(i.canary)); err != nil || no != nil || len(entries) != 1 || string(b) != i.secret+"\n" {
		t.Errorf("%s was written to: %v %v %v %q", i.canary, entries, err, no, b)
	}
}
