package chunk_test

import (
	"os"
	"path/filepath"
	"testing"

	"holt/internal/store/chunk"
	"holt/internal/store/chunk/chunktest"
)

func TestMemory(t *testing.T) {
	chunktest.TestStore(t, func(t *testing.T, again bool) chunk.Store {
		if again {
			return nil
		}
		return &chunk.Memory{}
	})
}

func TestDir(t *testing.T) {
	dir := ""
	chunktest.TestStore(t, func(t *testing.T, again bool) chunk.Store {
		if !again {
			dir = filepath.Join(t.TempDir(), "store")
		}
		s, err := chunk.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// A Fault without failures passes the conformance suite.
func TestFault(t *testing.T) {
	chunktest.TestStore(t, func(t *testing.T, again bool) chunk.Store {
		if again {
			return nil
		}
		return &chunk.Fault{Under: &chunk.Memory{}}
	})
}

func TestCacheConformance(t *testing.T) {
	for _, blockSize := range []int{50_000, 1 << 20} {
		var far chunk.Store
		dir := ""
		chunktest.TestStore(t, func(t *testing.T, again bool) chunk.Store {
			if !again {
				far, dir = &chunk.Memory{}, t.TempDir()
			}
			c, err := chunk.OpenCache(dir, chunk.CacheOptions{Far: far, Bytes: 4 << 20, BlockSize: blockSize})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		})
	}
}

// Temporary files of a crash are not listed, and are removed when the store is opened.
func TestDirRemovesTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ".tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, ".tmp", "123")
	if err := os.WriteFile(half, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := chunk.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(half, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.List(t.Context(), "", func(o chunk.Object) error { t.Error("seen:", o); return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err = chunk.OpenDir(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(half); err == nil {
		t.Fatal("not removed")
	}
}
