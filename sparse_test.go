package holt

import (
	"bytes"
	"slices"
	"testing"
)

func TestEachData(t *testing.T) {
	data := func(n int) []byte { return bytes.Repeat([]byte{7}, n) }
	zero := func(n int) []byte { return make([]byte, n) }
	for name, test := range map[string]struct {
		off  int64
		p    []byte
		want [][2]int64 // offset, length
	}{
		"nothing":                 {0, nil, nil},
		"only zeros":              {4096, zero(100_000), nil},
		"no zeros":                {1, data(5000), [][2]int64{{1, 5000}}},
		"a long hole":             {0, slices.Concat(data(4096), zero(65536), data(1)), [][2]int64{{0, 4096}, {69632, 1}}},
		"a short one is written":  {0, slices.Concat(data(4096), zero(8192), data(1)), [][2]int64{{0, 12289}}},
		"zeros at both ends":      {0, slices.Concat(zero(4096), data(10), zero(4086), zero(4096)), [][2]int64{{4096, 4096}}},
		"not at a block":          {4000, slices.Concat(zero(96), data(4096), zero(5)), [][2]int64{{4096, 4096}}},
		"zeros within a block":    {0, slices.Concat(data(1), zero(4094), data(1)), [][2]int64{{0, 4096}}},
		"zeros and half a block":  {0, slices.Concat(zero(4096), data(3)), [][2]int64{{4096, 3}}},
		"a hole that is not even": {100, slices.Concat(data(10), zero(80_000), data(10)), [][2]int64{{100, 3996}, {77824, 2296}}},
	} {
		var got [][2]int64
		again := make([]byte, len(test.p))
		err := EachData(test.p, test.off, func(p []byte, off int64) error {
			got = append(got, [2]int64{off, int64(len(p))})
			copy(again[off-test.off:], p)
			return nil
		})
		if err != nil || !slices.Equal(got, test.want) || !bytes.Equal(again, test.p) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, test.want)
		}
	}
}
