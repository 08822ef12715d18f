package servertest

import (
	"archive/tar"
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"holt"
	"holt/internal/nouns"
)

// artifactTrees: a directory is one artifact, with its files as they were.
func artifactTrees(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	c := newComputer(t, n, "euler")
	big := make([]byte, 2<<20)
	for i := range big {
		big[i] = byte(rand.Uint32())
	}
	files := map[string][]byte{"index.html": []byte("<h1>hello</h1>"), "assets/app.js": []byte("alert(1)"), "assets/big.bin": big}
	for name, content := range files {
		Must(n.Files.Write(ctx, "euler", "/home/agent/site/"+name, holt.WriteSpec{Parents: true, Mode: 0o640}, bytes.NewReader(content)))(t)
	}
	Must(n.Files.Symlink(ctx, "euler", holt.SymlinkSpec{Path: "/home/agent/site/start", Target: "index.html"}, ""))(t)
	run := Must(n.Runs.Start(ctx, "euler", holt.RunSpec{Command: "mkdir -p /tmp/small && echo x > /tmp/small/x && mkfifo site/pipe"}, ""))(t)
	fail(t, n.Runs.Follow(ctx, run.ID, 0, func(holt.RunEvent) error { return nil }))

	site := Must(n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "euler", Path: "/home/agent/site"}, "once"))(t)
	if site.Name != "site" || !site.Tree || site.State != holt.ArtifactReady || site.MediaType != "application/x-tar" || site.Size < int64(len(big)) || site.Origin.Path != "/home/agent/site" || site.Origin.Workspace != c.Workspace {
		t.Errorf("published %+v", site)
	}
	stream := contentOf(t, n, string(site.ID), 0, -1)
	if site.SHA256 != sumOf(stream) {
		t.Errorf("the tar stream has another SHA-256 than %s", site.SHA256)
	}
	again := Must(n.Artifacts.Put(ctx, holt.ArtifactPut{Bucket: holt.DefaultBucket, Name: "again", Tree: true}, bytes.NewReader(stream)))(t)
	small := Must(n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "euler", Path: "/tmp/small"}, ""))(t)
	if got := readFile(t, n, string(small.ID), "/x"); !small.Tree || string(got) != "x\n" {
		t.Errorf("published %+v with %q", small, got)
	}
	Must(n.Computers.Delete(ctx, "euler", ""))(t)

	for _, ref := range []string{"artifacts/site", string(again.ID)} {
		for name, content := range files {
			if got := readFile(t, n, ref, "/"+name); !bytes.Equal(got, content) {
				t.Errorf("%s of %s has %d other bytes", name, ref, len(got))
			}
			info := Must(n.ArtifactFiles.Stat(ctx, ref, "/"+name))(t)
			if info.Path != holt.OSString("/"+name) || info.Kind != "file" || info.Size != int64(len(content)) || info.Mode != 0o640 {
				t.Errorf("%s is %+v", name, info)
			}
		}
		if got := readFile(t, n, ref, "/start"); !bytes.Equal(got, files["index.html"]) {
			t.Errorf("the link leads to %q", got)
		}
		first := Must(n.ArtifactFiles.List(ctx, ref, "/", holt.PageSpec{Limit: 2}))(t)
		rest := Must(n.ArtifactFiles.List(ctx, ref, "/", holt.PageSpec{Limit: 2, Cursor: first.Next}))(t)
		if len(first.Items) != 2 || first.Items[0].Name != "assets" || first.Items[0].Kind != "dir" || len(rest.Items) != 1 || rest.Items[0].Target != "index.html" || rest.Next != "" {
			t.Errorf("listed %+v and %+v", first, rest)
		}
		var z bytes.Buffer
		fail(t, n.Artifacts.Zip(ctx, ref, &z))
		if !bytes.HasPrefix(z.Bytes(), []byte("PK")) {
			t.Error("that is no zip archive")
		}
	}

	plain := Must(n.Artifacts.Put(ctx, holt.ArtifactPut{Bucket: holt.DefaultBucket, Name: "plain"}, bytes.NewReader([]byte("x"))))(t)
	_, err := n.ArtifactFiles.Stat(ctx, string(plain.ID), "/")
	WantCode(t, err, holt.InvalidArgument)
	WantCode(t, n.Artifacts.Zip(ctx, string(plain.ID), io.Discard), holt.InvalidArgument)
	_, err = n.ArtifactFiles.Stat(ctx, "artifacts/site", "/none")
	WantCode(t, err, holt.NotFound)
	_, err = n.ArtifactFiles.List(ctx, "artifacts/site", "/index.html", holt.PageSpec{})
	WantCode(t, err, holt.InvalidArgument)
	WantCode(t, n.ArtifactFiles.Read(ctx, "artifacts/site", "/assets", 0, -1, io.Discard), holt.InvalidArgument)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	fail(t, w.WriteHeader(&tar.Header{Name: "../out", Mode: 0o644}))
	fail(t, w.Close())
	for _, wrong := range [][]byte{out.Bytes(), []byte("no tar stream"), stream[:len(stream)/2]} {
		_, err := n.Artifacts.Put(ctx, holt.ArtifactPut{Bucket: holt.DefaultBucket, Name: "wrong", Tree: true}, bytes.NewReader(wrong))
		WantCode(t, err, holt.InvalidArgument)
	}
	_, err = n.Artifacts.Get(ctx, "artifacts/wrong")
	WantCode(t, err, holt.NotFound)
}

func readFile(t *testing.T, n nouns.Set, ref, file string) []byte {
	t.Helper()
	var got bytes.Buffer
	fail(t, n.ArtifactFiles.Read(t.Context(), ref, file, 0, -1, &got))
	return got.Bytes()
}
