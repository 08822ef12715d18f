package s3_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holt"
)

// program runs a client that people use, unmodified, and returns what it says.
func (w *world) program(dir string, env []string, name string, args ...string) string {
	w.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		w.t.Fatalf("%s is not installed: run scripts/test-deps", name)
	}
	cmd := exec.CommandContext(w.t.Context(), path, args...)
	cmd.Dir, cmd.Env = dir, append(env, "HOME="+dir, "PATH="+os.Getenv("PATH"), "LANG=C.UTF-8") // without what this machine has set for clients of S3
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, &out, &said)
	}
	return out.String()
}

func files(t *testing.T, dir string) {
	t.Helper()
	for name, b := range map[string][]byte{"a.txt": []byte("a"), "dir/ü b.txt": []byte("b"), "dir/empty": nil, "big.bin": noise(1, 12<<20)} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRclone: rclone copies a directory in, one file in parts, finds it unchanged, brings it up to date, moves and deletes.
func TestRclone(t *testing.T) {
	w, dir := openWorld(t), t.TempDir()
	id, secret := w.key("default")
	env := []string{"RCLONE_CONFIG_H_TYPE=s3", "RCLONE_CONFIG_H_PROVIDER=Other", "RCLONE_CONFIG_H_ACCESS_KEY_ID=" + id, "RCLONE_CONFIG_H_SECRET_ACCESS_KEY=" + secret,
		"RCLONE_CONFIG_H_ENDPOINT=http://" + w.addr, "RCLONE_S3_CHUNK_SIZE=5M", "RCLONE_S3_UPLOAD_CUTOFF=5M", "RCLONE_S3_COPY_CUTOFF=6M"}
	rclone := func(args ...string) string { t.Helper(); return w.program(dir, env, "rclone", args...) }
	files(t, filepath.Join(dir, "in"))
	rclone("mkdir", "h:data")
	rclone("copy", "in", "h:data/copy")
	rclone("check", "--download", "in", "h:data/copy")
	if got := rclone("lsf", "-R", "--files-only", "h:data"); got != "copy/a.txt\ncopy/big.bin\ncopy/dir/empty\ncopy/dir/ü b.txt\n" {
		t.Errorf("%q", got)
	}
	if err := os.Remove(filepath.Join(dir, "in/a.txt")); err != nil {
		t.Fatal(err)
	}
	rclone("sync", "in", "h:data/copy")
	rclone("moveto", "h:data/copy/big.bin", "h:data/moved.bin") // copied in parts
	rclone("touch", "--timestamp", "2020-01-02T03:04:05", "h:data/copy/dir/empty")
	if got := rclone("cat", "h:data/moved.bin"); got != string(noise(1, 12<<20)) {
		t.Errorf("%d bytes", len(got))
	}
	if got := rclone("lsf", "-R", "--files-only", "h:data"); got != "copy/dir/empty\ncopy/dir/ü b.txt\nmoved.bin\n" {
		t.Errorf("%q", got)
	}
	rclone("purge", "h:data")
	w.nothingLeft()
}

// TestS3cmd: the same with s3cmd.
func TestS3cmd(t *testing.T) {
	w, dir := openWorld(t), t.TempDir()
	id, secret := w.key("default")
	s3cmd := func(args ...string) string {
		t.Helper()
		return w.program(dir, nil, "s3cmd", append([]string{"--config=/dev/null", "--access_key=" + id, "--secret_key=" + secret, "--host=" + w.addr, "--host-bucket=" + w.addr, "--no-ssl", "--region=us-east-1"}, args...)...)
	}
	files(t, filepath.Join(dir, "in"))
	s3cmd("mb", "s3://data")
	s3cmd("sync", "--multipart-chunk-size-mb=5", "in/", "s3://data/copy/")
	if got := s3cmd("ls", "-r", "s3://data"); strings.Count(got, "s3://data/copy/") != 4 {
		t.Errorf("%q", got)
	}
	s3cmd("get", "s3://data/copy/big.bin", "big.bin")
	if got, err := os.ReadFile(filepath.Join(dir, "big.bin")); err != nil || !bytes.Equal(got, noise(1, 12<<20)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	s3cmd("cp", "s3://data/copy/a.txt", "s3://data/a.txt")
	s3cmd("modify", "--add-header=Cache-Control:no-cache", "s3://data/a.txt")
	if got := s3cmd("info", "s3://data/a.txt"); !strings.Contains(got, "MD5 sum:   0cc175b9c0f1b6a831c399e269772661") {
		t.Errorf("%q", got)
	}
	if o, err := w.store.Object(ours(t), "data", "a.txt", ""); err != nil || o.Headers["cache-control"] != "no-cache" {
		t.Errorf("%+v %v", o, err)
	}
	if a, err := w.store.Get(ours(t), "data/copy/dir/ü b.txt"); err != nil || a.State != holt.ArtifactReady {
		t.Errorf("%+v %v", a, err)
	}
	s3cmd("del", "-r", "--force", "s3://data")
	s3cmd("rb", "s3://data")
	w.nothingLeft()
}
