package s3

import (
	"encoding/binary"
	"hash/crc32"
)

// crc is a CRC of which that of joined bytes is found from those of its parts. poly has its bits reversed.
type crc struct {
	poly  uint64
	width int // bits
}

// crcs are the checksums that can be of a whole object made of parts.
var crcs = map[string]crc{"CRC32": {crc32.IEEE, 32}, "CRC32C": {crc32.Castagnoli, 32}, "CRC64NVME": {0x9a6c9329ac4bc9b5, 64}}

// times multiplies two polynomials modulo that of the CRC.
func (c crc) times(a, b uint64) (p uint64) {
	for m := uint64(1) << (c.width - 1); m != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ c.poly
		} else {
			b >>= 1
		}
	}
	return p
}

// join returns the CRC of bytes with the CRC a, and n bytes with the CRC b behind them.
func (c crc) join(a, b uint64, n int64) uint64 {
	shift, square := uint64(1)<<(c.width-1), uint64(1)<<(c.width-9) // x^0, x^8
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			shift = c.times(shift, square)
		}
		square = c.times(square, square)
	}
	return c.times(shift, a) ^ b
}

func (c crc) value(b []byte) uint64 {
	if c.width == 32 && len(b) == 4 {
		return uint64(binary.BigEndian.Uint32(b))
	} else if c.width == 64 && len(b) == 8 {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (c crc) bytes(v uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, v)
	return b[8-c.width/8:]
}
