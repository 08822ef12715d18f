package gvisor

import (
	"bytes"
	"testing"

	"holt"
)

func FuzzSplitState(f *testing.F) {
	for _, s := range []string{"", "\x00\x00\x00\x00\x00\x00\x00\x00", "statetable\x00\x00\x00\x00\x00\x00\x00\x05", "state\xff\xff\xff\xff\xff\xff\xff\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		state, table, err := SplitState(b)
		if err != nil {
			if holt.CodeOf(err) != holt.Corrupt {
				t.Error(err)
			}
			return
		}
		if again := append(bytes.Clone(state), StateTail(bytes.Clone(table))...); !bytes.Equal(again, b) {
			t.Errorf("%q and %q of %q", state, table, b)
		}
	})
}
