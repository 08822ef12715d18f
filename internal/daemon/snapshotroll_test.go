package daemon_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"holt"
)

// rolls takes snapshots of a computer that runs on, and deletes all but the last, under a daemon that
// dies when one disk has taken the place of those that were left. The machine, a fork, and the
// archive then have that one.
func (v *vm) rolls(computer string) {
	t, ctx := v.t, context.Background()
	t.Helper()
	const taken = 10
	for i := range taken {
		v.says(computer, fmt.Sprintf("echo %d >> /root/rolled; sync /root/rolled", i))
		if _, err := v.Computers.Snapshot(ctx, computer, holt.SnapshotSpec{Name: fmt.Sprint("roll-", i)}, ""); err != nil {
			t.Fatal(err)
		}
	}
	last := fmt.Sprint("roll-", taken-1)
	archived := func() bool {
		m, err := v.Snapshots.Get(ctx, last)
		if err != nil {
			t.Fatal(err)
		}
		return m.Archived
	}
	within(t, last+" to be in the archive", archived)
	v.kill()
	v.again("flatten/replaced")
	done, caller := make(chan error, 1), connect(t, v.dir)
	go func() {
		for i := range taken - 1 {
			name := fmt.Sprint("roll-", i)
			if _, err := caller.Snapshots.Delete(ctx, name, name); err != nil {
				done <- fmt.Errorf("%s: %w", name, err)
				return
			}
		}
		done <- nil
	}()
	v.dies("flatten/replaced")
	v.again("")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	within(t, "disks to be merged beneath a machine that runs", func() bool { return len(namesIn(t, filepath.Join(v.dir, "disks"))) < taken })
	const kept = "cat /root/rolled; cd / && cat /var/lib/dpkg/info/{bash,coreutils}.md5sums | grep bin/ | md5sum -c --quiet"
	const want = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9"
	if got := v.says(computer, kept); got != want {
		t.Errorf("after its disks were merged: %q", got)
	}
	if _, err := v.Snapshots.Fork(ctx, last, holt.ComputerForkSpec{Name: "rolled"}, ""); err != nil {
		t.Fatal(err)
	}
	if got := v.says("rolled", kept); got != want {
		t.Errorf("a fork over merged disks: %q", got)
	}
	if _, err := v.Computers.Delete(ctx, "rolled", ""); err != nil {
		t.Error(err)
	}
	within(t, "the archive to have the merged disk only", func() bool {
		out, err := exec.Command("sqlite3", "-readonly", filepath.Join(v.dir, "holt.db"),
			"SELECT (SELECT count(*) FROM disk_left) + (SELECT count(*) FROM snapshot WHERE outdated)").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out) == "0\n" && archived()
	})
	if report, err := v.Archive.Check(ctx); err != nil || len(report.Problems) > 0 {
		t.Errorf("the archive: %+v %v", report, err)
	}
	if _, err := v.Snapshots.Delete(ctx, last, ""); err != nil {
		t.Error(err)
	}
	v.says(computer, "rm /root/rolled")
}
