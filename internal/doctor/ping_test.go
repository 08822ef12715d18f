package doctor

import (
	"strings"
	"testing"

	"holt"
)

// TestPing: the finding says whether ping_group_range lets computers ping, and how to change it.
func TestPing(t *testing.T) {
	for _, c := range []struct {
		uid, gid int
		groups   string
		want     holt.Verdict
	}{
		{0, 0, "0\t2147483647\n", holt.VerdictOK},
		{0, 0, "0\t1000\n", holt.VerdictWarn},
		{0, 0, "1\t0\n", holt.VerdictWarn},
		{1000, 1000, "0\t1000\n", holt.VerdictOK},
		{1000, 1000, "1\t0\n", holt.VerdictWarn},
		{1000, 1000, "x", holt.VerdictWarn},
	} {
		h := fakeHost(t, map[string]string{"proc/sys/net/ipv4/ping_group_range": c.groups})
		h.uid, h.gid = c.uid, c.gid
		if f := h.ping(t.Context(), Options{}); f.Verdict != c.want || c.want == holt.VerdictWarn && c.groups != "x" && !strings.Contains(f.Do, "sysctl -w") {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
