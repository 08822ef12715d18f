package chunk

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"holt"
)

// ManifestID identifies a manifest: 128 random bits.
type ManifestID [16]byte

func (id ManifestID) String() string { return hex.EncodeToString(id[:]) }

const (
	manifestPrefix = "manifest/"
	spacePrefix    = "space/"

	manifestMagic = "HOLTMAN1"
	spaceMagic    = "HOLTSPC1"

	maxManifest = 64 << 20 // bytes of an encoded manifest or space
	maxOffset   = 1 << 62  // of a part
)

func (id ManifestID) object() string { return manifestPrefix + id.String()[:2] + "/" + id.String() }

func parseManifest(object string) (id ManifestID, ok bool) {
	b, err := hex.DecodeString(object[strings.LastIndexByte(object, '/')+1:])
	if err != nil || len(b) != len(id) {
		return id, false
	}
	copy(id[:], b)
	return id, id.object() == object
}

// piece maps a range of a chunk to bytes off..off+n of a part.
type piece struct {
	off   int64
	n     int
	chunk int // index into the manifest's ids
	delta int // where in the chunk
}

// manifest describes a sparse part: pieces by offset, disjoint.
type manifest struct {
	id     ManifestID
	ids    []ID
	pieces []piece
	lost   int // in the index only: the number of its missing chunks, or unread
}

func newManifest() *manifest {
	m := &manifest{}
	rand.Read(m.id[:]) // never fails
	return m
}

// settle sorts the pieces and joins adjacent ones.
func (m *manifest) settle() error {
	slices.SortFunc(m.pieces, func(a, b piece) int { return cmp.Compare(a.off, b.off) })
	out := m.pieces[:0]
	for _, p := range m.pieces {
		if len(out) > 0 {
			last := &out[len(out)-1]
			end := last.off + int64(last.n)
			if end > p.off {
				return holt.Errorf(holt.InvalidArgument, "bytes %d to %d are given twice", p.off, end)
			}
			if end == p.off && last.chunk == p.chunk && last.delta+last.n == p.delta {
				last.n += p.n
				continue
			}
		}
		out = append(out, p)
	}
	m.pieces = out
	return nil
}

// encode returns the bytes of the object; see the package comment.
func (m *manifest) encode() ([]byte, error) {
	b := append([]byte(manifestMagic), m.id[:]...)
	b = binary.AppendUvarint(b, uint64(len(m.ids)))
	for _, id := range m.ids {
		b = append(b, id[:]...)
	}
	b = binary.AppendUvarint(b, uint64(len(m.pieces)))
	end := int64(0)
	for _, p := range m.pieces {
		for _, v := range []uint64{uint64(p.off - end), uint64(p.n), uint64(p.chunk), uint64(p.delta)} {
			b = binary.AppendUvarint(b, v)
		}
		end = p.off + int64(p.n)
	}
	if len(b) > maxManifest {
		return nil, holt.Errorf(holt.TooMany, "the part has %d pieces: too many for one manifest", len(m.pieces))
	}
	return binary.LittleEndian.AppendUint32(b, checksum(b)), nil
}

func decodeManifest(b []byte) (*manifest, error) {
	d := decoder{b: b}
	d.frame(manifestMagic)
	m := &manifest{}
	copy(m.id[:], d.bytes(len(m.id)))
	m.ids = make([]ID, d.count(len(ID{})))
	for i := range m.ids {
		copy(m.ids[i][:], d.bytes(len(ID{})))
	}
	m.pieces = make([]piece, d.count(4))
	end := int64(0)
	for i := range m.pieces {
		gap, n, chunk, delta := d.uint(maxOffset), d.uint(MaxChunk), d.uint(1<<31), d.uint(MaxChunk)
		if n == 0 || chunk >= len(m.ids) || delta+n > MaxChunk || gap > maxOffset-n-int(end) {
			d.bad = true
			break
		}
		m.pieces[i] = piece{end + int64(gap), n, chunk, delta}
		end = m.pieces[i].off + int64(n)
	}
	return m, d.end("manifest")
}

// space is the parts of one owner by name.
type space struct {
	name  string
	seq   uint64 // grows with every change
	parts map[string]ManifestID
}

func (s *space) object() string { return fmt.Sprintf("%s%s/%016x", spacePrefix, s.name, s.seq) }

// parseSpace returns the name and version of a space from an object's name.
func parseSpace(object string) (name string, seq uint64, ok bool) {
	name, hexa, _ := strings.Cut(strings.TrimPrefix(object, spacePrefix), "/")
	seq, err := strconv.ParseUint(hexa, 16, 63)
	s := space{name: name, seq: seq}
	return name, seq, err == nil && s.object() == object
}

func (s *space) encode() []byte {
	b := append([]byte(spaceMagic), byte(len(s.name)))
	b = append(b, s.name...)
	b = binary.LittleEndian.AppendUint64(b, s.seq)
	b = binary.AppendUvarint(b, uint64(len(s.parts)))
	names := make([]string, 0, len(s.parts))
	for name := range s.parts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		id := s.parts[name]
		b = append(append(append(b, byte(len(name))), name...), id[:]...)
	}
	return binary.LittleEndian.AppendUint32(b, checksum(b))
}

func decodeSpace(b []byte) (*space, error) {
	d := decoder{b: b}
	d.frame(spaceMagic)
	s := &space{parts: map[string]ManifestID{}}
	s.name = string(d.bytes(d.uint(127)))
	if seq := d.bytes(8); len(seq) == 8 {
		s.seq = binary.LittleEndian.Uint64(seq)
	}
	for range d.count(1 + len(ManifestID{})) {
		name := string(d.bytes(d.uint(127)))
		var id ManifestID
		copy(id[:], d.bytes(len(id)))
		s.parts[name] = id
	}
	return s, d.end("space")
}

// decoder reads the body between a magic and a checksum. After a missing or
// invalid value all further values are zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) frame(magic string) {
	n := len(d.b) - 4
	if n < len(magic) || n > maxManifest || string(d.b[:len(magic)]) != magic || checksum(d.b[:n]) != binary.LittleEndian.Uint32(d.b[n:]) {
		d.bad = true
		return
	}
	d.b = d.b[len(magic):n]
}

func (d *decoder) bytes(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad = true
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

// uint returns a number not above most.
func (d *decoder) uint(most int) int {
	v, n := binary.Uvarint(d.b)
	if d.bad || n <= 0 || v > uint64(most) {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

// count returns a number of items of at least size bytes each, bounded by what is left.
func (d *decoder) count(size int) int {
	return d.uint(len(d.b) / size)
}

func (d *decoder) end(what string) error {
	if d.bad || len(d.b) != 0 {
		return holt.Errorf(holt.Corrupt, "a stored %s is damaged", what)
	}
	return nil
}
