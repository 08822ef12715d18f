package daemon_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/client"
)

type away struct{ *client.Client }

func (c away) Create(t *testing.T, name string) {
	t.Helper()
	if _, err := c.Workspaces.Create(t.Context(), holt.WorkspaceSpec{Name: name}, ""); err != nil {
		t.Fatal(err)
	}
}

func (c away) Put(t *testing.T, ref, path, content string) {
	t.Helper()
	if _, err := c.WorkspaceFiles.Write(t.Context(), ref, path, holt.WriteSpec{}, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

func (c away) Cat(t *testing.T, ref, path string) (string, error) {
	t.Helper()
	var b strings.Builder
	err := c.WorkspaceFiles.Read(t.Context(), ref, path, 0, -1, &b)
	return b.String(), err
}

func (c away) Get(t *testing.T, ref string) holt.Workspace {
	t.Helper()
	w, err := c.Workspaces.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (c away) Flush(t *testing.T, ref string) {
	t.Helper()
	if _, err := c.Workspaces.Query(t.Context(), ref, holt.QuerySpec{SQL: "SELECT count(*) FROM files"}); err != nil {
		t.Fatal(err)
	}
}

// TestKilledWhilePacking: the daemon is killed again and again at any step of
// packing and collecting while files are written, deleted and written anew.
// Everything that was answered is there afterwards, and both the workspace and
// the archive check clean.
func TestKilledWhilePacking(t *testing.T) {
	kills := 5
	if os.Getenv("HOLT_SOAK") != "" {
		kills = 30
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := home(t)
	p := spawn(t, dir, killArchive+"1000000")
	away{p.Client}.Create(t, "notes")
	stop, wrote := make(chan struct{}), make(chan map[string]string)
	go func() { wrote <- writeOn(t, dir, seed, stop) }()
	for range kills {
		p.kill()
		p = spawn(t, dir, fmt.Sprint(killArchive, 1+rng.IntN(40)))
		p.wait() // killed by itself
	}
	p = spawn(t, dir, killArchive+"1000000")
	close(stop)
	want := <-wrote
	for range 2 {
		for name, content := range want {
			if got, err := (away{p.Client}).Cat(t, "notes", name); err != nil || got != content {
				t.Fatalf("%s holds %d bytes, not %d: %v", name, len(got), len(content), err)
			}
		}
		isPacked(t, away{p.Client}, "notes")
		if _, err := p.Archive.Collect(t.Context(), ""); err != nil {
			t.Error(err)
		}
		report, err := p.Archive.Check(t.Context())
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("check of the archive: %v %v", report.Problems, err)
		}
	}
	endAll(t, p)
}

// writeOn replaces files until stop and returns what each holds. A write that
// a kill interrupted is done again.
func writeOn(t *testing.T, dir string, seed uint64, stop <-chan struct{}) map[string]string {
	c := connect(t, dir)
	defer c.Close()
	rng := rand.New(rand.NewPCG(seed, 1))
	want := map[string]string{}
	for n := uint64(0); ; n++ {
		select {
		case <-stop:
			return want
		default:
		}
		name, content := fmt.Sprint("/f", rng.IntN(12)), lines(seed+n%5, 20_000+rng.IntN(60_000))
		for {
			_, err := c.WorkspaceFiles.Write(t.Context(), "notes", name, holt.WriteSpec{}, strings.NewReader(content))
			if err == nil {
				break
			}
			if holt.CodeOf(err) != holt.Unavailable {
				t.Error(err)
				return want
			}
		}
		want[name] = content
	}
}
