package computer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/image"
	"holt/internal/store/db"
)

// rootsOf is an image store that has one image.
type rootsOf string

func (r rootsOf) Disks(digest string) (snapshots, roots []string) {
	if digest == "" || digest == "digest" {
		roots = []string{string(r) + "/root"}
	}
	if digest == "digest" {
		snapshots = []string{string(r) + "/kept/disk"}
	}
	return snapshots, roots
}

// The ledger says of a disk all that it was laid over, down to its image's root, and nothing of what others were; of one
// that nobody has written down they say nothing.
func TestBooks(t *testing.T) {
	_, d := openKeys(t)
	dir := t.TempDir()
	k := &disks{d: d, dir: filepath.Join(dir, "disks"), archive: &archive.Archive{}}
	ledger := DiskLedger{DB: d, Disks: k.dir, Images: rootsOf(dir)}
	if err := os.Mkdir(k.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	base, left, right, top := holt.NewDiskID(), holt.NewDiskID(), holt.NewDiskID(), holt.NewDiskID()
	for _, one := range [][2]holt.DiskID{{base, ""}, {left, base}, {right, base}, {top, left}} {
		if err := d.Write(t.Context(), func(tx *db.Tx) error { return k.insert(tx, one[0], one[1], &record{image: "digest"}) }); err != nil {
			t.Fatal(err)
		}
	}
	root, kept, link := dir+"/root", dir+"/kept/disk", filepath.Join(dir, "link")
	if err := os.Symlink(k.dir, link); err != nil {
		t.Fatal(err)
	}
	scratch := filepath.Join(dir, "scratch")
	for path, want := range map[string][]string{
		k.path(top):   {k.path(left), k.path(base), kept, root},
		k.path(right): {k.path(base), kept, root},
		k.path(base):  {kept, root},
		filepath.Join(link, string(right)+".qcow2"): {k.path(base), kept, root},
		filepath.Join(scratch, "unused.qcow2"):      {filepath.Join(scratch, image.SnapshotDisk), root},
	} {
		if got, err := ledger.Beneath(t.Context(), path); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q: %v", path, got, want, err)
		}
	}
	if got, err := ledger.Beneath(t.Context(), k.path(holt.NewDiskID())); holt.CodeOf(err) != holt.NotFound {
		t.Error(got, err)
	}
}
