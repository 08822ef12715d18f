package servertest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"holt"
	"holt/internal/nouns"
)

// artifactCopies: a copy of an artifact has its bytes, belongs to its directory, and can be changed without the artifact.
func artifactCopies(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	c := newComputer(t, n, "cantor")
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(rand.Uint32())
	}
	for name, content := range map[string][]byte{"big": big, "small": []byte("a few bytes"), "empty": {}} {
		Must(n.Artifacts.Put(ctx, holt.ArtifactPut{Bucket: holt.DefaultBucket, Name: name}, bytes.NewReader(content)))(t)
		for _, to := range []holt.ArtifactCopy{
			{Computer: "cantor", Path: holt.OSString("/home/agent/in/" + name), Parents: true},
			{Computer: "cantor", Path: holt.OSString("/tmp/" + name)},
			{Workspace: c.Workspace, Path: holt.OSString("/other-" + name)},
		} {
			info := Must(n.Artifacts.Copy(ctx, "artifacts/"+name, to, ""))(t)
			if info.Path != to.Path || info.Size != int64(len(content)) || info.Kind != "file" || info.Mode != 0o644 {
				t.Errorf("copied %+v", info)
			}
			if to.Workspace != "" {
				to.Path = "/home/agent" + to.Path
			}
			var got bytes.Buffer
			fail(t, n.Files.Read(ctx, "cantor", string(to.Path), 0, -1, &got))
			if !bytes.Equal(got.Bytes(), content) {
				t.Errorf("%s has %d other bytes", to.Path, got.Len())
			}
		}
	}

	// An existing file keeps its mode and owner. A change of it does not change the artifact, nor does its computer's end.
	Must(n.Files.Write(ctx, "cantor", "/home/agent/mine", holt.WriteSpec{Mode: 0o600}, bytes.NewReader([]byte("old"))))(t)
	info := Must(n.Artifacts.Copy(ctx, "artifacts/big", holt.ArtifactCopy{Computer: "cantor", Path: "/home/agent/mine"}, "key"))(t)
	if info.Mode != 0o600 || info.Size != int64(len(big)) {
		t.Errorf("overwritten: %+v", info)
	}
	run := Must(n.Runs.Start(ctx, "cantor", holt.RunSpec{Command: "printf X | dd of=mine bs=1 seek=1000 conv=notrunc && cksum mine > sum"}, ""))(t)
	fail(t, n.Runs.Follow(ctx, run.ID, 0, func(holt.RunEvent) error { return nil }))
	want := bytes.Clone(big)
	want[1000] = 'X'
	var got bytes.Buffer
	fail(t, n.Files.Read(ctx, "cantor", "/home/agent/mine", 0, -1, &got))
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the changed copy has other bytes")
	}
	if !bytes.Equal(contentOf(t, n, "artifacts/big", 0, -1), big) {
		t.Error("the artifact has changed with its copy")
	}
	fail(t, n.Artifacts.Delete(ctx, "artifacts/big", ""))
	Must(n.Archive.Collect(ctx, ""))(t)
	got.Reset()
	fail(t, n.Files.Read(ctx, "cantor", "/home/agent/in/big", 0, -1, &got))
	if !bytes.Equal(got.Bytes(), big) {
		t.Error("the copy was lost with its artifact")
	}

	for code, specs := range map[holt.Code][]holt.ArtifactCopy{
		holt.InvalidArgument: {{Path: "/x"}, {Computer: "cantor", Workspace: c.Workspace, Path: "/x"}, {Computer: "cantor", Path: "relative"}, {Workspace: c.Workspace, Path: "/in"}},
		holt.NotFound:        {{Computer: "none", Path: "/x"}, {Workspace: "none", Path: "/x"}, {Workspace: c.Workspace, Path: "/none/x"}},
	} {
		for _, spec := range specs {
			_, err := n.Artifacts.Copy(ctx, "artifacts/small", spec, "")
			WantCode(t, err, code)
		}
	}
	_, err := n.Artifacts.Copy(ctx, "artifacts/none", holt.ArtifactCopy{Computer: "cantor", Path: "/tmp/x"}, "")
	WantCode(t, err, holt.NotFound)
}
