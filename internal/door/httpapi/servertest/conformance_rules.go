package servertest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holt"
	"holt/internal/nouns"
)

// ruleVerbs: settings of buckets, a quota, and a scan of what is put and published.
func ruleVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	scan := filepath.Join(t.TempDir(), "scan")
	fail(t, os.WriteFile(scan, []byte("#!/bin/sh\nif grep -q bad; then echo 'it is bad'; exit 1; fi\n"), 0o755))
	made := Must(n.Artifacts.CreateBucket(ctx, holt.BucketSpec{Name: "strict", ExpireMS: 3600e3, Keep: 3, QuotaMB: 1}, ""))(t)
	if made.ExpireMS != 3600e3 || made.Keep != 3 || made.QuotaMB != 1 || made.Scanned {
		t.Errorf("created %+v", made)
	}
	one, none := 1, int64(0)
	for range 2 { // and again with its key
		b := Must(n.Artifacts.UpdateBucket(ctx, "strict", holt.BucketChange{Keep: &one, ExpireMS: &none, Scan: &scan}, "key"))(t)
		if b.Keep != 1 || b.ExpireMS != 0 || b.QuotaMB != 1 || b.Scan != scan || !b.Scanned {
			t.Errorf("changed %+v", b)
		}
	}
	_, err := n.Artifacts.UpdateBucket(ctx, "strict", holt.BucketChange{}, "")
	WantCode(t, err, holt.InvalidArgument)
	_, err = n.Artifacts.UpdateBucket(ctx, "none", holt.BucketChange{Keep: &one}, "")
	WantCode(t, err, holt.NotFound)

	put := func(name, content string, size int64) error {
		_, err := n.Artifacts.Put(ctx, holt.ArtifactPut{Bucket: "strict", Name: name, Size: size}, strings.NewReader(content))
		return err
	}
	fail(t, put("a", "good", 4))
	fail(t, put("a", "good too", 0))
	for _, content := range []string{"bad", strings.Repeat("x", 20<<10) + "bad"} {
		err = put("b", content, 0)
		WantCode(t, err, holt.InvalidArgument)
		if !strings.Contains(err.Error(), "it is bad") {
			t.Error(err)
		}
	}
	WantCode(t, put("b", strings.Repeat("x", 1<<20), 1<<20), holt.OutOfSpace)
	WantCode(t, put("b", strings.Repeat("x", 1<<20), 0), holt.OutOfSpace)

	c := newComputer(t, n, "noether")
	for path, content := range map[string]string{"/home/agent/good": "good", "/home/agent/bad": "bad", "/tmp/bad": "bad"} {
		write(t, n, "noether", path, []byte(content))
	}
	good := Must(n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "noether", Path: "/home/agent/good", Bucket: "strict"}, ""))(t)
	if good.State != holt.ArtifactReady || good.SHA256 != sumOf([]byte("good")) || good.Origin.ModTime == nil || string(contentOf(t, n, string(good.ID), 0, -1)) != "good" {
		t.Errorf("published %+v", good)
	}
	for _, path := range []holt.OSString{"/home/agent/bad", "/tmp/bad"} {
		_, err := n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "noether", Path: path, Bucket: "strict"}, "once")
		WantCode(t, err, holt.InvalidArgument)
	}
	for _, point := range Must(n.History.Checkpoints(ctx, c.Workspace))(t) {
		if point.Name == string(good.ID) {
			t.Errorf("the checkpoint %+v of a stored artifact is left", point)
		}
	}
	if b := Must(n.Artifacts.Bucket(ctx, "strict"))(t); b.Artifacts != 2 || b.Bytes != 12 {
		t.Errorf("%+v", b)
	}
	if got := strings.Join(happened(t, n), ", "); strings.Count(got, "refused strict/b") != 4 || strings.Count(got, "refused strict/bad") != 2 {
		t.Errorf("events: %s", got)
	}
}

// publishing: the outputs of a job that succeeds become artifacts, with the job and its run in their origin.
func publishing(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	Must(n.Artifacts.CreateBucket(ctx, holt.BucketSpec{Name: "results"}, ""))(t)
	run := func(command string, p holt.JobPublish) holt.Job {
		t.Helper()
		j := Must(n.Jobs.Create(ctx, holt.JobSpec{Publish: &p, Run: holt.RunSpec{Command: holt.OSString(command)}}, ""))(t)
		jobSays(t, n, j.ID, 0)
		return Must(n.Jobs.Get(ctx, j.ID))(t)
	}
	j := run("mkdir -p out/sub; echo 1 > out/a; echo 2 > out/sub/b; ln -s a out/link", holt.JobPublish{Bucket: "results"})
	page := Must(n.Artifacts.List(ctx, holt.ArtifactQuery{Bucket: "results", Computer: string(j.ComputerID)}))(t)
	var names []string
	for i, a := range page.Items {
		names = append(names, strings.TrimPrefix(a.Name, string(j.ID)+"/"))
		if o := a.Origin; o.Job != j.ID || o.Run != j.RunID || o.By != "job "+string(j.ID) || o.ComputerID != j.ComputerID || !slices.Contains(j.Artifacts, a.ID) || o.Path != holt.OSString("/home/agent/out/"+names[i]) {
			t.Errorf("published %+v", a)
		}
	}
	if got := strings.Join(names, " "); got != "a sub/b" || len(j.Artifacts) != 2 || j.State != holt.JobDone {
		t.Errorf("published %s, %+v", got, j)
	}
	Must(n.Jobs.Release(ctx, j.ID, ""))(t)
	if got := contentOf(t, n, "results/"+string(j.ID)+"/sub/b", 0, -1); string(got) != "2\n" {
		t.Errorf("it has %q", got)
	}
	if j := run("echo 1 > out/a; echo 2 > out/b", holt.JobPublish{Paths: []holt.OSString{"b"}}); len(j.Artifacts) != 1 || string(contentOf(t, n, "artifacts/"+string(j.ID)+"/b", 0, -1)) != "2\n" {
		t.Errorf("%+v", j)
	}
	if j := run("echo 1 > out/a; exit 1", holt.JobPublish{}); len(j.Artifacts) != 0 || j.Error != nil {
		t.Errorf("a command that failed: %+v", j)
	}
	if j := run("mkdir out/dir; echo 3 > out/dir/c", holt.JobPublish{Paths: []holt.OSString{"dir"}}); len(j.Artifacts) != 1 || string(readFile(t, n, string(j.Artifacts[0]), "/c")) != "3\n" {
		t.Errorf("a directory: %+v", j)
	}
	if j := run("true", holt.JobPublish{Paths: []holt.OSString{"none"}}); j.State != holt.JobFailed || j.Error == nil || j.Error.Code != holt.NotFound {
		t.Errorf("no file: %+v", j)
	}
	if j := run("cd out && seq 1001 | xargs touch", holt.JobPublish{}); j.State != holt.JobFailed || j.Error == nil || j.Error.Code != holt.TooMany || len(j.Artifacts) != 0 {
		t.Errorf("too many: %+v", j)
	}
	for _, wrong := range []holt.JobPublish{{Bucket: "none"}, {Paths: []holt.OSString{"../x"}}, {Paths: []holt.OSString{"/x"}}, {Paths: []holt.OSString{""}}} {
		if _, err := n.Jobs.Create(ctx, holt.JobSpec{Publish: &wrong, Run: holt.RunSpec{Command: "true"}}, ""); holt.CodeOf(err) != holt.InvalidArgument && holt.CodeOf(err) != holt.NotFound {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
