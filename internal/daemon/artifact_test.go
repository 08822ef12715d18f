package daemon_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"holt"
)

// TestArtifactsKilled: a daemon is killed at each step of a publication, and right after the answer of one: the repeated
// call gets one artifact, with the bytes that the file had, and no checkpoint or space is left over.
func TestArtifactsKilled(t *testing.T) {
	dir := home(t)
	p := spawn(t, dir, "")
	ctx := t.Context()
	if _, err := p.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein"}, ""); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	content := map[string][]byte{}
	for name, size := range map[string]int{"small": 100, "large": 3 << 20} {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		content[name] = b
		if _, err := p.Files.Write(ctx, "einstein", "/home/agent/"+name, holt.WriteSpec{}, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	made := map[holt.ArtifactID]string{}
	publish := func(name, point string) error {
		a, err := p.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "einstein", Path: holt.OSString("/home/agent/" + name), Name: name + "/" + point}, name+point)
		if err == nil {
			made[a.ID] = name
		}
		return err
	}
	for name := range content {
		for _, point := range []string{"artifact/held", "artifact/stored"} {
			p.kill()
			p = spawn(t, dir, point)
			done := make(chan error, 1)
			go func() { done <- publish(name, point) }()
			select {
			case err := <-p.done:
				p.done <- err
			case <-time.After(patience):
				t.Fatalf("the daemon has not come to %s", point)
			}
			next := spawn(t, dir, "")
			err := <-done
			if p = next; holt.CodeOf(err) == holt.Unavailable { // no daemon was there to be asked
				err = publish(name, point)
			}
			if err != nil {
				t.Fatalf("%s, killed at %s: %v", name, point, err)
			}
		}
	}
	// It is killed while the computer is deleted, which waits for the artifact.
	p.kill()
	p = spawn(t, dir, "artifact/stored")
	done := make(chan error, 1)
	remove := func() error {
		err := publish("large", "last")
		if err == nil {
			_, err = p.Computers.Delete(ctx, "einstein", "gone")
		}
		return err
	}
	go func() { done <- remove() }()
	select {
	case err := <-p.done:
		p.done <- err
	case <-time.After(patience):
		t.Fatal("the daemon has not come to artifact/stored")
	}
	next := spawn(t, dir, "")
	err := <-done
	if p = next; holt.CodeOf(err) == holt.Unavailable { // no daemon was there to be asked
		err = remove()
	}
	if err != nil {
		t.Fatal(err)
	}
	page, err := p.Artifacts.List(ctx, holt.ArtifactQuery{Versions: true})
	if err != nil || len(page.Items) != 5 || len(made) != 5 {
		t.Errorf("%d artifacts, of which %d are known: %v", len(page.Items), len(made), err)
	}
	if _, err := p.Archive.Collect(ctx, ""); err != nil {
		t.Error(err)
	}
	for _, a := range page.Items {
		want, got := content[made[a.ID]], bytes.Buffer{}
		if err := p.Artifacts.Read(ctx, string(a.ID), 0, -1, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s has %d bytes, not the %d of the file: %v", a.Name, got.Len(), len(want), err)
		}
		if a.State != holt.ArtifactReady || a.SHA256 != fmt.Sprintf("%x", sha256.Sum256(want)) {
			t.Errorf("after its workspace was deleted: %+v", a)
		}
		if err := p.Artifacts.Delete(ctx, string(a.ID), ""); err != nil {
			t.Error(err)
		}
	}
	if left, err := p.Archive.Get(ctx); err != nil || left.Spaces != 0 {
		t.Errorf("in the archive is left %+v: %v", left, err)
	}
	endAll(t, p)
}

// TestArtifactHoldsItsWorkspace: a checkpoint that an artifact is read from is not deleted by hand, and a workspace is deleted
// when what was published from it is stored.
func TestArtifactHoldsItsWorkspace(t *testing.T) {
	stored, cfg := make(chan struct{}), config(t, home(t))
	cfg.Fail = func(point string) error {
		if point == "artifact/stored" {
			<-stored
		}
		return nil
	}
	n, ctx := up(t, cfg).Nouns(), t.Context()
	if _, err := n.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := n.WorkspaceFiles.Write(ctx, "notes", "/big", holt.WriteSpec{}, bytes.NewReader(make([]byte, 2<<20))); err != nil {
		t.Fatal(err)
	}
	a, err := n.Artifacts.Publish(ctx, holt.ArtifactSpec{Workspace: "notes", Path: "/big"}, "")
	if err != nil || a.State != holt.ArtifactStoring {
		t.Fatalf("%+v %v", a, err)
	}
	_, err = n.History.DeleteCheckpoint(ctx, "notes", string(a.ID), false, "")
	wantCode(t, err, holt.Conflict)
	gone, err := n.Artifacts.Publish(ctx, holt.ArtifactSpec{Workspace: "notes", Path: "/big", Name: "gone"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Artifacts.Delete(ctx, string(gone.ID), ""); err != nil {
		t.Error(err)
	}
	deleted := make(chan error, 1)
	go func() { deleted <- n.Workspaces.Delete(ctx, "notes", "") }()
	close(stored)
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	if a, err = n.Artifacts.Get(ctx, string(a.ID)); err != nil || a.State != holt.ArtifactReady || a.SHA256 != fmt.Sprintf("%x", sha256.Sum256(make([]byte, 2<<20))) {
		t.Errorf("%+v %v", a, err)
	}
	day, hour := int64(24*3600e3), int64(3600e3)
	if _, err := n.Artifacts.Update(ctx, string(a.ID), holt.ArtifactChange{RetainMS: &day}, ""); err != nil {
		t.Error(err)
	}
	_, err = n.Artifacts.Update(holt.WithActor(ctx, holt.Actor{Token: holt.NewTokenID(), Tenant: holt.DefaultTenant}), string(a.ID), holt.ArtifactChange{RetainMS: &hour}, "")
	wantCode(t, err, holt.Conflict)
	if left, err := n.Archive.Get(ctx); err != nil || left.Spaces != 1 {
		t.Errorf("in the archive is %+v: %v", left, err)
	}
}

// TestPublicationsKilled: a daemon is killed while an artifact is scanned, and while a job publishes its outputs: what was scanned
// appears once, by the repeated call, and each output of the job is one artifact.
func TestPublicationsKilled(t *testing.T) {
	dir := home(t)
	p := spawn(t, dir, "")
	ctx := t.Context()
	if _, err := p.Artifacts.CreateBucket(ctx, holt.BucketSpec{Name: "scanned", Scan: "/bin/true"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.WorkspaceFiles.Write(ctx, "notes", "/a", holt.WriteSpec{}, bytes.NewReader(make([]byte, 2<<20))); err != nil {
		t.Fatal(err)
	}
	for _, point := range []string{"artifact/scanning", "job/publish", "artifact/held"} {
		p.kill()
		p = spawn(t, dir, point)
		done := make(chan error, 1)
		publish := func() error {
			_, err := p.Artifacts.Publish(ctx, holt.ArtifactSpec{Workspace: "notes", Path: "/a", Bucket: "scanned", Name: point}, point)
			if err == nil {
				_, err = p.Jobs.Create(ctx, holt.JobSpec{Publish: &holt.JobPublish{}, Run: holt.RunSpec{Command: "echo 1 > out/a; echo 2 > out/b"}}, point+" job")
			}
			return err
		}
		go func() { done <- publish() }()
		select {
		case err := <-p.done:
			p.done <- err
		case <-time.After(patience):
			t.Fatalf("the daemon has not come to %s", point)
		}
		next := spawn(t, dir, "")
		err := <-done
		if p = next; holt.CodeOf(err) == holt.Unavailable { // no daemon was there to be asked
			err = publish()
		}
		if err != nil {
			t.Fatalf("killed at %s: %v", point, err)
		}
	}
	all, err := p.Jobs.List(ctx, "", 10)
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for _, j := range all {
		if err := p.Jobs.Follow(ctx, j.ID, 0, func(holt.RunEvent) error { return nil }); err != nil {
			t.Error(err)
		}
		if j, err = p.Jobs.Get(ctx, j.ID); err != nil || len(j.Artifacts) != 2 {
			t.Errorf("%+v %v", j, err)
		}
	}
	for bucket, want := range map[string]int{"scanned": 3, "artifacts": 6} {
		page, err := p.Artifacts.List(ctx, holt.ArtifactQuery{Bucket: bucket, Versions: true})
		if err != nil || len(page.Items) != want {
			t.Errorf("%s has %d artifacts, not %d: %v", bucket, len(page.Items), want, err)
		}
	}
	endAll(t, p)
}
