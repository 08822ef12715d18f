package chunk

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"

	"holt"
)

// FuzzPack decodes packs of arbitrary bytes.
func FuzzPack(f *testing.F) {
	c, err := newCodec()
	if err != nil {
		f.Fatal(err)
	}
	var b builder
	for i, content := range [][]byte{noise(1, 100), text(2, 5000), text(3, 70_000)} {
		if i == 0 {
			b.begin()
		}
		b.b = c.pack(b.b, content)
		b.close(Sum(content), len(content))
	}
	id := b.id
	whole := bytes.Clone(b.finish())
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add([]byte(packMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &Memory{m: map[string][]byte{id.object(): b}}
		entries, err := readTable(lazy, s, id, int64(len(b)))
		if err != nil {
			wantCode(t, err, holt.Corrupt)
			return
		}
		for _, e := range entries {
			stored, err := readStored(lazy, s, id, e)
			if err != nil {
				wantCode(t, err, holt.Corrupt)
				continue
			}
			if p, err := c.unpack(stored, e.length, e.id); err == nil && (len(p) != e.length || Sum(p) != e.id) {
				t.Fatal("wrong bytes")
			}
		}
	})
}

// FuzzUnpack: any stored bytes decode to at most the given length, and only to
// content that matches the id.
func FuzzUnpack(f *testing.F) {
	c, err := newCodec()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(c.pack(nil, text(1, 10_000)), 10_000)
	f.Add([]byte{}, 1)
	f.Fuzz(func(t *testing.T, stored []byte, n int) {
		if n <= 0 || n > MaxChunk {
			return
		}
		p, err := c.unpack(stored, n, Sum(stored))
		if err == nil && !bytes.Equal(p, stored) {
			t.Fatal("wrong bytes")
		}
		if len(stored) != n && cap(p) > 2*MaxChunk { // else they are the stored bytes themselves
			t.Fatal(cap(p), "bytes made")
		}
	})
}

func TestBomb(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	ok(t, err)
	bomb := enc.EncodeAll(make([]byte, 64<<20), nil)
	c, err := newCodec()
	ok(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 8 {
		_, err := c.unpack(bomb, 1000, ID{})
		wantCode(t, err, holt.Corrupt)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Fatal(used, "bytes for bombs of", len(bomb))
	}
}

func FuzzManifest(f *testing.F) {
	m := newManifest()
	m.ids = []ID{{1}, {2}}
	m.pieces = []piece{{0, 10, 0, 5}, {10, 3, 1, 0}, {1 << 40, MaxChunk, 1, 0}}
	b, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		sealFuzz(b)
		m, err := decodeManifest(b)
		if err != nil {
			return
		}
		end := int64(0)
		for _, p := range m.pieces {
			if p.off < end || p.n <= 0 || p.chunk < 0 || p.chunk >= len(m.ids) || p.delta < 0 || p.delta+p.n > MaxChunk {
				t.Fatal(p)
			}
			end = p.off + int64(p.n)
		}
		if err := m.settle(); err != nil || end > maxOffset {
			t.Fatal(end, err)
		}
	})
}

func FuzzSpace(f *testing.F) {
	s := space{name: "wsp_1", seq: 7, parts: map[string]ManifestID{"a": {1}, "b": {2}}}
	f.Add(s.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		sealFuzz(b)
		if s, err := decodeSpace(b); err == nil && len(s.parts)*17 > len(b) {
			t.Fatal(len(s.parts), len(b))
		}
	})
}

// sealFuzz gives b a valid checksum, so that the fuzzer reaches the decoder behind it.
func sealFuzz(b []byte) {
	if n := len(b) - 4; n >= 0 {
		sum := checksum(b[:n])
		b[n], b[n+1], b[n+2], b[n+3] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
	}
}
