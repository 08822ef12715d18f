package servertest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/nouns"
)

// contentOf reads an artifact.
func contentOf(t *testing.T, n nouns.Set, ref string, off, length int64) []byte {
	t.Helper()
	var got bytes.Buffer
	fail(t, n.Artifacts.Read(t.Context(), ref, off, length, &got))
	return got.Bytes()
}

// settled waits until an artifact is stored.
func settled(t *testing.T, n nouns.Set, ref string) holt.Artifact {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		a := Must(n.Artifacts.Get(t.Context(), ref))(t)
		if a.State == holt.ArtifactReady {
			return a
		}
		if time.Now().After(end) {
			t.Fatalf("%+v is not stored", a)
		}
	}
}

// write gives a file of a computer some content.
func write(t *testing.T, n nouns.Set, computer, path string, content []byte) {
	t.Helper()
	Must(n.Files.Write(t.Context(), computer, path, holt.WriteSpec{}, bytes.NewReader(content)))(t)
}

// artifactVerbs: what is published is the file as it was, of its computer, whatever becomes of both.
func artifactVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	c := newComputer(t, n, "noether")
	big := make([]byte, 5<<20)
	for i := range big {
		big[i] = byte(rand.Uint32())
	}
	write(t, n, "noether", "/home/agent/big", big)
	run := Must(n.Runs.Start(ctx, "noether", holt.RunSpec{Command: "echo report > report.txt"}, ""))(t)
	fail(t, n.Runs.Follow(ctx, run.ID, 0, func(holt.RunEvent) error { return nil }))

	small := Must(n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "noether", Path: "/home/agent/report.txt", Tags: map[string]string{"kind": "report"}}, "once"))(t)
	if again := Must(n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "noether", Path: "/home/agent/report.txt", Tags: map[string]string{"kind": "report"}}, "once"))(t); again.ID != small.ID {
		t.Errorf("a repeated publish made %s besides %s", again.ID, small.ID)
	}
	o := small.Origin
	if small.Bucket != holt.DefaultBucket || small.Name != "report.txt" || !small.Newest || small.State != holt.ArtifactReady || small.SHA256 != sumOf([]byte("report\n")) ||
		!strings.HasPrefix(small.MediaType, "text/plain") || small.Tags["kind"] != "report" || o.ComputerID != c.ID || o.Workspace != c.Workspace || o.Path != "/home/agent/report.txt" ||
		o.Writer == nil || o.Writer.Run != string(run.ID) || o.Command != "echo report > report.txt" {
		t.Errorf("published %+v", small)
	}
	large := Must(n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "noether", Path: "/home/agent/big", Bucket: holt.DefaultBucket, Name: "data/big"}, ""))(t)
	if large.Size != int64(len(big)) {
		t.Errorf("published %+v", large)
	}
	write(t, n, "noether", "/home/agent/big", []byte("another")) // the artifact is as the file was
	if !bytes.Equal(contentOf(t, n, string(large.ID), 0, -1), big) || !bytes.Equal(contentOf(t, n, "artifacts/data/big", 1<<20, 100), big[1<<20:1<<20+100]) {
		t.Error("the artifact has other bytes than the file had")
	}
	if large = settled(t, n, string(large.ID)); large.SHA256 != sumOf(big) {
		t.Errorf("stored %+v", large)
	}
	for _, point := range Must(n.History.Checkpoints(ctx, c.Workspace))(t) {
		if point.Name == string(large.ID) || point.Name == string(small.ID) {
			t.Errorf("the checkpoint %+v of a stored artifact is left", point)
		}
	}

	// A symbolic link is followed, but not out of the workspace.
	for link, target := range map[holt.OSString]holt.OSString{"/home/agent/latest": "report.txt", "/home/agent/absolute": "/home/agent/report.txt", "/tmp/link": "/home/agent/report.txt"} {
		Must(n.Files.Symlink(ctx, "noether", holt.SymlinkSpec{Path: link, Target: target}, ""))(t)
		a := Must(n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "noether", Path: link}, ""))(t)
		if a.SHA256 != small.SHA256 || a.Origin.Path != link {
			t.Errorf("%s: published %+v", link, a)
		}
	}
	for _, target := range []holt.OSString{"/etc/hostname", "../../etc/hostname"} {
		Must(n.Files.Symlink(ctx, "noether", holt.SymlinkSpec{Path: "/home/agent/out", Target: target}, ""))(t)
		_, err := n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "noether", Path: "/home/agent/out"}, "")
		WantCode(t, err, holt.InvalidArgument)
	}

	// A file outside of the workspace, and versions of one name.
	write(t, n, "noether", "/tmp/out", []byte("outside"))
	second := Must(n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "noether", Path: "/tmp/out", Name: "report.txt"}, ""))(t)
	if got := Must(n.Artifacts.Get(ctx, "artifacts/report.txt"))(t); got.ID != second.ID || string(contentOf(t, n, string(small.ID), 0, -1)) != "report\n" {
		t.Errorf("the newest is %+v", got)
	}

	for _, wrong := range []holt.ArtifactSpec{{Path: "/a"}, {Computer: "noether", Workspace: "noether", Path: "/a"}, {Computer: "noether", Path: "relative"}, {Computer: "noether", Path: "/dev/null"},
		{Computer: "noether", Path: "/tmp/out", Name: "a\nb"}, {Computer: "noether", Path: "/tmp/out", MediaType: "no type"}, {Computer: "noether", Path: "/tmp/out", Tags: map[string]string{"": "x"}}} {
		_, err := n.Artifacts.Publish(ctx, wrong, "")
		WantCode(t, err, holt.InvalidArgument)
	}
	for _, missing := range []holt.ArtifactSpec{{Computer: "noether", Path: "/home/agent/none"}, {Workspace: "none", Path: "/none"}, {Computer: "noether", Path: "/tmp/out", Bucket: "none"}} {
		_, err := n.Artifacts.Publish(ctx, missing, "")
		WantCode(t, err, holt.NotFound)
	}

	// They outlive the computer and its workspace, even one that is still being stored.
	write(t, n, "noether", "/home/agent/last", big)
	last := Must(n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "noether", Path: "/home/agent/last"}, ""))(t)
	Must(n.Computers.Delete(ctx, "noether", ""))(t)
	if _, err := n.Workspaces.Get(ctx, c.Workspace); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("the workspace is there: %v", err)
	}
	if last = settled(t, n, string(last.ID)); last.SHA256 != sumOf(big) || !bytes.Equal(contentOf(t, n, string(last.ID), 0, -1), big) {
		t.Errorf("after its workspace: %+v", last)
	}
	Must(n.Archive.Collect(ctx, ""))(t)
	if !bytes.Equal(contentOf(t, n, string(large.ID), 0, -1), big) {
		t.Error("the artifact was collected")
	}
}

// bucketVerbs: artifacts that are sent, their versions, lists, retention and deletion.
func bucketVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	made := Must(n.Artifacts.CreateBucket(ctx, holt.BucketSpec{Name: "latest", Replace: true}, "key"))(t)
	if again := Must(n.Artifacts.CreateBucket(ctx, holt.BucketSpec{Name: "latest", Replace: true}, "key"))(t); again != made {
		t.Errorf("a repeated create: %+v", again)
	}
	_, err := n.Artifacts.CreateBucket(ctx, holt.BucketSpec{Name: "latest"}, "")
	WantCode(t, err, holt.AlreadyExists)
	_, err = n.Artifacts.CreateBucket(ctx, holt.BucketSpec{Name: "Not A Label"}, "")
	WantCode(t, err, holt.InvalidArgument)
	send := func(bucket, name, content string) holt.Artifact {
		t.Helper()
		a := Must(n.Artifacts.Put(ctx, holt.ArtifactPut{Bucket: bucket, Name: name}, strings.NewReader(content)))(t)
		if a.SHA256 != sumOf([]byte(content)) || a.Size != int64(len(content)) || !a.Newest || string(contentOf(t, n, string(a.ID), 0, -1)) != content {
			t.Errorf("stored %+v", a)
		}
		return a
	}
	for _, size := range []int{0, 1, 16 << 10, 16<<10 + 1, 2 << 20} { // kept in the row, and in the archive
		send("", "size", strings.Repeat("x", size))
	}
	_, err = n.Artifacts.Put(ctx, holt.ArtifactPut{Name: "cut"}, io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), failing{holt.Errorf(holt.Conflict, "cut off")}))
	if err == nil {
		t.Error("an artifact that was cut off is stored")
	}
	_, err = n.Artifacts.Get(ctx, "artifacts/cut")
	WantCode(t, err, holt.NotFound)

	before := len(happened(t, n))
	first, second := send("latest", "a", "one"), send("latest", "a", "two")
	if got := strings.Join(happened(t, n)[before:], ", "); before != 5 || got != "created latest/a, created latest/a, deleted latest/a" && got != "created latest/a, deleted latest/a, created latest/a" {
		t.Errorf("events: %d, then %s", before, got)
	}
	_, err = n.Artifacts.Get(ctx, string(first.ID))
	WantCode(t, err, holt.NotFound)
	names := func(q holt.ArtifactQuery) (out []string) {
		t.Helper()
		for q.Limit = 2; ; {
			page := Must(n.Artifacts.List(ctx, q))(t)
			for _, a := range page.Items {
				out = append(out, a.Bucket+"/"+a.Name)
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return out
			}
		}
	}
	send("latest", "b/1", "1")
	send("latest", "b/2", "2")
	send("latest", "b%", "3")
	for _, c := range []struct {
		q    holt.ArtifactQuery
		want string
	}{
		{holt.ArtifactQuery{Bucket: "latest"}, "latest/a latest/b% latest/b/1 latest/b/2"},
		{holt.ArtifactQuery{Bucket: "latest", Prefix: "b/"}, "latest/b/1 latest/b/2"},
		{holt.ArtifactQuery{Bucket: "latest", Prefix: "b%"}, "latest/b%"},
		{holt.ArtifactQuery{Prefix: "size", Versions: true}, "artifacts/size artifacts/size artifacts/size artifacts/size artifacts/size"},
		{holt.ArtifactQuery{Prefix: "size"}, "artifacts/size"},
	} {
		if got := strings.Join(names(c.q), " "); got != c.want {
			t.Errorf("%+v: %s", c.q, got)
		}
	}

	// What is kept is not deleted, and not replaced.
	hour, hold, off := int64(3600e3), true, false
	kept := Must(n.Artifacts.Update(ctx, "latest/a", holt.ArtifactChange{RetainMS: &hour, Hold: &hold, Tags: map[string]*string{"k": new(string)}}, ""))(t)
	if kept.ID != second.ID || !kept.Hold || kept.RetainUntil == nil || len(kept.Tags) != 1 {
		t.Errorf("changed %+v", kept)
	}
	minute := int64(60e3)
	if short := Must(n.Artifacts.Update(ctx, "latest/a", holt.ArtifactChange{RetainMS: &minute}, ""))(t); !short.RetainUntil.Before(*kept.RetainUntil) {
		t.Errorf("an admin cannot shorten a retention: %+v", short)
	}
	century := int64(101 * 365 * 24 * 3600e3)
	_, err = n.Artifacts.Update(ctx, "latest/a", holt.ArtifactChange{RetainMS: &century}, "")
	WantCode(t, err, holt.InvalidArgument)
	third := send("latest", "a", "three")
	for range 2 { // on hold, and then retained
		WantCode(t, n.Artifacts.Delete(ctx, string(second.ID), ""), holt.Conflict)
		Must(n.Artifacts.Update(ctx, string(second.ID), holt.ArtifactChange{Hold: &off, Tags: map[string]*string{"k": nil}}, ""))(t)
	}
	fail(t, n.Artifacts.Delete(ctx, string(third.ID), "gone"))
	fail(t, n.Artifacts.Delete(ctx, string(third.ID), "gone"))
	if now := Must(n.Artifacts.Get(ctx, "latest/a"))(t); now.ID != second.ID || !now.Newest || len(now.Tags) != 0 {
		t.Errorf("after the newest is deleted: %+v", now)
	}
	b := Must(n.Artifacts.Bucket(ctx, "latest"))(t)
	if b.Artifacts != 4 || b.Bytes != 6 {
		t.Errorf("%+v", b)
	}
	WantCode(t, n.Artifacts.DeleteBucket(ctx, "latest", ""), holt.Conflict)
	Must(n.Artifacts.CreateBucket(ctx, holt.BucketSpec{Name: "empty"}, ""))(t)
	fail(t, n.Artifacts.DeleteBucket(ctx, "empty", ""))
	if all := Must(n.Artifacts.Buckets(ctx))(t); len(all) != 2 {
		t.Errorf("buckets: %+v", all)
	}
}

// happened returns what events say of artifacts, in order.
func happened(t *testing.T, n nouns.Set) (all []string) {
	t.Helper()
	fail(t, n.Events.Follow(t.Context(), holt.EventQuery{Kinds: []string{"artifact"}}, func(e holt.Event) error {
		if e.Ref != "" {
			all = append(all, strings.TrimPrefix(string(e.Kind), "artifact.")+" "+e.Name)
		}
		return nil
	}))
	return all
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
