package agent

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
)

func TestNoPTY(t *testing.T) {
	for err, want := range map[error]holt.Code{
		unix.ENOSPC: holt.TooMany, unix.EMFILE: holt.TooMany, unix.ENFILE: holt.TooMany, // all 4096 are in use, or all descriptors
		unix.ENOENT: holt.Unavailable, unix.EIO: holt.Unavailable,
	} {
		if got := holt.AsError(noPTY(fmt.Errorf("open: %w", err))); got.Code != want || got.Hint == "" {
			t.Errorf("%v: %+v", err, got)
		}
	}
}
