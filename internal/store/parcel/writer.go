package parcel

import (
	"bufio"
	"encoding/binary"
	"io"
	"strings"
)

// Writer writes a parcel.
type Writer struct {
	w    *bufio.Writer
	head []byte
	Sent Totals // so far
}

// NewWriter begins a parcel; about is its approximate size.
func NewWriter(w io.Writer, about Totals) (*Writer, error) {
	p := &Writer{w: bufio.NewWriterSize(w, 256<<10)}
	if _, err := p.w.WriteString(magic); err != nil {
		return nil, err
	}
	return p, p.frame(frameTotals, about.encode(), nil)
}

func (t Totals) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(t.Entries))
	return binary.LittleEndian.AppendUint64(b, uint64(t.Bytes))
}

func (p *Writer) frame(kind byte, head, tail []byte) error {
	var h [5]byte
	h[0] = kind
	binary.LittleEndian.PutUint32(h[1:], uint32(len(head)+len(tail)))
	for _, b := range [][]byte{h[:], head, tail} {
		if _, err := p.w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// Entry writes the next entry. A directory stays open until Up.
func (p *Writer) Entry(e *Entry) error {
	le := binary.LittleEndian
	b := append(p.head[:0], byte(e.Kind))
	for _, v := range []uint32{e.Mode, e.UID, e.GID, e.Rdev} {
		b = le.AppendUint32(b, v)
	}
	for _, v := range []uint64{uint64(e.Mtime), uint64(e.Atime), uint64(e.Size), e.ID} {
		b = le.AppendUint64(b, v)
	}
	for _, s := range []string{e.Name, e.Target} {
		b = append(le.AppendUint16(b, uint16(len(s))), s...)
	}
	b = le.AppendUint32(b, uint32(len(e.Xattrs)))
	for _, x := range e.Xattrs {
		b = append(le.AppendUint16(b, uint16(len(x.Name))), x.Name...)
		b = append(le.AppendUint32(b, uint32(len(x.Value))), x.Value...)
	}
	p.head = b
	p.Sent.Entries++
	return p.frame(frameEntry, b, nil)
}

// Data writes bytes of the current file, at most MostData.
func (p *Writer) Data(off int64, data []byte) error {
	p.head = binary.LittleEndian.AppendUint64(p.head[:0], uint64(off))
	p.Sent.Bytes += int64(len(data))
	return p.frame(frameData, p.head, data)
}

// Up completes the current directory.
func (p *Writer) Up() error { return p.frame(frameUp, nil, nil) }

// Flush sends what is buffered.
func (p *Writer) Flush() error { return p.w.Flush() }

// Close ends the parcel. Without it the reader reports that the parcel was cut off.
func (p *Writer) Close() error {
	if err := p.frame(frameEnd, p.Sent.encode(), nil); err != nil {
		return err
	}
	return p.w.Flush()
}

// validName reports whether name is valid in a directory.
func validName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= mostName && !strings.ContainsAny(name, "/\x00")
}
