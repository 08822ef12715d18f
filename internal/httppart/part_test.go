package httppart

import "testing"

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"bytes=0-0", "bytes=-5", "bytes=7-", "bytes=1-2,3-4", "lines=1-2", "bytes=18446744073709551615-", "bytes=-0"} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, s string, size int64) {
		if size <= 0 {
			return
		}
		part, ok, err := parse(s, size)
		if ok && err != nil {
			t.Fatalf("%q: both a range and %v", s, err)
		}
		if ok && (part.Off < 0 || part.N < 1 || part.Off > size-part.N) {
			t.Fatalf("%q of %d bytes: %+v", s, size, part)
		}
	})
}
