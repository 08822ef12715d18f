package chunk

import "math/bits"

// Sizes of chunks, bytes of content. The last chunk of a run may be smaller, so
// a small file is one chunk.
const (
	minChunk  = 32 << 10
	meanChunk = 128 << 10
	MaxChunk  = 512 << 10
)

// cutter cuts a run of bytes by its content, so that equal bytes give equal
// chunks at any offset: FastCDC (Xia et al., USENIX ATC 2016) with a gear hash
// and normalised chunking. The cut points may change between versions: that
// only loses deduplication with older chunks.
type cutter struct {
	gear          [256]uint64
	strict, loose uint64
}

func newCutter() *cutter {
	c := &cutter{}
	var x uint64 = 0x686f6c74 // an arbitrary seed that must not change
	for i := range c.gear {
		x += 0x9e3779b97f4a7c15 // SplitMix64
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		c.gear[i] = z ^ z>>31
	}
	// Two bits more than the mean needs before the mean, two fewer after it. The
	// high bits depend on the last 64 bytes.
	n := bits.Len(meanChunk-minChunk) - 1
	c.strict, c.loose = ^uint64(0)<<(64-n-2), ^uint64(0)<<(64-n+2)
	return c
}

// cut returns the length of the first chunk of b, which must be at least
// MaxChunk long or the end of its run.
func (c *cutter) cut(b []byte) int {
	if len(b) <= minChunk {
		return len(b)
	}
	b = b[:min(len(b), MaxChunk)]
	var h uint64
	i := minChunk
	for _, x := range b[minChunk-64 : minChunk] {
		h = h<<1 + c.gear[x]
	}
	for mean := min(len(b), meanChunk); i < mean; i++ {
		if h = h<<1 + c.gear[b[i]]; h&c.strict == 0 {
			return i + 1
		}
	}
	for ; i < len(b); i++ {
		if h = h<<1 + c.gear[b[i]]; h&c.loose == 0 {
			return i + 1
		}
	}
	return len(b)
}
