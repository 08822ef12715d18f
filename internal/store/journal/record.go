package journal

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Sizes of the format, bytes.
const (
	BlockSize = 32 << 10  // data per checksum
	MaxMeta   = 256 << 10 // of one record
	MaxData   = 4 << 20   // of one record

	headerSize = 128
	headSize   = 12
	version    = 1
	posBits    = 36 // a segment is below 64 GiB
)

const magic = "HOLTSEG1"

var (
	errShort = io.ErrUnexpectedEOF
	// errTorn is returned if no complete record starts at a position.
	errTorn = errors.New("no complete record at this position")
)

// ErrChecksum is returned if stored bytes are damaged.
var ErrChecksum = errors.New("checksum mismatch")

// ErrGone is returned if a segment does not exist (any more).
var ErrGone = errors.New("segment is gone")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ID identifies a segment: 128 random bits.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Pos is a position in a journal: the segment's ordinal and the byte offset in
// it. Positions of one journal compare in the order of writing. Zero is before
// everything.
type Pos uint64

func makePos(ordinal uint32, off int64) Pos { return Pos(ordinal)<<posBits | Pos(off) }

// Segment returns the segment's ordinal.
func (p Pos) Segment() uint32 { return uint32(p >> posBits) }

// Offset returns the byte offset in the segment.
func (p Pos) Offset() int64 { return int64(p & (1<<posBits - 1)) }

func (p Pos) String() string { return fmt.Sprintf("%d:%d", p.Segment(), p.Offset()) }

// header is the start of a segment.
type header struct {
	id      ID
	ordinal uint32
	prev    ID
	prevEnd int64
	created int64
}

func (h header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], version)
	binary.LittleEndian.PutUint32(b[12:], BlockSize)
	copy(b[16:], h.id[:])
	binary.LittleEndian.PutUint64(b[32:], uint64(h.ordinal))
	copy(b[40:], h.prev[:])
	binary.LittleEndian.PutUint64(b[56:], uint64(h.prevEnd))
	binary.LittleEndian.PutUint64(b[64:], uint64(h.created))
	binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

func decodeHeader(b []byte) (header, error) {
	var h header
	if len(b) < headerSize || string(b[:8]) != magic {
		return h, errors.New("not a segment")
	}
	if crc32.Checksum(b[:124], castagnoli) != binary.LittleEndian.Uint32(b[124:]) {
		return h, ErrChecksum
	}
	if v, bs := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:]); v != version || bs != BlockSize {
		return h, fmt.Errorf("unknown segment format %d with blocks of %d bytes", v, bs)
	}
	copy(h.id[:], b[16:])
	copy(h.prev[:], b[40:])
	ordinal, prevEnd := binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[56:])
	if ordinal == 0 || ordinal >= 1<<(64-posBits) || prevEnd >= 1<<posBits {
		return h, errors.New("a field of the segment header is out of range")
	}
	h.ordinal, h.prevEnd = uint32(ordinal), int64(prevEnd)
	h.created = int64(binary.LittleEndian.Uint64(b[64:]))
	return h, nil
}

// tableSize returns the size of the checksum table of n bytes of data.
func tableSize(n int) int { return (n + BlockSize - 1) / BlockSize * 4 }

// Sum appends the checksum table of data to dst. It is the expensive part of an
// append and needs no lock.
func Sum(dst, data []byte) []byte {
	for len(data) > 0 {
		n := min(len(data), BlockSize)
		dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(data[:n], castagnoli))
		data = data[n:]
	}
	return dst
}

// seal fills in the head at the start of b (head, meta, table) for a record at off of segment id.
func seal(b []byte, metaLen, dataLen int, id ID, off int64) {
	binary.LittleEndian.PutUint32(b[4:], uint32(metaLen))
	binary.LittleEndian.PutUint32(b[8:], uint32(dataLen))
	binary.LittleEndian.PutUint32(b, recordSum(b, id, off))
}

// recordSum is the checksum of b (head, meta, table), salted with its position.
func recordSum(b []byte, id ID, off int64) uint32 {
	var salt [24]byte
	copy(salt[:], id[:])
	binary.LittleEndian.PutUint64(salt[16:], uint64(off))
	return crc32.Update(crc32.Checksum(salt[:], castagnoli), castagnoli, b[4:])
}

// decodeHead returns the lengths in a record's head and checks their bounds.
func decodeHead(b []byte) (metaLen, dataLen int, err error) {
	if len(b) < headSize {
		return 0, 0, errTorn
	}
	m, d := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	if m == 0 || m > MaxMeta || d > MaxData {
		return 0, 0, errTorn
	}
	return int(m), int(d), nil
}

// decodeRecord returns meta and data of the record at the start of b, which is
// at off of segment id, and its length. It returns errTorn if the record is not
// complete.
func decodeRecord(b []byte, id ID, off int64) (meta, data []byte, n int, err error) {
	m, d, err := decodeHead(b)
	if err != nil {
		return nil, nil, 0, err
	}
	front := headSize + m + tableSize(d)
	if len(b) < front+d || recordSum(b[:front], id, off) != binary.LittleEndian.Uint32(b) {
		return nil, nil, 0, errTorn
	}
	meta, data = b[headSize:headSize+m], b[front:front+d]
	if !verify(b[headSize+m:front], data) {
		return nil, nil, 0, errTorn
	}
	return meta, data, front + d, nil
}

// verify checks complete blocks against their part of the table.
func verify(table, data []byte) bool {
	for len(data) > 0 {
		n := min(len(data), BlockSize)
		if crc32.Checksum(data[:n], castagnoli) != binary.LittleEndian.Uint32(table) {
			return false
		}
		table, data = table[4:], data[n:]
	}
	return true
}
