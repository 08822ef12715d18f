package cli_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holt"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
	"holt/internal/store/parcel"
)

// oddJobs have outputs that no file system takes, as long as their command says so.
type oddJobs struct{ nouns.Jobs }

func (n oddJobs) Outputs(ctx context.Context, id holt.JobID, out io.Writer) error {
	j, err := n.Get(ctx, id)
	if err != nil || !strings.Contains(string(j.Spec.Run.Command), "odd") {
		return n.Jobs.Outputs(ctx, id, out)
	}
	w, err := parcel.NewWriter(out, parcel.Totals{})
	for _, e := range []parcel.Entry{{Kind: parcel.Dir, Mode: 0o755}, {Kind: parcel.File, Name: "x", Mode: 0o644, Size: 1 << 60}, {Kind: parcel.Symlink, Name: "y", Target: strings.Repeat("a/", 2048)}} {
		if err == nil {
			err = w.Entry(&e)
		}
	}
	if err == nil {
		err = w.Up()
	}
	if err == nil {
		err = w.Close()
	}
	return err
}

// TestOddOutputs: outputs that cannot be here fail their job and no other, nor the batch; those of an earlier attempt
// go also where their modes protect them.
func TestOddOutputs(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	nouns.Jobs = oddJobs{nouns.Jobs}
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	dir := t.TempDir()
	batch, results := filepath.Join(dir, "b.jsonl"), filepath.Join(dir, "b.out")
	run := func(lines string, status int, more ...string) (all string) {
		t.Helper()
		if err := os.WriteFile(batch, []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Args = append([]string{"holt", "job", "run", "--batch", batch, "--parallel", "1"}, more...) // see TestMain
		if os.Geteuid() == 0 {                                                                          // whom modes do not bind
			cmd = exec.Command("setpriv", append([]string{"--bounding-set=-dac_override,-dac_read_search", "bash", "-c", `exec -a holt "$0" "$@"`, os.Args[0]}, cmd.Args[1:]...)...)
		}
		cmd.Env = append(os.Environ(), "HOLT_SOCKET="+d.Socket)
		out, _ := cmd.CombinedOutput() // the status says it
		if got := cmd.ProcessState.ExitCode(); got != status {
			t.Fatalf("%q: status %d, not %d: %s", more, got, status, out)
		}
		b, err := os.ReadFile(filepath.Join(results, "results.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const protected = `{"id":"one","command":"mkdir -p out/d/e; echo 1 > out/d/e/f; chmod 555 out/d/e out/d; exit 3"}` + "\n"
	const odd = `{"id":"two","command":"echo odd > out/x"}` + "\n"
	const three = `{"id":"three","command":"echo 3 > out/x"}` + "\n"
	all := run(protected+odd+three, 1)
	if n := strings.Count(all, "\n"); n != 3 || !strings.Contains(all, `"id":"three"`) || strings.Count(all, "the outputs cannot be stored here: ") != 1 || strings.Count(all, "24 hours") != 1 {
		t.Errorf("%d results: %s", n, all)
	}
	if got, err := os.ReadFile(filepath.Join(results, "one/d/e/f")); err != nil || string(got) != "1\n" {
		t.Errorf("%q %v", got, err)
	}
	left, err := filepath.Glob(filepath.Join(results, ".*.part"))
	if _, there := os.Stat(filepath.Join(results, "two")); err != nil || len(left) > 0 || !os.IsNotExist(there) {
		t.Errorf("of what could not be here there is %v, %v %v", left, there, err)
	}
	jobs, err := nouns.Jobs.List(t.Context(), "", 10)
	if err != nil || len(jobs) != 3 || !jobs[1].Outputs.Kept || jobs[0].Outputs.Kept {
		t.Errorf("%+v %v", jobs, err)
	}
	if again := run(protected+odd+three, 1, "--resume"); again != all {
		t.Errorf("run again: %s", again)
	}
	all = run(protected+strings.Replace(odd, "odd", "even", 1)+three, 1, "--resume", "--retry-failed")
	if got, err := os.ReadFile(filepath.Join(results, "two/x")); err != nil || string(got) != "even\n" || strings.Count(all, "\n") != 5 {
		t.Errorf("%q %v: %s", got, err, all)
	}
}
