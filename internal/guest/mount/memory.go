package mount

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"holt"
)

// memory holds a host mount's requests from when the kernel delivers them until they are answered. It is shared
// with the mount's keeper, so that the next daemon finds the requests that a killed one had begun.
//
// Format, in the byte order of the host: a page with memoryMagic, the number of the next request, the mount's
// id, the minor number of its device and the lengths of its INIT request and of the reply; a page for each of
// those two; then the slots. A slot is a page with the request's number (0: not numbered yet) and the kernel's
// unique, and space for the message. A slot is free if its message has the length 0: the length is cleared
// before each read, set by the kernel when it delivers a request, and cleared when the request is answered.
type memory struct {
	file *os.File
	all  []byte

	mu    sync.Mutex // orders the numbers
	free  []*held    // used last in, first out, so that few use memory
	freed *sync.Cond
}

const (
	memoryMagic  = 0x0131_746c_6f48 // "Holt", and the version of the format
	memoryPage   = 4096
	memoryHeader = 3 * memoryPage
	memoryBuffer = maxTransfer + 2*memoryPage // the kernel needs space for a header and the longest write
	memorySlot   = memoryPage + memoryBuffer
	memorySize   = memoryHeader + maxServed*memorySlot

	atNext, atID, atDevice, atInit, atReply = 8, 16, 32, 40, 48 // offsets in the first page
)

// held is a slot.
type held struct {
	id    uint16
	page  []byte
	buf   []byte
	ready bool // its pages are resident, see hold
}

// newMemory creates the memory of a new mount.
func newMemory(id [16]byte) (*memory, error) {
	fd, err := unix.MemfdCreate("holt-mount", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // Linux before 6.3
		fd, err = unix.MemfdCreate("holt-mount", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("make the memory of a mount: %w", err)
	}
	file := os.NewFile(uintptr(fd), "holt-mount")
	if err := file.Truncate(memorySize); err != nil {
		file.Close()
		return nil, fmt.Errorf("make the memory of a mount: %w", err)
	}
	m, err := mapMemory(file)
	if err != nil {
		return nil, err
	}
	copy(m.all[atID:], id[:])
	m.word(atNext).Store(1)
	m.word(0).Store(memoryMagic)
	return m, nil
}

// openMemory opens the memory from a keeper.
func openMemory(file *os.File) (*memory, error) {
	st, err := file.Stat()
	if err == nil && st.Size() != memorySize {
		err = holt.Errorf(holt.Unsupported, "the mount was created by another version of holt")
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	m, err := mapMemory(file)
	if err == nil && m.word(0).Load() != memoryMagic {
		m.close()
		err = holt.Errorf(holt.Unsupported, "the mount was created by another version of holt")
	}
	return m, err
}

// mapMemory owns file, even if it fails.
func mapMemory(file *os.File) (*memory, error) {
	all, err := unix.Mmap(int(file.Fd()), 0, memorySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("map the memory of a mount: %w", err)
	}
	m := &memory{file: file, all: all}
	m.freed = sync.NewCond(&m.mu)
	return m, nil
}

func (m *memory) close() {
	unix.Munmap(m.all)
	m.file.Close()
}

func (m *memory) word(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&m.all[at])) }

func (m *memory) id() (id [16]byte) {
	copy(id[:], m.all[atID:])
	return id
}

// init returns the INIT request and its reply; ok is false until it has been answered.
func (m *memory) init() (req, reply []byte, ok bool) {
	n, k := m.word(atInit).Load(), m.word(atReply).Load()
	if k == 0 || n > memoryPage || k > memoryPage {
		return nil, nil, false
	}
	return m.all[memoryPage:][:n], m.all[2*memoryPage:][:k], true
}

func (m *memory) setInit(req, reply []byte) {
	m.word(atInit).Store(uint64(copy(m.all[memoryPage:2*memoryPage], req)))
	m.word(atReply).Store(uint64(copy(m.all[2*memoryPage:memoryHeader], reply)))
}

// slots returns the slots with a request, and makes the others free.
func (m *memory) slots() (begun []*held) {
	for i := range maxServed {
		at := m.all[memoryHeader+i*memorySlot:][:memorySlot:memorySlot]
		h := &held{id: uint16(i), page: at[:memoryPage], buf: at[memoryPage:]}
		if n := h.length().Load(); n >= inHeaderSize && n <= memoryBuffer {
			begun = append(begun, h)
		} else {
			m.free = append(m.free, h)
		}
	}
	return begun
}

// take waits for a free slot and prepares it for a read.
func (m *memory) take() *held {
	m.mu.Lock()
	for len(m.free) == 0 {
		m.freed.Wait()
	}
	h := m.free[len(m.free)-1]
	m.free = m.free[:len(m.free)-1]
	m.mu.Unlock()
	h.number().Store(0)
	if !h.ready {
		h.ready = h.hold()
	}
	return h
}

// hold makes the slot's pages resident and keeps them so. The kernel must not
// deliver a request into a page that is missing or swapped out: a process that
// is being killed gets no page, and the slot would have the length of the new
// request with the bytes of the previous one. It returns false if there is no
// memory: a read into the slot may then fail.
func (h *held) hold() bool {
	err := unix.Madvise(h.buf, unix.MADV_POPULATE_WRITE)
	if err != nil && err != unix.EINVAL { // EINVAL: Linux before 5.14, where Mlock populates
		return false
	}
	_ = unix.Mlock(h.buf) // without root as far as RLIMIT_MEMLOCK allows
	return true
}

// begin numbers the request in a slot in order of arrival, unless an earlier
// daemon has numbered it, and returns it with the number in place of the
// kernel's unique.
func (m *memory) begin(h *held) message {
	msg := message(h.buf[:h.length().Load()])
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.number().Load() == 0 {
		h.unique().Store(msg.unique())
		h.number().Store(m.word(atNext).Add(1) - 1)
	}
	binary.NativeEndian.PutUint64(msg[8:], h.number().Load())
	msg.setSlot(0) // an earlier daemon may have set it
	return msg
}

// end frees the slot of an answered request.
func (m *memory) end(h *held) {
	h.length().Store(0)
	m.mu.Lock()
	m.free = append(m.free, h)
	m.mu.Unlock()
	m.freed.Signal()
}

// watermark returns the number below which all requests are answered.
func (m *memory) watermark() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	lowest := m.word(atNext).Load()
	for i := range maxServed {
		at := memoryHeader + i*memorySlot
		h := held{page: m.all[at:][:memoryPage], buf: m.all[at+memoryPage:]}
		if n := h.number().Load(); n != 0 && h.length().Load() != 0 {
			lowest = min(lowest, n)
		}
	}
	return lowest
}

func (h *held) number() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&h.page[0])) }
func (h *held) unique() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&h.page[8])) }
func (h *held) length() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&h.buf[0])) }
