package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
)

// grow creates files below a directory, and directories for names that end with a slash.
func grow(t *testing.T, top string, names ...string) {
	t.Helper()
	for _, name := range names {
		p := filepath.Join(top, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(p, 0o755)
		} else if err == nil {
			err = os.WriteFile(p, []byte(name), 0o640)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func paths(files []rootFile) (all []string) {
	for _, f := range files {
		all = append(all, string(f.Path))
	}
	slices.Sort(all)
	return all
}

// TestRootFiles: files of users on a root disk are listed; files of packages,
// files that differ between all computers, and mounts are not.
func TestRootFiles(t *testing.T) {
	top := t.TempDir()
	grow(t, top, "etc/passwd", "etc/hostname", "etc/hosts", "etc/machine-id", "etc/ld.so.cache", "etc/ssh/sshd_config", "etc/ssh/ssh_host_rsa_key.pub",
		"etc/etc/hostname", "usr/bin/ls", "usr/local/bin/own", "var/lib/x", "var/www/index", "var/spool/cron/crontabs/root", "proc/1/stat", "lib/x", "tmp/x",
		"app/main", "opt/lib/x\n\x1b[2J\xff", "root/.cache/x", "srv/__pycache__/x", "home/agent/mounted", "opt/bound")
	if err := os.Symlink("/etc/passwd", filepath.Join(top, "opt/link")); err != nil {
		t.Fatal(err)
	}
	s := newServer(ServerOptions{Cgroup: "holt-test-rootfiles"})
	files, err := s.rootFiles(t.Context(), top, map[string]bool{"/home/agent": true, "/opt/bound": true})
	want := []string{"/", "/app", "/app/main", "/etc", "/etc/etc", "/etc/etc/hostname", "/etc/passwd", "/etc/ssh", "/etc/ssh/sshd_config", "/home", "/opt", "/opt/lib",
		"/opt/lib/x\n\x1b[2J\xff", "/opt/link", "/root", "/srv", "/usr/local", "/usr/local/bin", "/usr/local/bin/own", "/var/spool/cron", "/var/spool/cron/crontabs",
		"/var/spool/cron/crontabs/root", "/var/www", "/var/www/index"}
	if got := paths(files); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
	}
	for _, f := range files {
		info, ok := f.vet()
		switch {
		case !ok || f.Unread:
			t.Errorf("%+v", f)
		case f.Path == "/etc/passwd" && (info.Kind != "file" || info.Mode != 0o640 || info.Size != 10 || time.Since(info.ModTime) > patience || info.ModTime.Nanosecond() == 0):
			t.Errorf("%+v", info)
		case f.Path == "/opt/link" && (info.Kind != "symlink" || info.Target != "/etc/passwd"):
			t.Errorf("%+v", info)
		}
	}
	if got := parseMounts("1 0 8:1 / / rw - ext4 x y\n2 1 0:5 /a\\040b /opt/a\\040\\134b\\012c rw shared:1 - fuse x y\nnone\n"); len(got) != 2 || !got["/"] || !got["/opt/a \\b\nc"] {
		t.Errorf("%v", got)
	}
}

// The list is limited, and marks directories that were not read completely.
func TestRootFilesBounded(t *testing.T) {
	top := t.TempDir()
	grow(t, top, "etc/passwd", "srv/a/b", "opt/many/", "opt/0/", "opt/1/", "opt/2/", "opt/3/", "opt/4/")
	fill := func(dir string, n int) {
		for i := range n {
			if err := os.WriteFile(filepath.Join(top, dir, fmt.Sprint(i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	list := func() (files []rootFile, unread []string) {
		w := &rootWalk{end: time.Now().Add(patience)}
		if err := w.all(top); err != nil || w.looked > mostLooked || len(w.files) > mostLooked+10 {
			t.Errorf("%d looked at, %v", w.looked, err)
		}
		for _, f := range w.files {
			if f.Unread {
				unread = append(unread, string(f.Path))
			}
		}
		return w.files, unread
	}
	fill("opt/many", mostInDir+1)
	if files, unread := list(); !slices.Equal(unread, []string{"/opt/many"}) || len(files) != mostInDir+13 {
		t.Errorf("one directory of many: %d files, unread %q", len(files), unread)
	}
	for i := range 5 {
		fill(fmt.Sprintf("opt/%d", i), mostInDir)
	}
	files, unread := list()
	for _, p := range []string{"/etc/passwd", "/srv/a", "/opt/many", "/opt/4"} {
		if !slices.Contains(paths(files), p) {
			t.Errorf("%s is not listed", p)
		}
	}
	if len(unread) < 2 || slices.Contains(unread, "/etc") || slices.Contains(unread, "/opt") {
		t.Errorf("directories of many: %d files, unread %q", len(files), unread)
	}
	late := &rootWalk{end: time.Now()}
	if err := late.all(top); err != nil || len(late.files) != 1 || !late.files[0].Unread {
		t.Errorf("without time: %v %+v", err, late.files)
	}
	long := t.TempDir()
	deep := long
	for len(deep) < len(long)+maxRootPath {
		deep = filepath.Join(deep, strings.Repeat("x", 200))
	}
	grow(t, deep, "file")
	w := &rootWalk{end: time.Now().Add(patience)}
	if err := w.all(long); err != nil || !w.files[len(w.files)-1].Unread || len(w.files) < 5 {
		t.Errorf("long paths: %v, %d files", err, len(w.files))
	}
}

// A mount that does not respond is not accessed. If it was mounted after the
// mounts were listed, only the list of files fails.
func TestRootFilesHang(t *testing.T) {
	needRoot(t)
	top := t.TempDir()
	grow(t, top, "etc/passwd", "opt/")
	hung := filepath.Join(top, "opt/hung")
	dev, err := mountFuse(hung, false) // nobody reads from it
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	defer unmountFuse(hung)
	s := newServer(ServerOptions{Cgroup: "holt-test-rootfiles"})
	for range 2 {
		files, err := s.rootFiles(t.Context(), top, map[string]bool{"/opt/hung": true})
		if got := paths(files); err != nil || !slices.Equal(got, []string{"/", "/etc", "/etc/passwd", "/opt"}) {
			t.Errorf("%q %v", got, err)
		}
	}
	for range 2 { // the second time the first one is still at it
		_, err := s.rootFiles(t.Context(), top, nil)
		wantCode(t, "list what hangs", err, holt.Unavailable)
	}
	unmountFuse(hung)
	for end := time.Now().Add(patience); ; {
		files, err := s.rootFiles(t.Context(), top, nil)
		if err == nil && slices.Contains(paths(files), "/etc/passwd") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it does not come back: %v", err)
		}
	}
}
