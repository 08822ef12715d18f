package machinetest

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// kernelMeta is Debian's package that depends on its newest kernel for virtual machines.
const kernelMeta = "linux-image-cloud-amd64"

// modules are what the test guest needs; those they depend on come with them.
var modules = []string{"virtio_pci", "virtio_console", "virtio_blk", "virtio_net", "virtio_rng", "evdev", "button"}

// Guest builds the stand-in for the guest agent and returns its path. It is
// kept in .cache of the checkout, since a process that is killed removes nothing.
func Guest(t testing.TB) string {
	t.Helper()
	dir, unlock := cache(t)
	defer unlock()
	path := filepath.Join(dir, "guest")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path+".new", "holt/machine/machinetest/testdata/guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build guest: %v\n%s", err, out)
	}
	if err := os.Rename(path+".new", path); err != nil { // the old one may be running
		t.Fatal(err)
	}
	return path
}

// cache returns the directory where things are kept between tests, locked
// because test processes run side by side.
func cache(t testing.TB) (dir string, unlock func()) {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), ".cache", "machinetest")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return dir, func() { lock.Close() }
}

// Boot returns a kernel, and an initramfs with the stand-in as its /init. The
// kernel is fetched with apt-get once and kept in .cache of the checkout; a
// host where that cannot be done skips the test.
func Boot(t testing.TB) (kernel, initrd string) {
	t.Helper()
	tree := kernelTree(t)
	kernels, err := filepath.Glob(filepath.Join(tree, "boot/vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		t.Fatalf("kernels in %s: %v, %v", tree, kernels, err)
	}
	init, err := os.ReadFile(Guest(t))
	if err != nil {
		t.Fatal(err)
	}
	var archive cpio
	archive.add("dev", unix.S_IFDIR|0o755, nil)
	archive.add("proc", unix.S_IFDIR|0o755, nil)
	archive.add("sys", unix.S_IFDIR|0o755, nil)
	archive.add("m", unix.S_IFDIR|0o755, nil)
	archive.add("init", unix.S_IFREG|0o755, init)
	for i, path := range loadOrder(t, filepath.Join(tree, "lib/modules")) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		archive.add(fmt.Sprintf("m/%02d-%s", i, filepath.Base(path)), unix.S_IFREG|0o644, b)
	}
	archive.add("TRAILER!!!", 0, nil)
	initrd = filepath.Join(t.TempDir(), "initrd")
	if err := os.WriteFile(initrd, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return kernels[0], initrd
}

// kernelTree returns the unpacked kernel package.
func kernelTree(t testing.TB) string {
	t.Helper()
	dir, unlock := cache(t)
	defer unlock()
	tree := filepath.Join(dir, "kernel")
	if _, err := os.Stat(tree); errors.Is(err, fs.ErrNotExist) {
		if err := fetchKernel(dir, tree); err != nil {
			t.Skipf("no kernel to boot: %v", err)
		}
	}
	return tree
}

var dependsRE = regexp.MustCompile(`(?m)^\s*Depends: (linux-image-\S+)$`)

func fetchKernel(dir, tree string) error {
	out, err := exec.Command("apt-cache", "depends", kernelMeta).Output()
	if err != nil {
		return err
	}
	m := dependsRE.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("apt knows no kernel behind %s", kernelMeta)
	}
	tmp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	script := `apt-get download -qq "$1" && dpkg-deb -x ./*.deb tree`
	cmd := exec.Command("sh", "-c", script, "sh", string(m[1]))
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return os.Rename(filepath.Join(tmp, "tree"), tree)
}

// loadOrder returns the paths of the modules, each after those it needs. What a
// module needs is in its own .modinfo section.
func loadOrder(t testing.TB, dir string) []string {
	t.Helper()
	paths := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			paths[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		name = strings.ReplaceAll(name, "-", "_")
		if name == "" || seen[name] {
			return
		}
		seen[name] = true
		file, err := elf.Open(paths[name])
		if err != nil {
			t.Fatalf("module %s: %v", name, err)
		}
		defer file.Close()
		section := file.Section(".modinfo")
		if section == nil {
			t.Fatalf("module %s has no .modinfo", name)
		}
		info, err := section.Data()
		if err != nil {
			t.Fatalf("module %s: %v", name, err)
		}
		for field := range bytes.SplitSeq(info, []byte{0}) {
			if needs, ok := bytes.CutPrefix(field, []byte("depends=")); ok {
				for need := range strings.SplitSeq(string(needs), ",") {
					visit(need)
				}
			}
		}
		order = append(order, paths[name])
	}
	for _, m := range modules {
		visit(m)
	}
	return order
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
