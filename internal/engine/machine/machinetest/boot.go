package machinetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/image"
)

// Guest builds the stand-in for the guest agent and returns its path.
func Guest(t testing.TB) string {
	t.Helper()
	return program(t, "guest", "holt/internal/engine/machine/machinetest/testdata/guest")
}

// GuestDir builds the stand-in as the program holt-guest, alone in the directory
// that it returns.
func GuestDir(t testing.TB) string {
	t.Helper()
	return filepath.Dir(program(t, "sandbox/holt-guest", "holt/internal/engine/machine/machinetest/testdata/guest"))
}

// Agent builds the real guest agent and returns its path.
func Agent(t testing.TB) string {
	t.Helper()
	return program(t, "holt-guest", "holt/cmd/holt-guest")
}

// Holt builds the program holt, which runs sandboxes, and returns its path.
func Holt(t testing.TB) string {
	t.Helper()
	return program(t, "holt", "holt/cmd/holt")
}

// programs are the programs that this process has built, by path.
var programs struct {
	sync.Mutex
	built map[string]bool
}

// program builds a package as a guest's program, once per process. It is kept
// in .cache of the checkout, since a killed process removes nothing.
func program(t testing.TB, name, pkg string) string {
	t.Helper()
	programs.Lock()
	defer programs.Unlock()
	dir := filepath.Join(cache(t), "machinetest")
	path := filepath.Join(dir, name)
	if programs.built[path] || os.Getenv(starterEnv) != "" { // then the first process has built it
		return path
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, "lock")) // test processes run concurrently
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err == nil { // go build leaves a file that is up to date
		if err := os.WriteFile(path+".new", b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path+".new", pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	if err := os.Rename(path+".new", path); err != nil { // the old one may be running
		t.Fatal(err)
	}
	if programs.built == nil {
		programs.built = map[string]bool{}
	}
	programs.built[path] = true
	return path
}

// checkout returns the directory of go.mod.
var checkout = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	return filepath.Dir(strings.TrimSpace(string(out))), err
})

// cache returns the checkout's cache directory.
func cache(t testing.TB) string {
	t.Helper()
	dir, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, ".cache")
}

// Images returns the directory of built images: HOLT_IMAGE_DIR, or .cache/images
// of the checkout.
func Images(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(holt.EnvImageDir); dir != "" {
		return dir
	}
	return filepath.Join(cache(t), "images")
}

// Base returns the built image base, whose initramfs has the program at path
// guest as its /init. It builds the image if it is missing, which takes
// minutes.
func Base(t testing.TB, guest string) image.Image {
	t.Helper()
	binary, err := os.ReadFile(guest)
	if err != nil {
		t.Fatal(err)
	}
	store, err := image.Open(Images(t), image.Options{GuestBinary: binary})
	if err != nil {
		t.Fatal(err)
	}
	im, err := store.Build(t.Context(), "base", nil)
	if err != nil {
		e := holt.AsError(err)
		t.Fatalf("image base: %v\nhint: %s\n%v", err, e.Hint, e.Detail)
	}
	return im
}

// Boot returns the kernel of the image base and an initramfs with the stand-in
// as its /init: the image's own, followed by an archive with the modules for
// the power button, which a real machine loads from its root disk.
func Boot(t testing.TB) (kernel, initrd string) {
	t.Helper()
	im := Base(t, Guest(t))
	first, err := os.ReadFile(im.Initrd)
	if err != nil {
		t.Fatal(err)
	}
	var archive cpio
	archive.Write(first)
	archive.pad()
	// A line is /INODE/MODE/UID/GID/NAME/SIZE/; a kernel's release begins with a digit.
	release := regexp.MustCompile(`/([0-9][^/]*)//`).FindSubmatch(debugfs(t, im.Root, "ls -p /usr/lib/modules"))
	if release == nil {
		t.Fatal("the image has no kernel modules")
	}
	for i, name := range []string{"drivers/acpi/button.ko", "drivers/input/evdev.ko"} {
		module := debugfs(t, im.Root, fmt.Sprintf("cat /usr/lib/modules/%s/kernel/%s", release[1], name))
		archive.add(fmt.Sprintf("m/9%d-%s", i, filepath.Base(name)), unix.S_IFREG|0o644, module)
	}
	archive.add("TRAILER!!!", 0, nil)
	initrd = filepath.Join(t.TempDir(), "initrd")
	if err := os.WriteFile(initrd, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return im.Kernel, initrd
}

// debugfs runs a request on an ext4 image.
func debugfs(t testing.TB, disk, request string) []byte {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command("debugfs", "-R", request, disk)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil || len(out) == 0 { // debugfs succeeds even if there is nothing
		t.Fatalf("debugfs %s: %v: %s", request, err, said.String())
	}
	return out
}

// cpio is an archive in the "newc" format, as the kernel unpacks it
// (Documentation/driver-api/early-userspace/buffer-format.rst of Linux).
type cpio struct {
	bytes.Buffer
	inode int
}

func (c *cpio) add(name string, mode uint32, data []byte) {
	c.inode++
	fmt.Fprintf(c, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		c.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	c.WriteString(name + "\x00")
	c.pad()
	c.Write(data)
	c.pad()
}

func (c *cpio) pad() {
	for c.Len()%4 != 0 {
		c.WriteByte(0)
	}
}
