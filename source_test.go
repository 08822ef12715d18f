package holt

import "testing"

func TestSource(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:5000": "192.0.2.7", "[2001:db8::7]:80": "2001:db8::/64", "[2001:db8::8]:81": "2001:db8::/64", "[::ffff:192.0.2.7]:1": "192.0.2.7", "@": "@", "": "",
	} {
		if got := Source(remote); got != want {
			t.Errorf("%s is %s, want %s", remote, got, want)
		}
	}
}
