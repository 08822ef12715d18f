package parcel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
)

// Event is what [Reader.Next] found.
type Event uint8

// The events.
const (
	Entered Event = iota + 1 // Reader.Entry is new
	Bytes                    // Reader.Data is new, bytes of the last entry from Reader.Off on
	Up                       // a directory is complete
	End                      // the parcel is complete
)

// Reader reads a parcel and validates it: directories nest, data belongs to a
// file, names are valid.
type Reader struct {
	Total Totals // approximate totals of the parcel
	Entry Entry  // the current one
	Off   int64
	Data  []byte // valid until the next call of Next
	Got   Totals // so far

	r     *bufio.Reader
	buf   []byte
	depth int
	begun bool
	file  bool // the current entry is a file, and data may follow
	next  int64
}

// NewReader reads the head of a parcel.
func NewReader(r io.Reader) (*Reader, error) {
	p := &Reader{r: bufio.NewReaderSize(r, 256<<10)}
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(p.r, head); err != nil {
		return nil, cutOff(err)
	}
	if string(head) != magic {
		return nil, formatError("the header is missing")
	}
	kind, payload, err := p.frame()
	if err != nil {
		return nil, err
	}
	if kind != frameTotals {
		return nil, formatError("the totals are missing")
	}
	p.Total, err = decodeTotals(payload)
	return p, err
}

// cutOff returns ErrFormat for an end of file and other errors unchanged.
func cutOff(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return formatError("the end is missing")
	}
	return err
}

func decodeTotals(b []byte) (Totals, error) {
	if len(b) != 16 {
		return Totals{}, formatError("totals of %d bytes", len(b))
	}
	t := Totals{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}
	if t.Entries < 0 || t.Bytes < 0 {
		return Totals{}, formatError("totals below zero")
	}
	return t, nil
}

// frame returns the next frame. The payload is valid until the next call.
func (p *Reader) frame() (kind byte, payload []byte, err error) {
	var h [5]byte
	if _, err := io.ReadFull(p.r, h[:]); err != nil {
		return 0, nil, cutOff(err)
	}
	n := binary.LittleEndian.Uint32(h[1:])
	if n > mostFrame {
		return 0, nil, formatError("a frame of %d bytes", n)
	}
	p.buf = slices.Grow(p.buf[:0], int(n))[:n]
	if _, err := io.ReadFull(p.r, p.buf); err != nil {
		return 0, nil, cutOff(err)
	}
	return h[0], p.buf, nil
}

// Next returns the next event. It must not be called after End.
func (p *Reader) Next() (Event, error) {
	kind, b, err := p.frame()
	if err != nil {
		return 0, err
	}
	switch kind {
	case frameEntry:
		return Entered, p.entry(b)
	case frameData:
		return Bytes, p.data(b)
	case frameUp:
		p.file = false
		if p.depth--; p.depth < 0 || len(b) != 0 {
			return 0, formatError("a directory ends that was not begun")
		}
		return Up, nil
	case frameEnd:
		sent, err := decodeTotals(b)
		if err == nil && (sent != p.Got || p.depth != 0 || !p.begun) {
			err = formatError("%d of %d entries were received", p.Got.Entries, sent.Entries)
		}
		return End, err
	}
	return 0, formatError("a frame of kind %d", kind)
}

func (p *Reader) data(b []byte) error {
	if !p.file || len(b) < 9 || len(b) > 8+MostData {
		return formatError("%d bytes of data without a file", len(b))
	}
	p.Off, p.Data = int64(binary.LittleEndian.Uint64(b)), b[8:]
	if p.Off < p.next || p.Off > p.Entry.Size-int64(len(p.Data)) {
		return formatError("data at offset %d of a file of %d bytes", p.Off, p.Entry.Size)
	}
	p.next = p.Off + int64(len(p.Data))
	p.Got.Bytes += int64(len(p.Data))
	return nil
}

func (p *Reader) entry(b []byte) error {
	e, err := decodeEntry(b)
	if err != nil {
		return err
	}
	switch top := !p.begun; {
	case top && (e.Kind != Dir || e.Name != ""):
		return formatError("the first entry is not a directory")
	case !top && (p.depth == 0 || !validName(e.Name)):
		return formatError("an entry named %q", e.Name)
	case e.Kind == Dir && p.depth == mostDepth:
		return formatError("directories nested more than %d deep", mostDepth)
	}
	if e.Kind == Dir {
		p.depth++
	}
	p.Entry, p.begun, p.file, p.next = e, true, e.Kind == File, 0
	p.Got.Entries++
	return nil
}

const entryHead = 1 + 4*4 + 4*8

func decodeEntry(b []byte) (e Entry, err error) {
	le := binary.LittleEndian
	if len(b) < entryHead {
		return e, formatError("an entry of %d bytes", len(b))
	}
	e = Entry{Kind: Kind(b[0]), Mode: le.Uint32(b[1:]), UID: le.Uint32(b[5:]), GID: le.Uint32(b[9:]), Rdev: le.Uint32(b[13:]),
		Mtime: int64(le.Uint64(b[17:])), Atime: int64(le.Uint64(b[25:])), Size: int64(le.Uint64(b[33:])), ID: le.Uint64(b[41:])}
	b = b[entryHead:]
	var name, target []byte
	if name, b, err = field16(b); err != nil {
		return e, err
	}
	if target, b, err = field16(b); err != nil {
		return e, err
	}
	e.Name, e.Target = string(name), string(target)
	if err := e.check(); err != nil {
		return e, err
	}
	e.Xattrs, err = decodeXattrs(b)
	return e, err
}

// check refuses entries that no file system could have.
func (e *Entry) check() error {
	switch {
	case e.Kind < Dir || e.Kind > Link:
		return formatError("an entry of kind %d", e.Kind)
	case e.Mode&^07777 != 0:
		return formatError("mode %#o", e.Mode)
	case e.Size < 0 || e.Size > 1<<60 || e.Kind != File && e.Size != 0:
		return formatError("a size of %d", e.Size)
	case (e.Kind == Symlink) != (e.Target != "") || len(e.Target) > mostTarget || strings.ContainsRune(e.Target, 0):
		return formatError("a link's target of %d bytes", len(e.Target))
	case e.Kind == Link && e.ID == 0 || e.ID != 0 && e.Kind != Link && e.Kind != File:
		return formatError("a link without a target")
	}
	return nil
}

func decodeXattrs(b []byte) ([]Xattr, error) {
	if len(b) < 4 {
		return nil, formatError("a truncated entry")
	}
	n := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if len(b) > mostXattrs+6*int(min(n, 1<<18)) {
		return nil, formatError("attributes of %d bytes", len(b))
	}
	var all []Xattr
	for range n {
		name, rest, err := field16(b)
		if err != nil {
			return nil, err
		}
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return nil, formatError("a truncated attribute")
		}
		size := binary.LittleEndian.Uint32(rest)
		x := Xattr{string(name), slices.Clone(rest[4 : 4+size])}
		if b = rest[4+size:]; !validXattr(x) {
			return nil, formatError("an attribute named %q", x.Name)
		}
		all = append(all, x)
	}
	if len(b) != 0 {
		return nil, formatError("%d bytes after an entry", len(b))
	}
	return all, nil
}

func validXattr(x Xattr) bool {
	return Carries(x.Name) && len(x.Name) <= mostName && !strings.ContainsRune(x.Name, 0) && len(x.Value) <= 64<<10
}

// field16 cuts a field with a 16-bit length off b.
func field16(b []byte) (field, rest []byte, err error) {
	if len(b) < 2 || int(binary.LittleEndian.Uint16(b)) > len(b)-2 {
		return nil, nil, formatError("a truncated entry")
	}
	n := int(binary.LittleEndian.Uint16(b))
	return b[2 : 2+n], b[2+n:], nil
}
