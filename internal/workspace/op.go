package workspace

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
)

// opKind says what a journal record does. The numbers are the format.
type opKind uint8

const (
	opFormat         opKind = 1 // first record: makes the root
	opWriter         opKind = 2 // names writer n
	opMake           opKind = 3 // makes an inode and an entry; no entry without a name
	opLink           opKind = 4
	opUnlink         opKind = 5 // removes an entry; also rmdir
	opRename         opKind = 6
	opSetAttr        opKind = 7
	opWrite          opKind = 8
	opPunch          opKind = 9 // a hole, and a new size
	opCopy           opKind = 10
	opSetXattr       opKind = 11
	opDelXattr       opKind = 12
	opFree           opKind = 13 // ends an unlinked inode
	opBegin          opKind = 14 // opens an epoch
	opInit           opKind = 15 // records an epoch's INIT
	opEnd            opKind = 16 // ends an epoch
	opCheckpoint     opKind = 17 // closes the generation
	opDropCheckpoint opKind = 18
	opParts          opKind = 19 // parts that are applied by the opPartsEnd after them
	opPartsEnd       opKind = 20
	opRevive         opKind = 21 // what follows are parts only
	opErase          opKind = 22
	opEnter          opKind = 23
	opExtents        opKind = 24
	opImage          opKind = 25
	opFork           opKind = 26 // makes the workspace of the records before it another workspace
	opBytes          opKind = 27 // data that later extents refer to
	opTwin           opKind = 28 // a part: an inode is one of another workspace
	opMerged         opKind = 29 // a part: what was merged
	opAdopt          opKind = 30 // a part: names a segment that was never in the journal
	opLast                  = opAdopt
)

// opFlagFree in op.mask: the inode that loses its last name is freed at once.
const opFlagFree = 1 << 31

// opFlagTake in op.mask of an opCopy: the source keeps none of the bytes, and where its end was copied the file ends too. The
// mask may have SetMode, SetUID and SetGID too.
const opFlagTake = 1 << 31

// op is one journal record: everything that applying it needs besides the
// state before it, so that replay does exactly what happened. Fields that a
// kind does not use are zero and take no room.
type op struct {
	kind   opKind
	time   int64 // ns
	epoch  uint64
	unique uint64
	writer uint32 // 0: keep
	ino    Ino
	parent Ino
	other  Ino // second parent, or source inode
	mode   uint32
	uid    uint32
	gid    uint32
	rdev   uint32
	mask   uint32 // SetMask, rename flags
	off    int64
	n      int64
	from   int64 // source offset
	atime  int64
	mtime  int64
	ctime  int64
	btime  int64
	author uint32 // whom an image is attributed to
	data   uint32 // version
	name   string
	name2  string
	blob   []byte // target, value, INIT
	blob2  []byte
}

// code passes every field through c, in the order of the format.
func (o *op) code(c *opCodec) {
	o.epoch = c.number(o.epoch, math.MaxUint64)
	o.unique = c.number(o.unique, math.MaxUint64)
	o.writer = c.uint32(o.writer)
	o.ino, o.parent, o.other = c.ino(o.ino), c.ino(o.parent), c.ino(o.other)
	o.mode, o.uid, o.gid = c.uint32(o.mode), c.uint32(o.uid), c.uint32(o.gid)
	o.rdev, o.mask = c.uint32(o.rdev), c.uint32(o.mask)
	o.off, o.n, o.from = c.length(o.off), c.length(o.n), c.length(o.from)
	o.atime, o.mtime, o.ctime, o.btime = c.signed(o.atime), c.signed(o.mtime), c.signed(o.ctime), c.signed(o.btime)
	o.author, o.data = c.uint32(o.author), c.uint32(o.data)
	o.name, o.name2 = c.string(o.name), c.string(o.name2)
	o.blob, o.blob2 = c.bytes(o.blob), c.bytes(o.blob2)
}

// opFields is the number of fields that code passes.
const opFields = 24

// opCodec appends fields to b or, with decode, takes them off its front. Bit i of present says that field i is not zero.
type opCodec struct {
	b       []byte
	present uint32
	field   int
	decode  bool
	bad     bool // decoding failed; the remaining fields are zero
}

// number codes a field as a uvarint. A decoded one is at most most.
func (c *opCodec) number(v, most uint64) uint64 {
	bit := uint32(1) << c.field
	c.field++
	if !c.decode {
		if v != 0 {
			c.present |= bit
			c.b = binary.AppendUvarint(c.b, v)
		}
		return v
	}
	if c.bad || c.present&bit == 0 {
		return 0
	}
	v, n := binary.Uvarint(c.b)
	if c.bad = n <= 0 || v > most; c.bad {
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *opCodec) uint32(v uint32) uint32 { return uint32(c.number(uint64(v), math.MaxUint32)) }
func (c *opCodec) ino(v Ino) Ino          { return Ino(c.number(uint64(v), math.MaxInt64)) }
func (c *opCodec) length(v int64) int64   { return int64(c.number(uint64(v), math.MaxInt64)) }
func (c *opCodec) signed(v int64) int64   { return unzigzag(c.number(zigzag(v), math.MaxUint64)) }

// string codes a field as its length and its bytes.
func (c *opCodec) string(s string) string {
	n := c.number(uint64(len(s)), math.MaxInt64)
	if !c.decode {
		c.b = append(c.b, s...)
		return s
	}
	return string(c.take(n))
}

// bytes is string for a blob. A decoded one is a copy; nil if empty.
func (c *opCodec) bytes(p []byte) []byte {
	n := c.number(uint64(len(p)), math.MaxInt64)
	if !c.decode {
		c.b = append(c.b, p...)
		return p
	}
	return append([]byte(nil), c.take(n)...)
}

// take returns the next n bytes.
func (c *opCodec) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.bad = true
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// encode appends the record's meta to b:
//
//	kind u8, time i64, present u32 (a bit per field), then the present fields
//	in order: numbers as uvarint, strings and blobs as uvarint length and bytes.
func (o *op) encode(b []byte) []byte {
	b = append(b, byte(o.kind))
	b = binary.LittleEndian.AppendUint64(b, uint64(o.time))
	at := len(b)
	c := opCodec{b: append(b, 0, 0, 0, 0)}
	o.code(&c)
	binary.LittleEndian.PutUint32(c.b[at:], c.present)
	return c.b
}

var errOp = errors.New("journal record cannot be decoded")

// decodeOp decodes a record's meta. It keeps nothing of b.
func decodeOp(b []byte) (op, error) {
	var o op
	if len(b) < 13 {
		return o, errOp
	}
	o.kind = opKind(b[0])
	o.time = int64(binary.LittleEndian.Uint64(b[1:]))
	c := opCodec{b: b[13:], present: binary.LittleEndian.Uint32(b[9:]), decode: true}
	if o.kind == 0 || o.kind > opLast || bits.Len32(c.present) > opFields {
		return o, errOp
	}
	o.code(&c)
	if c.bad || len(c.b) != 0 {
		return o, errOp
	}
	return o, nil
}
