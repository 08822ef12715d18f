package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestMain lets the engine's measurements start this program as the one that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArg {
		exit(killedChild(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func quiet() *bench {
	b := &bench{sizes: quick, said: io.Discard, log: slog.New(slog.DiscardHandler)}
	b.engineFiles, b.queryFiles, b.forks = 1500, 400, []int{300}
	return b
}

func TestRounds(t *testing.T) {
	var did []string
	say := func(what string) func(context.Context, string) error {
		return func(_ context.Context, p string) error { did = append(did, what+p); return nil }
	}
	w := work[string]{
		name: "w", unit: seconds, setup: say("setup "), before: say("before "), after: say("after "),
		measure: func(_ context.Context, p string) (float64, error) {
			if p == "bad" {
				return 7, errors.New("no")
			}
			did = append(did, p)
			return float64(len(did)), nil
		},
	}
	f, err := rounds(t.Context(), quiet(), 2, w, []column[string]{{"a", "a"}, {"bad", "bad"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"setup a", "before a", "a", "after a", "setup bad", "before bad", "after bad", "before a", "a", "after a"}
	if diff := cmp.Diff(want, did); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string][]float64{"a": {3, 9}, "bad": {nan, nan}}, f.samples, cmpopts.EquateNaNs()); diff != "" {
		t.Error(diff)
	}
	if f.failed["bad"] != "no" {
		t.Errorf("failures: %v", f.failed)
	}
}

func TestRoundsAreBounded(t *testing.T) {
	hang := work[string]{name: "w", unit: seconds, measure: func(ctx context.Context, _ string) (float64, error) {
		<-ctx.Done()
		return nan, ctx.Err()
	}}
	columns := []column[string]{{"a", "a"}}
	b := quiet()
	b.patience = time.Millisecond
	f, err := rounds(t.Context(), b, 2, hang, columns)
	if err != nil || !strings.Contains(f.failed["a"], "not finished") {
		t.Errorf("a work that hangs: %v, %v", err, f.failed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rounds(ctx, b, 2, hang, columns); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of everything: %v", err)
	}
}

func TestCloseEndsInReverse(t *testing.T) {
	b := quiet()
	var ended []string
	end := func(what string) func() error {
		return func() error { ended = append(ended, what); return errors.New(what) }
	}
	b.own("first", end("1"))
	release := b.own("second", end("2"))
	b.own("third", end("3"))
	release()
	err := b.close()
	if diff := cmp.Diff([]string{"2", "3", "1"}, ended); diff != "" {
		t.Error(diff)
	}
	if err == nil || !strings.Contains(err.Error(), "end first: 1") || strings.Contains(err.Error(), "second") {
		t.Errorf("errors of close: %v", err)
	}
}

func TestWants(t *testing.T) {
	for _, c := range []struct {
		only, group, work string
		want              bool
	}{
		{"", "host", "untar", true}, {"host", "host", "untar", true}, {"host", "engine", "x", false},
		{"host/tar", "host", "untar", true}, {"host/tar", "host", "stat", false},
	} {
		if got := (&bench{only: c.only}).wants(c.group, c.work); got != c.want {
			t.Errorf("-only %q wants %s/%s: %v", c.only, c.group, c.work, got)
		}
	}
}

func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.MkdirAll(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := sweep(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after a sweep: %v", err)
	}
	if err := sweep(dir); err != nil {
		t.Errorf("sweep of nothing: %v", err)
	}
}

func TestCommand(t *testing.T) {
	out, err := command(t.Context(), "sh", "-c", "echo said; echo first >&2; echo last >&2; exit 3")
	if string(out) != "said\n" || err == nil || !strings.Contains(err.Error(), "exit status 3: first") {
		t.Errorf("%q, %v", out, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := command(ctx, "sh", "-c", "sleep 1000 & wait"); err == nil {
		t.Error("a command that hangs came to a good end")
	}
}

func TestWithInit(t *testing.T) {
	dir := t.TempDir()
	base, program, out := filepath.Join(dir, "base"), filepath.Join(dir, "program"), filepath.Join(dir, "out")
	for name, content := range map[string]string{base: "070701…", program: "ELF"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := withInit(out, base, program); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(got)%4 != 0 || !bytes.HasPrefix(got, []byte("070701…")) || !bytes.Contains(got, []byte("init\x00")) ||
		!bytes.Contains(got, []byte("ELF")) || !bytes.Contains(got, []byte("TRAILER!!!\x00")) {
		t.Errorf("archive: %q", got)
	}
}

// The budget's operations without a mount come to their end over each kind of
// journal and index.
func TestEngineCosts(t *testing.T) {
	ops := budgetOps(quick)
	got, err := engineCosts(t.Context(), filepath.Join(t.TempDir(), "engine"), ops)
	if err != nil {
		t.Fatal(err)
	}
	for kind, costs := range got {
		for i, v := range costs {
			if math.IsNaN(v) || v < 0 {
				t.Errorf("kind %d, %s: %v", kind, ops[i].name, v)
			}
		}
		if len(costs) != len(ops) {
			t.Errorf("kind %d has %d figures of %d", kind, len(costs), len(ops))
		}
	}
}

func TestEngineWorks(t *testing.T) {
	b := quiet()
	room := &engineRoom{b: b, dir: t.TempDir()}
	room.lib = filepath.Join(room.dir, "library")
	for _, w := range engineWorks(b.sizes) {
		v, err := once(t.Context(), time.Minute, w, room, true)
		if err != nil {
			t.Errorf("%s: %v", w.name, err)
		} else if math.IsNaN(v) || v <= 0 {
			t.Errorf("%s: %v", w.name, v)
		}
	}
}
