package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"holt"
)

// sharedDir keeps built images between tests and runs, since a build takes a
// minute.
func sharedDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(holt.EnvImageDir); dir != "" {
		return dir
	}
	dir, err := filepath.Abs("../../.cache/images")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test builds as root does: run it as root")
	}
}

// stages collects the stages of a build.
type stages struct {
	mu   sync.Mutex
	list []string
	last float64
	fell bool
}

func (s *stages) add(p Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 || s.list[len(s.list)-1] != p.Stage {
		s.list = append(s.list, p.Stage)
	}
	s.fell = s.fell || p.Fraction < s.last
	s.last = p.Fraction
}

// buildBase returns the image base, built at most once for all tests.
func buildBase(t *testing.T, guest string) (*Store, Image) {
	t.Helper()
	needsRoot(t)
	s, err := Open(sharedDir(t), Options{GuestBinary: []byte(guest)})
	if err != nil {
		t.Fatal(err)
	}
	var st stages
	im, err := s.Build(t.Context(), "base", st.add)
	if err != nil {
		t.Fatalf("%v\n%+v", err, holt.AsError(err).Detail)
	}
	if st.fell || st.last != 1 {
		t.Errorf("progress decreased, or ended at %v", st.last)
	}
	return s, im
}

func TestBuiltImage(t *testing.T) {
	s, im := buildBase(t, "guest")
	if im.Template != "base" || !im.Built || im.MinDiskMB != im.RootMB || im.RootMB > 2048 || im.BuiltAt == nil {
		t.Errorf("image: %+v", im)
	}
	info, err := os.Stat(im.Root)
	if err != nil || info.Size() != int64(im.RootMB)<<20 || info.Mode().Perm()&0o222 != 0 {
		t.Errorf("root disk: %v, %v", info, err)
	}
	// The host's file system may still be allocating the file.
	recorded := im.Bytes - s.snapshotBytes(im.Digest)
	if now := allocated(im.Root); max(recorded-now, now-recorded) > 4<<20 || recorded > 700<<20 {
		t.Errorf("takes %d bytes, recorded %d", now, recorded)
	}
	if out, err := exec.Command("e2fsck", "-fn", im.Root).CombinedOutput(); err != nil {
		t.Errorf("e2fsck: %v: %s", err, out)
	}
	kernel, err := readBounded(im.Kernel, 1<<20)
	if err != nil || len(kernel) < 0x210 || string(kernel[0x202:0x206]) != "HdrS" {
		t.Errorf("the kernel is not a bzImage: %v", err)
	}
	checkInitrd(t, im)
	checkTree(t, im.Root)

	for _, ref := range []string{"base", im.Digest} {
		got, err := s.Get(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(im, got); diff != "" {
			t.Errorf("Get(%s): %s", ref, diff)
		}
	}
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list, func(i holt.Image) bool { return i.Digest == im.Digest && i.Built }) {
		t.Errorf("not listed: %+v", list)
	}
}

func checkInitrd(t *testing.T, im Image) {
	t.Helper()
	data, err := os.ReadFile(im.Initrd)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := readCPIO(data)
	if err != nil {
		t.Fatal(err)
	}
	if entries["init"].Data != "guest" {
		t.Error("/init is not the guest binary")
	}
	for _, name := range bootModules() {
		found := false
		for entry := range entries {
			found = found || strings.HasPrefix(entry, "m/") && moduleName(entry[len("m/00-"):]) == name
		}
		if !found {
			t.Errorf("the initramfs lacks %s", name)
		}
	}
}

// checkTree checks the content of the root disk without a mount.
func checkTree(t *testing.T, root string) {
	t.Helper()
	debugfs := func(request string) string {
		out, err := exec.Command("debugfs", "-R", request, root).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for file, want := range map[string]string{
		"/etc/passwd":                            "agent:x:1000:1000::/home/agent:/bin/bash",
		"/etc/sudoers.d/agent":                   "agent ALL=(ALL:ALL) NOPASSWD: ALL",
		"/etc/fstab":                             "x-systemd.growfs",
		"/etc/environment":                       "LANG=C.UTF-8",
		"/etc/apt/sources.list.d/debian.sources": "Suites: bookworm",
	} {
		if got := debugfs("cat " + file); !strings.Contains(got, want) {
			t.Errorf("%s lacks %q: %q", file, want, got)
		}
	}
	for _, gone := range []string{"/" + setupPath, "/etc/apt/apt.conf.d/99mmdebstrap", "/usr/share/man/man1/ls.1.gz"} {
		if got := debugfs("stat " + gone); strings.Contains(got, "Inode:") {
			t.Errorf("%s exists", gone)
		}
	}
	if got := debugfs("ls -p /home/agent"); strings.Count(got, "\n/") > 2 || !strings.Contains(debugfs("stat /home/agent"), "User:     0") {
		t.Errorf("/home/agent is not an empty directory of root's: %q", got)
	}
}

// TestGuestBinaryRebuildsNoRoot: a new guest binary makes a new initramfs and keeps
// the root disk.
func TestGuestBinaryRebuildsNoRoot(t *testing.T) {
	_, first := buildBase(t, "guest")
	s, err := Open(sharedDir(t), Options{GuestBinary: []byte("another guest")})
	if err != nil {
		t.Fatal(err)
	}
	var st stages
	second, err := s.Build(t.Context(), "base", st.add)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(st.list, []string{"done"}) {
		t.Errorf("stages: %q", st.list)
	}
	if second.Root != first.Root || second.Digest != first.Digest || second.Initrd == first.Initrd {
		t.Errorf("first %+v, second %+v", first, second)
	}
}

// TestBuildsWait: a build waits while another of the same template is in progress, and
// reports that.
func TestBuildsWait(t *testing.T) {
	s, im := buildBase(t, "guest")
	release, err := s.lock(t.Context(), "base", func() {})
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{})
	built := make(chan error)
	var once sync.Once
	go func() {
		got, err := s.Build(t.Context(), "base", func(p Progress) {
			if p.Stage == "waiting" {
				once.Do(func() { close(waiting) })
			}
		})
		if err == nil && got.Root != im.Root {
			err = errors.New("another root disk")
		}
		built <- err
	}()
	<-waiting
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Build(ctx, "base", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait: %v", err)
	}
	release()
	if err := <-built; err != nil {
		t.Error(err)
	}
}

// leavesNothing checks that a build leaves no temporary files, processes or mounts.
func leavesNothing(t *testing.T, dir string) {
	t.Helper()
	for _, sub := range []string{"tmp", "roots", "templates"} {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			t.Errorf("left behind: %s/%s", sub, e.Name())
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), dir+"/tmp/") {
		t.Errorf("mounts left: %v", err)
	}
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if cwd, err := os.Readlink(l); err == nil && strings.HasPrefix(cwd, dir+"/tmp/") {
			t.Errorf("process left in %s", cwd)
		}
	}
}

// TestFullDisk builds on a disk with too little room: too little to start, and
// too little to finish.
func TestFullDisk(t *testing.T) {
	t.Parallel() // it waits for the network and the disk
	needsRoot(t)
	for _, mb := range []int{24, 160} {
		t.Run(strconv.Itoa(mb), func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mb)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			})
			s, err := Open(dir, Options{GuestBinary: []byte("guest")})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Build(t.Context(), "base", nil)
			if holt.CodeOf(err) != holt.OutOfSpace || holt.AsError(err).Hint == "" {
				t.Errorf("got %v: %v", holt.CodeOf(err), err)
			}
			leavesNothing(t, dir)
		})
	}
}

// barest returns a recipe with only the packages of every image.
func barest(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "barest.json")
	if err := os.WriteFile(name, []byte(`{"name": "barest", "users": [{"name": "agent", "uid": 1000}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// withKernel returns the directory of a store that has a kernel: fetching one
// takes most of the time of a small build.
func withKernel(t *testing.T) string {
	t.Helper()
	buildBase(t, "guest")
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "kernels"), os.DirFS(filepath.Join(sharedDir(t), "kernels"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCancelledBuild(t *testing.T) {
	t.Parallel() // it waits for the network and the disk
	dir := withKernel(t)
	s, err := Open(dir, Options{GuestBinary: []byte("guest")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = s.Build(ctx, barest(t), func(p Progress) {
		if strings.HasPrefix(p.Detail, "unpacking ") && p.Stage == "packages" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	leavesNothing(t, dir)
}

func TestUnknownPackage(t *testing.T) {
	t.Parallel() // it waits for the network and the disk
	needsRoot(t)
	dir := t.TempDir()
	recipe := filepath.Join(dir, "r.json")
	if err := os.WriteFile(recipe, []byte(`{"name": "mine", "extends": "base", "packages": ["no-such-package-here"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Open(filepath.Join(dir, "images"), Options{GuestBinary: []byte("guest")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Build(t.Context(), recipe, nil)
	if holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), "no-such-package-here") {
		t.Errorf("got %v: %v", holt.CodeOf(err), err)
	}
	leavesNothing(t, filepath.Join(dir, "images"))
}

// envKilled and envRecipe make the test binary a builder that TestKilledBuild kills.
const (
	envKilled = "HOLT_TEST_BUILD_IN"
	envRecipe = "HOLT_TEST_BUILD_OF"
)

func TestKilledBuild(t *testing.T) {
	t.Parallel() // it waits for the network and the disk
	if dir := os.Getenv(envKilled); dir != "" {
		s, err := Open(dir, Options{GuestBinary: []byte("guest")})
		if err == nil {
			_, err = s.Build(t.Context(), os.Getenv(envRecipe), func(p Progress) { fmt.Println("progress:", p.Stage, p.Detail) })
		}
		t.Fatalf("the build ended by itself: %v", err)
	}
	dir := withKernel(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledBuild$")
	cmd.Env = append(os.Environ(), envKilled+"="+dir, envRecipe+"="+barest(t))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reached := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "progress: packages setting up ") {
			reached = true
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if !reached {
		t.Fatalf("the build ended before it was killed: %s", stderr.String())
	}
	awaitEnd(t, filepath.Join(dir, "tmp"))
	if _, err := Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	leavesNothing(t, dir)
}

// awaitEnd waits for the end of all processes of a killed build, which hold its lock.
func awaitEnd(t *testing.T, tmp string) {
	t.Helper()
	locks, err := filepath.Glob(filepath.Join(tmp, "*.lock"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("builds in progress: %q, %v", locks, err)
	}
	f, err := os.Open(locks[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}
