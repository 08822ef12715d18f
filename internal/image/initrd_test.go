package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
)

type cpioEntry struct {
	Mode         uint64
	Major, Minor uint64
	Data         string
}

// readCPIO reads a "new ASCII" archive strictly, independently of the writer.
func readCPIO(data []byte) (map[string]cpioEntry, error) {
	out := map[string]cpioEntry{}
	inos := map[uint64]bool{}
	for off := 0; ; {
		if off%4 != 0 || len(data) < off+110 || string(data[off:off+6]) != "070701" {
			return nil, fmt.Errorf("no header at %d", off)
		}
		var f [13]uint64
		for i := range f {
			v, err := strconv.ParseUint(string(data[off+6+8*i:off+14+8*i]), 16, 32)
			if err != nil {
				return nil, err
			}
			f[i] = v
		}
		nameLen, size := int(f[11]), int(f[6])
		if len(data) < off+110+nameLen || data[off+110+nameLen-1] != 0 {
			return nil, errors.New("bad name")
		}
		name := string(data[off+110 : off+110+nameLen-1])
		off = (off + 110 + nameLen + 3) &^ 3
		if len(data) < off+size {
			return nil, errors.New("cut off")
		}
		if name == cpioTrailer {
			return out, nil
		}
		if inos[f[0]] {
			return nil, fmt.Errorf("inode %d twice", f[0])
		}
		inos[f[0]] = true
		out[name] = cpioEntry{Mode: f[1], Major: f[9], Minor: f[10], Data: string(data[off : off+size])}
		off = (off + size + 3) &^ 3
	}
}

func TestWriteInitrd(t *testing.T) {
	modules := fstest.MapFS{"kernel/a.ko": {Data: []byte("AAA")}, "kernel/b/virtio-rng.ko": {Data: []byte("B")}}
	var b bytes.Buffer
	if err := writeInitrd(&b, []byte("guest"), modules, []string{"kernel/b/virtio-rng.ko", "kernel/a.ko"}); err != nil {
		t.Fatal(err)
	}
	got, err := readCPIO(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]cpioEntry{
		"dev": {Mode: 0o40755}, "proc": {Mode: 0o40755}, "sys": {Mode: 0o40755}, "run": {Mode: 0o40755},
		"m": {Mode: 0o40755}, "new": {Mode: 0o40755},
		"dev/console":        {Mode: 0o20600, Major: 5, Minor: 1},
		"init":               {Mode: 0o100755, Data: "guest"},
		"m/00-virtio-rng.ko": {Mode: 0o100644, Data: "B"},
		"m/01-a.ko":          {Mode: 0o100644, Data: "AAA"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	cmd := exec.Command("cpio", "-it", "--quiet")
	cmd.Stdin = &b
	if out, err := cmd.CombinedOutput(); err != nil || len(strings.Fields(string(out))) != len(want) {
		t.Errorf("cpio: %v: %s", err, out)
	}
}

func TestInitrdIsKept(t *testing.T) {
	s, err := Open(t.TempDir(), Options{GuestBinary: []byte("one")})
	if err != nil {
		t.Fatal(err)
	}
	rec := record{Digest: strings.Repeat("a", 64), Kernel: "k", BootModules: []string{"kernel/a.ko"}}
	module := filepath.Join(s.rootDir(rec.Digest), kernelModules, "kernel/a.ko")
	if err := os.MkdirAll(filepath.Dir(module), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(module, []byte("A"), 0o644); err != nil {
		t.Fatal(err)
	}
	first, err := s.initrd(rec)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-unusedInitrd / 2)
	if err := os.Chtimes(first, old, old); err != nil {
		t.Fatal(err)
	}
	again, err := s.initrd(rec)
	if err != nil || again != first {
		t.Errorf("again: %s, %v", again, err)
	}
	if info, err := os.Stat(first); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("the use is not recorded: %v, %v", info.ModTime(), err)
	}
	old = time.Now().Add(-2 * unusedInitrd)
	if err := os.Chtimes(first, old, old); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(s.dir, Options{GuestBinary: []byte("two")}); err != nil {
		t.Fatal(err)
	}
	second, err := s.initrd(rec)
	if err != nil || second == first {
		t.Fatalf("another guest binary: %s, %v", second, err)
	}
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unused initramfs exists: %v", err)
	}
	s.opt.GuestBinary = nil
	if _, err := s.initrd(rec); err == nil {
		t.Error("no guest binary, no error")
	}
}

func TestParseModinfo(t *testing.T) {
	info := "license=GPL\x00depends=virtio,virtio-ring\x00softdep=pre: crc32c post: x\x00depends=\x00softdep=post: y pre: z"
	if diff := cmp.Diff([]string{"virtio", "virtio_ring", "crc32c", "z"}, parseModinfo([]byte(info))); diff != "" {
		t.Error(diff)
	}
}

// elfWithModinfo returns a minimal ELF file with a .modinfo section.
func elfWithModinfo(info []byte) []byte {
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	const header, section = 64, 64
	le := binary.LittleEndian
	var b bytes.Buffer
	h := make([]byte, header)
	copy(h, "\x7fELF\x02\x01\x01")
	le.PutUint16(h[16:], 1)  // ET_REL
	le.PutUint16(h[18:], 62) // x86-64
	le.PutUint32(h[20:], 1)
	le.PutUint64(h[40:], uint64(header+len(info)+len(names)))
	le.PutUint16(h[52:], header)
	le.PutUint16(h[58:], section)
	le.PutUint16(h[60:], 3)
	le.PutUint16(h[62:], 2)
	b.Write(h)
	b.Write(info)
	b.Write(names)
	put := func(name, kind uint32, off, size int) {
		s := make([]byte, section)
		le.PutUint32(s[0:], name)
		le.PutUint32(s[4:], kind)
		le.PutUint64(s[24:], uint64(off))
		le.PutUint64(s[32:], uint64(size))
		le.PutUint64(s[48:], 1)
		b.Write(s)
	}
	put(0, 0, 0, 0)
	put(1, 1, header, len(info))
	put(10, 3, header+len(info), len(names))
	return b.Bytes()
}

func TestParseModule(t *testing.T) {
	got, err := parseModule(bytes.NewReader(elfWithModinfo([]byte("depends=a,b\x00"))))
	if err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestLoadOrder(t *testing.T) {
	modules := map[string]module{
		"virtio_blk":  {"kernel/virtio_blk.ko", []string{"virtio", "virtio_ring"}},
		"virtio":      {"kernel/virtio.ko", []string{"virtio_ring"}},
		"virtio_ring": {"kernel/virtio_ring.ko", []string{"built_in"}},
		"a":           {"kernel/a.ko", []string{"b"}},
		"b":           {"kernel/b.ko", []string{"a"}},
	}
	got, err := loadOrder(modules, []string{"virtio-blk", "virtio_ring", "a"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"kernel/virtio_ring.ko", "kernel/virtio.ko", "kernel/virtio_blk.ko", "kernel/b.ko", "kernel/a.ko"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := loadOrder(modules, []string{"nope"}); holt.CodeOf(err) != holt.Unsupported {
		t.Errorf("missing: %v", err)
	}
}

func TestPruneKeepsWhatOthersNeed(t *testing.T) {
	got := prune(map[string]module{
		"nfs":     {"kernel/fs/nfs/nfs.ko", []string{"ib_core"}},
		"ib_core": {"kernel/drivers/infiniband/core/ib_core.ko", []string{"ib_dep"}},
		"ib_dep":  {"kernel/drivers/infiniband/ib_dep.ko", nil},
		"xen":     {"kernel/drivers/xen/xen.ko", nil},
		"xenia":   {"kernel/drivers/xenia/xenia.ko", nil},
	})
	if diff := cmp.Diff([]string{"ib_core", "ib_dep", "nfs", "xenia"}, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseModule(f *testing.F) {
	f.Add(elfWithModinfo([]byte("depends=a,b\x00softdep=pre: c\x00")))
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		deps, err := parseModule(bytes.NewReader(data))
		if err != nil {
			return
		}
		if _, err := loadOrder(map[string]module{"m": {"m.ko", deps}}, []string{"m"}); err != nil {
			t.Error(err)
		}
	})
}
