package qemu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
)

// recording is a migration stream that a test writes.
type recording struct{ bytes.Buffer }

func (r *recording) u32(v uint32)     { binary.Write(r, binary.BigEndian, v) }
func (r *recording) u64(v uint64)     { binary.Write(r, binary.BigEndian, v) }
func (r *recording) name(name string) { r.WriteByte(byte(len(name))); r.WriteString(name) }

// begin writes everything before the first page: a machine with pages of memory
// and two of firmware.
func (r *recording) begin(pages int) {
	r.u32(streamMagic)
	r.u32(streamVersion)
	r.WriteByte(sectionConfig)
	r.u32(4)
	r.WriteString("pc-q")
	r.WriteByte(sectionStart)
	r.u32(2)
	r.name("ram")
	r.u32(0)
	r.u32(4)
	r.u64(uint64(pages+2)*pageSize | ramSizes)
	r.name(memoryBlock)
	r.u64(uint64(pages) * pageSize)
	r.name("pc.bios")
	r.u64(2 * pageSize)
	r.close()
}

// part begins a part with memory; close ends it.
func (r *recording) part(kind byte) { r.WriteByte(kind); r.u32(2) }
func (r *recording) close()         { r.u64(ramEnd); r.WriteByte(sectionFooter); r.u32(2) }

// page writes a page filled with b, of the previous block if block is empty.
func (r *recording) page(block string, n int, b byte) {
	flags := uint64(ramPage)
	if b == 0 {
		flags = ramZero
	}
	if block == "" {
		flags |= ramContinue
	}
	r.u64(uint64(n)*pageSize | flags)
	if block != "" {
		r.name(block)
	}
	if b == 0 {
		r.WriteByte(0)
		return
	}
	r.Write(bytes.Repeat([]byte{b}, pageSize))
}

// whole returns a stream in QEMU's format.
func whole() []byte {
	var r recording
	r.begin(8)
	r.part(sectionPart)
	for n, b := range []byte{1, 2, 0, 4} {
		r.page([]string{memoryBlock, "", "", ""}[n], n, b)
	}
	r.page("pc.bios", 1, 9)
	r.close()
	r.part(sectionPart)
	r.page(memoryBlock, 1, 7)
	r.page("", 0, 0)
	r.close()
	r.part(sectionEnd)
	r.page(memoryBlock, 6, 6)
	r.page("pc.bios", 0, 0)
	r.close()
	r.WriteByte(sectionFull)
	r.WriteString("devices")
	return r.Bytes()
}

// memoryFile records writes and refuses those outside.
type memoryFile struct {
	b       []byte
	touched map[int64]bool
	err     error
}

func newMemoryFile(pages int) *memoryFile {
	return &memoryFile{b: make([]byte, pages*pageSize), touched: map[int64]bool{}}
}

func (m *memoryFile) WriteAt(p []byte, at int64) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	if at < 0 || at+int64(len(p)) > int64(len(m.b)) || at%pageSize != 0 {
		return 0, errors.New("outside of memory")
	}
	for i := int64(0); i < int64(len(p)); i += pageSize {
		m.touched[(at+i)/pageSize] = true
	}
	return copy(m.b[at:], p), nil
}

func TestSplit(t *testing.T) {
	m := newMemoryFile(8)
	var state bytes.Buffer
	s := newSplitter(bytes.NewReader(whole()), 8*pageSize, m)
	n, err := s.split(&state)
	if err != nil || n != int64(state.Len()) {
		t.Fatalf("%d bytes of %d, %v", n, state.Len(), err)
	}
	for page, want := range []byte{0, 7, 0, 4, 0, 0, 6, 0} {
		if got := m.b[page*pageSize : (page+1)*pageSize]; !bytes.Equal(got, bytes.Repeat([]byte{want}, pageSize)) {
			t.Errorf("page %d begins with %d, want %d", page, got[0], want)
		}
		if hole := page == 2 || page == 4 || page == 5 || page == 7; m.touched[int64(page)] == hole {
			t.Errorf("page %d: written %v", page, !hole)
		}
	}
	if s.data != 4 {
		t.Errorf("%d pages of memory hold something", s.data)
	}
	if !bytes.HasSuffix(state.Bytes(), []byte("\x04devices")) {
		t.Error("the devices are missing")
	}
	// The state is a stream that has no guest memory.
	again, empty := bytes.Buffer{}, newMemoryFile(8)
	if _, err := newSplitter(bytes.NewReader(state.Bytes()), 8*pageSize, empty).split(&again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Bytes(), state.Bytes()) || len(empty.touched) > 0 {
		t.Error("the state is another when it is split again")
	}
}

// Truncated and invalid streams are refused. Inside a page of equal bytes it is
// truncated at every 101st byte; HOLT_SOAK=1: at every byte.
func TestSplitFails(t *testing.T) {
	stream, every := whole(), 101
	if os.Getenv("HOLT_SOAK") != "" {
		every = 1
	}
	for n := range len(stream) - len("\x04devices") {
		if n > 0 && n%every != 0 && stream[n] == stream[n-1] {
			continue
		}
		if _, err := newSplitter(bytes.NewReader(stream[:n]), 8*pageSize, newMemoryFile(8)).split(io.Discard); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut after %d of %d bytes: %v", n, len(stream), err)
		}
	}
	full := newMemoryFile(8)
	full.err = unix.ENOSPC
	if _, err := newSplitter(bytes.NewReader(stream), 8*pageSize, full).split(io.Discard); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("no space: %v", err)
	}
	for name, spoil := range map[string]func(r *recording){
		"other memory":     func(r *recording) { r.begin(9) },
		"page outside":     func(r *recording) { r.begin(8); r.part(sectionPart); r.page(memoryBlock, 8, 1) },
		"page far outside": func(r *recording) { r.begin(8); r.part(sectionPart); r.page(memoryBlock, 1<<51-1, 1) },
		"page of nothing":  func(r *recording) { r.begin(8); r.part(sectionPart); r.page("", 0, 1) },
		"page of no block": func(r *recording) { r.begin(8); r.part(sectionPart); r.page("else", 0, 1) },
		"filled": func(r *recording) {
			r.begin(8)
			r.part(sectionPart)
			r.u64(ramZero)
			r.name(memoryBlock)
			r.WriteByte(1)
		},
		"devices too early": func(r *recording) { r.begin(8); r.WriteByte(sectionFull); r.u32(9) },
		"two beginnings":    func(r *recording) { r.begin(8); r.WriteByte(sectionStart); r.u32(2) },
		"other kind":        func(r *recording) { r.begin(8); r.part(sectionPart); r.u64(0x40) },
		"sizes twice":       func(r *recording) { r.begin(8); r.part(sectionPart); r.u64(pageSize | ramSizes) },
		"not one":           func(r *recording) { r.WriteString("not a stream") },
	} {
		var r recording
		spoil(&r)
		r.Write(make([]byte, 2*pageSize)) // so that it is not only cut short
		if _, err := newSplitter(&r, 8*pageSize, newMemoryFile(8)).split(io.Discard); holt.CodeOf(err) != holt.Corrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzSplit: for any stream, nothing is written outside of memory, and the
// resulting state splits into the same state.
func FuzzSplit(f *testing.F) {
	stream := whole()
	f.Add(stream)
	f.Add(stream[:len(stream)/2])
	f.Add(bytes.Replace(stream, []byte("pc.bios"), []byte("mem\x00\x00\x00\x00"), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, state := newMemoryFile(8), bytes.Buffer{}
		s := newSplitter(bytes.NewReader(b), 8*pageSize, m)
		if _, err := s.split(&state); err != nil {
			if err.Error() == "outside of memory" {
				t.Fatal(err)
			}
			return
		}
		if int64(len(m.touched)) != s.data || state.Len() > len(b)+maxBlocks*pageSize {
			t.Errorf("%d pages written, %d counted; %d bytes became %d", len(m.touched), s.data, len(b), state.Len())
		}
		again, empty := bytes.Buffer{}, newMemoryFile(8)
		if _, err := newSplitter(bytes.NewReader(state.Bytes()), 8*pageSize, empty).split(&again); err != nil || !bytes.Equal(again.Bytes(), state.Bytes()) {
			t.Errorf("split again: %v", err)
		}
	})
}
