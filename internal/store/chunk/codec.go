package chunk

import (
	"encoding/hex"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"

	"holt"
)

// ID is the name of a chunk: the BLAKE3-256 of its content.
type ID [32]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Sum returns the ID of a chunk.
func Sum(p []byte) ID { return blake3.Sum256(p) }

// codec compresses and decompresses chunks. It is safe for concurrent use.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() (*codec, error) {
	// The ID verifies the content, so zstd writes no CRC.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
		zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(MaxChunk), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(4*MaxChunk),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return &codec{enc, dec}, nil
}

// pack appends the stored form of p to dst: zstd, or p itself if zstd saves less than a sixteenth.
func (c *codec) pack(dst, p []byte) []byte {
	at := len(dst)
	dst = c.enc.EncodeAll(p, dst)
	if len(dst)-at > len(p)-len(p)/16 || len(dst)-at >= len(p) {
		dst = append(dst[:at], p...)
	}
	return dst
}

// unpack returns the n bytes of content in stored and verifies them against id.
// It never allocates more than n bytes.
func (c *codec) unpack(stored []byte, n int, id ID) ([]byte, error) {
	p := stored
	if len(stored) != n {
		var err error
		if p, err = c.dec.DecodeAll(stored, make([]byte, 0, n)); err != nil {
			return nil, holt.Errorf(holt.Corrupt, "chunk %s cannot be decompressed: %w", id, err)
		}
	}
	if len(p) != n || Sum(p) != id {
		return nil, holt.Errorf(holt.Corrupt, "chunk %s is damaged: its content does not match its hash", id)
	}
	return p, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
