package workspace

import (
	"encoding/binary"
	"errors"
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
	opParts          opKind = 19 // parts that happen with the opTurn behind them
	opTurn           opKind = 20
	opRevive         opKind = 21 // what follows are parts only
	opErase          opKind = 22
	opEnter          opKind = 23
	opExtents        opKind = 24
	opImage          opKind = 25
	opFork           opKind = 26 // the workspace of the records before goes on as another
	opBytes          opKind = 27 // data that later extents refer to
	opTwin           opKind = 28 // a part: an inode is one of another workspace
	opMerged         opKind = 29 // a part: what was merged
	opLast                  = opMerged
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

const opNumbers = 20

// numbers lists the integer fields in the order of the format.
func (o *op) numbers() [opNumbers]uint64 {
	return [opNumbers]uint64{o.epoch, o.unique, uint64(o.writer), uint64(o.ino), uint64(o.parent), uint64(o.other),
		uint64(o.mode), uint64(o.uid), uint64(o.gid), uint64(o.rdev), uint64(o.mask), uint64(o.off), uint64(o.n),
		uint64(o.from), zigzag(o.atime), zigzag(o.mtime), zigzag(o.ctime), zigzag(o.btime), uint64(o.author), uint64(o.data)}
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
	b = append(b, 0, 0, 0, 0)
	var present uint32
	for i, v := range o.numbers() {
		if v != 0 {
			present |= 1 << i
			b = binary.AppendUvarint(b, v)
		}
	}
	for i, s := range [2]string{o.name, o.name2} {
		if s != "" {
			present |= 1 << (opNumbers + i)
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	for i, s := range [2][]byte{o.blob, o.blob2} {
		if len(s) > 0 {
			present |= 1 << (opNumbers + 2 + i)
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	binary.LittleEndian.PutUint32(b[at:], present)
	return b
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
	present := binary.LittleEndian.Uint32(b[9:])
	if o.kind == 0 || o.kind > opLast || bits.Len32(present) > opNumbers+4 {
		return o, errOp
	}
	b = b[13:]
	var nums [opNumbers]uint64
	for i := range nums {
		if present&(1<<i) == 0 {
			continue
		}
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return o, errOp
		}
		nums[i], b = v, b[n:]
	}
	var strs [4][]byte
	for i := range strs {
		if present&(1<<(opNumbers+i)) == 0 {
			continue
		}
		v, n := binary.Uvarint(b)
		if n <= 0 || v > uint64(len(b)-n) {
			return o, errOp
		}
		strs[i], b = append([]byte(nil), b[n:n+int(v)]...), b[n+int(v):]
	}
	if len(b) != 0 || !o.setNumbers(nums) {
		return o, errOp
	}
	o.name, o.name2, o.blob, o.blob2 = string(strs[0]), string(strs[1]), strs[2], strs[3]
	return o, nil
}

// setNumbers is the inverse of numbers; false if one is out of range.
func (o *op) setNumbers(v [opNumbers]uint64) bool {
	for _, i := range []int{2, 6, 7, 8, 9, 10, 18, 19} {
		if v[i] > 1<<32-1 {
			return false
		}
	}
	for _, i := range []int{3, 4, 5, 11, 12, 13} {
		if v[i] > 1<<63-1 {
			return false
		}
	}
	o.epoch, o.unique, o.writer = v[0], v[1], uint32(v[2])
	o.ino, o.parent, o.other = Ino(v[3]), Ino(v[4]), Ino(v[5])
	o.mode, o.uid, o.gid, o.rdev, o.mask = uint32(v[6]), uint32(v[7]), uint32(v[8]), uint32(v[9]), uint32(v[10])
	o.off, o.n, o.from = int64(v[11]), int64(v[12]), int64(v[13])
	o.atime, o.mtime, o.ctime = unzigzag(v[14]), unzigzag(v[15]), unzigzag(v[16])
	o.btime, o.author, o.data = unzigzag(v[17]), uint32(v[18]), uint32(v[19])
	return true
}
