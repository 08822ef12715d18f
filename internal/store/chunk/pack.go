package chunk

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"holt"
)

// PackID identifies a pack: 128 random bits. It is not a hash, so a new pack
// never has the name of one that is being deleted.
type PackID [16]byte

func (id PackID) String() string { return hex.EncodeToString(id[:]) }

func newPackID() (id PackID) {
	rand.Read(id[:]) // never fails
	return id
}

const packPrefix = "pack/"

func (id PackID) object() string { return packPrefix + id.String()[:2] + "/" + id.String() }

// parsePack returns the pack ID from an object's name.
func parsePack(object string) (id PackID, ok bool) {
	name := object[strings.LastIndexByte(object, '/')+1:]
	b, err := hex.DecodeString(name)
	if err != nil || len(b) != len(id) {
		return id, false
	}
	copy(id[:], b)
	return id, id.object() == object
}

// Sizes of the format, bytes; see the package comment.
const (
	packSize   = 12 << 20 // a pack is closed when it is this large
	maxPack    = 16 << 20 // of stored bytes
	headLen    = 24
	entryLen   = 44
	footLen    = 40
	maxEntries = 1 << 16
	packMagic  = "HOLTPAK1"
	footMagic  = "HOLTEND1"
)

// entry is the identity and place of one chunk in a pack.
type entry struct {
	id     ID
	off    int64  // of the stored bytes in the pack
	stored int    // bytes in the pack
	length int    // bytes of content; equal to stored: not compressed
	sum    uint32 // CRC-32C of the stored bytes
}

// builder gathers chunks for one pack.
type builder struct {
	id      PackID
	b       []byte
	entries []entry
}

// begin starts a pack and reuses the buffer of the previous one.
func (p *builder) begin() {
	p.id, p.entries = newPackID(), p.entries[:0]
	p.b = append(p.b[:0], packMagic...)
	p.b = append(p.b, p.id[:]...)
}

// close adds an entry for the bytes appended to b since the last call.
func (p *builder) close(id ID, length int) {
	off := headLen
	if n := len(p.entries); n > 0 {
		off = int(p.entries[n-1].off) + p.entries[n-1].stored
	}
	stored := p.b[off:]
	p.entries = append(p.entries, entry{id, int64(off), len(stored), length, checksum(stored)})
}

// full reports whether the pack should be closed before another chunk is added.
func (p *builder) full() bool { return len(p.b) >= packSize || len(p.entries) >= maxEntries }

// finish appends the trailer and returns the complete pack.
func (p *builder) finish() []byte {
	at := len(p.b)
	for _, e := range p.entries {
		p.b = append(p.b, e.id[:]...)
		p.b = binary.LittleEndian.AppendUint32(p.b, uint32(e.stored))
		p.b = binary.LittleEndian.AppendUint32(p.b, uint32(e.length))
		p.b = binary.LittleEndian.AppendUint32(p.b, e.sum)
	}
	sum := checksum(p.b[at:])
	foot := len(p.b)
	p.b = append(p.b, footMagic...)
	p.b = append(p.b, p.id[:]...)
	p.b = binary.LittleEndian.AppendUint32(p.b, uint32(len(p.entries)))
	p.b = binary.LittleEndian.AppendUint32(p.b, sum)
	p.b = binary.LittleEndian.AppendUint32(p.b, 0)
	p.b = binary.LittleEndian.AppendUint32(p.b, checksum(p.b[foot:]))
	return p.b
}

func errPack(id PackID, what string) error {
	return holt.Errorf(holt.Corrupt, "pack %s is damaged: %s", id, what)
}

// decodeFoot decodes the trailer b, the last footLen bytes of a pack of size
// bytes. It returns the number of entries and the checksum of the table.
func decodeFoot(b []byte, id PackID, size int64) (entries int, sum uint32, err error) {
	if len(b) != footLen || string(b[:8]) != footMagic || [16]byte(b[8:24]) != id ||
		checksum(b[:footLen-4]) != binary.LittleEndian.Uint32(b[footLen-4:]) {
		return 0, 0, errPack(id, "it has no valid trailer")
	}
	n := int64(binary.LittleEndian.Uint32(b[24:]))
	if n > maxEntries || headLen+n*entryLen+footLen > size {
		return 0, 0, errPack(id, "it is too short for its table")
	}
	return int(n), binary.LittleEndian.Uint32(b[28:]), nil
}

// decodeTable returns the entries of a pack. It verifies that they fill the
// bytes between head and table exactly.
func decodeTable(b []byte, sum uint32, id PackID, size int64) ([]entry, error) {
	if checksum(b) != sum {
		return nil, errPack(id, "the checksum of its table is wrong")
	}
	entries := make([]entry, 0, len(b)/entryLen)
	off := int64(headLen)
	end := size - footLen - int64(len(b))
	for ; len(b) >= entryLen; b = b[entryLen:] {
		stored, length := binary.LittleEndian.Uint32(b[32:]), binary.LittleEndian.Uint32(b[36:])
		if length == 0 || length > MaxChunk || stored == 0 || stored > length || int64(stored) > end-off {
			return nil, errPack(id, "an entry of its table is out of range")
		}
		entries = append(entries, entry{[32]byte(b[:32]), off, int(stored), int(length), binary.LittleEndian.Uint32(b[40:])})
		off += int64(stored)
	}
	if len(b) != 0 || off != end {
		return nil, errPack(id, "the entries of its table do not fill it")
	}
	return entries, nil
}

// readTable reads the table of a pack from a store.
func readTable(ctx context.Context, s Store, id PackID, size int64) ([]entry, error) {
	if size < headLen+footLen {
		return nil, errPack(id, "it is too short")
	}
	tail := make([]byte, min(size-headLen, 64<<10)) // most tables: one request
	if err := s.Get(ctx, id.object(), tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	n, sum, err := decodeFoot(tail[len(tail)-footLen:], id, size)
	if err != nil {
		return nil, err
	}
	need := n * entryLen
	if need+footLen > len(tail) {
		tail = make([]byte, need+footLen)
		if err := s.Get(ctx, id.object(), tail, size-int64(len(tail))); err != nil {
			return nil, err
		}
	}
	return decodeTable(tail[len(tail)-footLen-need:len(tail)-footLen], sum, id, size)
}

// readStored returns the stored bytes of a chunk after verifying their checksum.
func readStored(ctx context.Context, s Store, pack PackID, e entry) ([]byte, error) {
	b := make([]byte, e.stored)
	if err := s.Get(ctx, pack.object(), b, e.off); err != nil {
		return nil, err
	}
	if checksum(b) != e.sum {
		return nil, holt.Errorf(holt.Corrupt, "chunk %s in pack %s at %d: checksum mismatch", e.id, pack, e.off)
	}
	return b, nil
}
