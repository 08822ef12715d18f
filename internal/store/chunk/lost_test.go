package chunk

import (
	"strings"
	"testing"
	"time"

	"holt"
)

// hurtArchive makes an archive of a store that lacks one object of the part
// hurt/part; heal restores it.
func hurtArchive(t *testing.T, prefix string) (a *Archive, s *Memory, heal func()) {
	t.Helper()
	s = &Memory{}
	a = openAt(t, t.TempDir(), Options{Store: s, packBytes: 100_000})
	_, err := put(t, a, "hurt", "part", noise(1, 90_000), noise(2, 90_000))
	ok(t, err)
	name := objects(t, s, prefix)[0]
	_, err = put(t, a, "well", "part", noise(3, 50_000))
	ok(t, err)
	size, err := s.Stat(lazy, name)
	ok(t, err)
	b := make([]byte, size)
	ok(t, s.Get(lazy, name, b, 0))
	ok(t, s.Delete(lazy, name))
	ok(t, a.Close())
	return openAt(t, t.TempDir(), Options{Store: s}), s, func() { ok(t, s.Put(lazy, name, b)) }
}

func problems(t *testing.T, a *Archive) string {
	t.Helper()
	report, err := a.Check(lazy, "hurt", true)
	ok(t, err)
	return strings.Join(report.Problems, "\n")
}

// A manifest that is unreadable during a rebuild costs no pack: once it is
// restored, its part is too.
func TestRestoredManifestIsFound(t *testing.T) {
	a, _, heal := hurtArchive(t, manifestPrefix)
	if said := problems(t, a); !strings.Contains(said, "and part part of hurt needs it: restore it") {
		t.Fatalf("check says %q", said)
	}
	ok(t, a.Narrow(lazy, "hurt", "part", []Range{{0, 10}})) // keeps the manifest
	ok(t, a.Fork(lazy, "hurt", "fork"))
	for range 2 {
		_, err := a.Collect(lazy, time.Now().Add(time.Hour))
		wantCode(t, err, holt.Corrupt)
	}
	heal()
	_, err := a.Collect(lazy, time.Now().Add(time.Hour))
	ok(t, err)
	for _, space := range []string{"hurt", "fork"} {
		holds(t, a, space, "part", noise(1, 90_000), noise(2, 90_000))
	}
	clean(t, a)
}

// Garbage is collected again after the space with the lost manifest is dropped.
func TestDropSpaceWithLostManifest(t *testing.T) {
	a, s, _ := hurtArchive(t, manifestPrefix)
	before := len(objects(t, s, packPrefix))
	ok(t, a.Drop(lazy, "hurt"))
	_, err := a.Collect(lazy, time.Now().Add(time.Hour))
	ok(t, err)
	if after := len(objects(t, s, packPrefix)); after >= before {
		t.Fatalf("%d packs of %d are left", after, before)
	}
	holds(t, a, "well", "part", noise(3, 50_000))
	clean(t, a)
}

// A restored pack completes the parts whose chunks were missing.
func TestRestoredPackIsFound(t *testing.T) {
	a, _, heal := hurtArchive(t, packPrefix)
	if said := problems(t, a); !strings.Contains(said, "of part part of hurt are in no pack") {
		t.Fatalf("check says %q", said)
	}
	_, err := a.Ranges(lazy, "hurt", "part")
	wantCode(t, err, holt.Corrupt)
	_, err = a.Collect(lazy, time.Now())
	ok(t, err)
	heal()
	_, err = a.Collect(lazy, time.Now().Add(time.Hour))
	ok(t, err)
	holds(t, a, "hurt", "part", noise(1, 90_000), noise(2, 90_000))
	clean(t, a)
}
