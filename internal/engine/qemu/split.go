package qemu

import (
	"bufio"
	"encoding/binary"
	"io"
	"maps"
	"slices"

	"holt"
)

// The parts of the migration stream of QEMU 7.2 that a splitter needs to know.
// Source: migration/savevm.c and migration/ram.c of QEMU.
const (
	streamMagic   = 0x5145564d // "QEVM"
	streamVersion = 3

	sectionStart  = 0x01
	sectionPart   = 0x02
	sectionEnd    = 0x03
	sectionFull   = 0x04
	sectionConfig = 0x07
	sectionFooter = 0x7e

	ramZero     = 0x02
	ramSizes    = 0x04
	ramPage     = 0x08
	ramEnd      = 0x10
	ramContinue = 0x20
	ramFlags    = pageSize - 1

	pageSize = 4096
)

// Limits for a stream: a compromised QEMU may have written it.
const (
	maxBlocks    = 64        // RAM blocks; a machine has a dozen
	maxSmallRAM  = 64 << 20  // bytes of all blocks except the guest's memory; firmware and tables have 1 MiB
	maxState     = 256 << 20 // bytes of the state file; a machine has 1 MiB
	maxPasses    = 256       // how often a stream may contain all of memory
	maxConfig    = 256       // bytes of a machine type's name
	maxRun       = 1 << 20   // bytes of memory in one write
	streamBuffer = 1 << 20
)

// memoryBlock is the RAM block with the guest's memory.
const memoryBlock = "mem"

// splitter splits a migration stream while QEMU writes it: pages of the guest's
// memory go to files at their addresses, for a machine to map; the rest is a
// stream that QEMU loads into such a machine. QEMU does not check that a stream
// has all pages.
type splitter struct {
	in     *bufio.Reader
	memory map[string]*guestRAM // by the name of its block
	size   int64                // total memory, bytes

	config  []byte
	section uint32 // the number of the section "ram"
	version uint32 // its version
	begun   bool
	ended   bool // its last part has been read
	blocks  []*block
	named   map[string]*block
	current *block // block of pages with the flag "continue"

	pages int64 // pages read, of any block
	data  int64 // pages of memory that are not holes
}

// guestRAM is a RAM block with the guest's memory or a part of it.
type guestRAM struct {
	file    io.WriterAt
	size    int64  // bytes
	run     []byte // adjacent pages that are not written yet
	at      int64  // offset of run
	written []bool // pages that were added to run; the others are holes
}

// block is a RAM block. The pages of a block that is not guest memory belong to the state.
type block struct {
	name  string
	size  int64
	pages map[int64][]byte // nil: zeros
	ram   *guestRAM        // nil: not guest memory
}

// newSplitter returns a splitter for a machine with size bytes of memory.
func newSplitter(in io.Reader, size int64, memory io.WriterAt) *splitter {
	s := &splitter{in: bufio.NewReaderSize(in, streamBuffer), memory: map[string]*guestRAM{}, named: map[string]*block{}}
	s.also(memoryBlock, size, memory)
	return s
}

// also adds another RAM block of size bytes.
func (s *splitter) also(name string, size int64, memory io.WriterAt) {
	s.memory[name] = &guestRAM{file: memory, size: size, written: make([]bool, size/pageSize)}
	s.size += size
}

// split reads the stream to its end, writes the state, and returns its size. It
// returns Corrupt if the stream is invalid or too long, and errors of reader
// and writers unchanged.
func (s *splitter) split(state io.Writer) (int64, error) {
	if err := s.header(); err != nil {
		return 0, err
	}
	for !s.ended {
		if err := s.part(); err != nil {
			return 0, err
		}
	}
	for _, m := range s.memory {
		if err := m.flush(); err != nil {
			return 0, err
		}
	}
	out := &counter{w: state}
	w := bufio.NewWriterSize(out, streamBuffer)
	s.prologue(w)
	left, err := io.Copy(w, io.LimitReader(s.in, maxState+1))
	if err == nil {
		err = w.Flush()
	}
	if err == nil && left > maxState {
		err = malformed("its device state has more than %d bytes", maxState)
	}
	return out.n, err
}

// header reads the bytes before the first section.
func (s *splitter) header() error {
	b, err := s.take(8)
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint32(b) != streamMagic || binary.BigEndian.Uint32(b[4:]) != streamVersion {
		return malformed("it begins with the unknown magic %x", b)
	}
	if b, err = s.take(5); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(b[1:])
	if b[0] != sectionConfig || n == 0 || n > maxConfig {
		return malformed("it does not begin with a machine type")
	}
	if b, err = s.take(int(n)); err != nil {
		return err
	}
	s.config = slices.Clone(b)
	return nil
}

// part reads one part of the section "ram", which precedes all others.
func (s *splitter) part() error {
	b, err := s.take(5)
	if err != nil {
		return err
	}
	kind, id := b[0], binary.BigEndian.Uint32(b[1:])
	switch {
	case kind == sectionStart && !s.begun:
		if err := s.begin(id); err != nil {
			return err
		}
	case (kind == sectionPart || kind == sectionEnd) && s.begun && id == s.section:
		s.ended = kind == sectionEnd
	default:
		return malformed("section %d of type %#x is before the end of memory", id, kind)
	}
	if err := s.ram(); err != nil {
		return err
	}
	if b, err = s.take(5); err != nil {
		return err
	}
	if b[0] != sectionFooter || binary.BigEndian.Uint32(b[1:]) != id {
		return malformed("section %d has no end", id)
	}
	return nil
}

// begin reads the name of the first section.
func (s *splitter) begin(id uint32) error {
	name, err := s.name()
	if err != nil {
		return err
	}
	b, err := s.take(8) // instance and version
	if err != nil {
		return err
	}
	if name != "ram" || binary.BigEndian.Uint32(b) != 0 {
		return malformed("it begins with section %q", clip(name))
	}
	s.begun, s.section, s.version = true, id, binary.BigEndian.Uint32(b[4:])
	return nil
}

// ram reads records up to the end of a part.
func (s *splitter) ram() error {
	for {
		b, err := s.take(8)
		if err != nil {
			return err
		}
		v := binary.BigEndian.Uint64(b)
		flags, addr := v&ramFlags, int64(v&^ramFlags)
		switch flags {
		case ramEnd:
			return nil
		case ramSizes:
			err = s.sizes(addr)
		case ramPage, ramPage | ramContinue:
			err = s.page(addr, flags&ramContinue != 0, false)
		case ramZero, ramZero | ramContinue:
			err = s.page(addr, flags&ramContinue != 0, true)
		default:
			err = malformed("memory with unknown flags %#x", flags)
		}
		if err != nil {
			return err
		}
	}
}

// sizes reads the list of RAM blocks, whose sizes add up to total.
func (s *splitter) sizes(total int64) error {
	if len(s.blocks) > 0 {
		return malformed("it lists its memory twice")
	}
	if total <= 0 || total > s.size+maxSmallRAM {
		return malformed("invalid total of %d bytes of memory", total)
	}
	for total > 0 {
		name, err := s.name()
		if err != nil {
			return err
		}
		b, err := s.take(8)
		if err != nil {
			return err
		}
		size, ram := int64(binary.BigEndian.Uint64(b)), s.memory[name]
		if size <= 0 || size > total || len(s.blocks) == maxBlocks || s.named[name] != nil ||
			ram != nil && size != ram.size {
			return malformed("invalid size of memory block %q: %d bytes", clip(name), size)
		}
		total -= size
		nb := &block{name: name, size: size, pages: map[int64][]byte{}, ram: ram}
		s.blocks, s.named[name] = append(s.blocks, nb), nb
	}
	for name := range s.memory {
		if s.named[name] == nil {
			return malformed("the guest's memory %q is missing", name)
		}
	}
	return nil
}

// page reads one page.
func (s *splitter) page(addr int64, same, zero bool) error {
	if !same {
		name, err := s.name()
		if err != nil {
			return err
		}
		s.current = s.named[name]
	}
	b := s.current
	if b == nil || addr < 0 || addr > b.size-pageSize {
		return malformed("a page at %d lies outside of memory", addr)
	}
	if s.pages++; s.pages > maxPasses*(s.size+maxSmallRAM)/pageSize {
		return malformed("it is too long")
	}
	var content []byte
	var err error
	if zero {
		fill, err := s.take(1)
		if err != nil {
			return err
		}
		if fill[0] != 0 {
			return malformed("a page is filled with %#x", fill[0])
		}
	} else if content, err = s.take(pageSize); err != nil {
		return err
	}
	if b.ram == nil {
		b.pages[addr] = slices.Clone(content)
		return nil
	}
	isNew, err := b.ram.put(addr, content)
	if isNew {
		s.data++
	}
	return err
}

// zeros is a page of zeros.
var zeros [pageSize]byte

// put adds a page of memory to the run and reports whether it was a hole. A
// page that is zero and was never written stays a hole.
func (m *guestRAM) put(addr int64, content []byte) (isNew bool, err error) {
	known := &m.written[addr/pageSize]
	isNew = !*known
	if content == nil {
		if isNew {
			return false, nil
		}
		content = zeros[:]
	}
	*known = true
	if m.at+int64(len(m.run)) != addr || len(m.run) == maxRun {
		if err := m.flush(); err != nil {
			return isNew, err
		}
		m.at = addr
	}
	m.run = append(m.run, content...)
	return isNew, nil
}

// flush writes the run.
func (m *guestRAM) flush() error {
	if len(m.run) == 0 {
		return nil
	}
	_, err := m.file.WriteAt(m.run, m.at)
	m.run = m.run[:0]
	return err
}

// prologue writes the stream up to the devices: the same header, and one part
// of memory with the pages that are not guest memory.
func (s *splitter) prologue(w *bufio.Writer) {
	var b []byte
	be := binary.BigEndian
	named := func(name string) { b = append(append(b, byte(len(name))), name...) }
	b = be.AppendUint32(be.AppendUint32(b, streamMagic), streamVersion)
	b = append(be.AppendUint32(append(b, sectionConfig), uint32(len(s.config))), s.config...)
	b = be.AppendUint32(append(b, sectionStart), s.section)
	named("ram")
	b = be.AppendUint32(be.AppendUint32(b, 0), s.version)
	var total int64
	for _, block := range s.blocks {
		total += block.size
	}
	b = be.AppendUint64(b, uint64(total)|ramSizes)
	for _, block := range s.blocks {
		named(block.name)
		b = be.AppendUint64(b, uint64(block.size))
	}
	b = be.AppendUint64(b, ramEnd)
	b = be.AppendUint32(append(b, sectionFooter), s.section)
	b = be.AppendUint32(append(b, sectionEnd), s.section)
	w.Write(b) // Flush returns the error
	for _, block := range s.blocks {
		for _, addr := range slices.Sorted(maps.Keys(block.pages)) {
			content, kind := block.pages[addr], uint64(ramPage)
			if content == nil {
				content, kind = zeros[:1], ramZero
			}
			b = be.AppendUint64(b[:0], uint64(addr)|kind)
			named(block.name)
			w.Write(append(b, content...))
		}
	}
	b = be.AppendUint64(b[:0], ramEnd)
	w.Write(be.AppendUint32(append(b, sectionFooter), s.section))
}

// name reads a string with a length prefix.
func (s *splitter) name() (string, error) {
	b, err := s.take(1)
	if err != nil {
		return "", err
	}
	b, err = s.take(int(b[0]))
	return string(b), err
}

// take returns the next n bytes, at most a page. They are valid until the next call.
func (s *splitter) take(n int) ([]byte, error) {
	b, err := s.in.Peek(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	s.in.Discard(n) // it is buffered
	return b, nil
}

func malformed(format string, args ...any) error {
	return holt.Errorf(holt.Corrupt, "QEMU's migration stream is invalid: "+format, args...)
}

// counter counts the bytes written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
