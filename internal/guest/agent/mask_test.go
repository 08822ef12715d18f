package agent

import (
	"strings"
	"testing"

	"holt"
)

func TestMask(t *testing.T) {
	secrets := []string{"abcdefgh", "hunter2", "abcd", "aaab"}
	for _, tt := range []struct{ in, want string }{
		{"", ""}, {"nothing", "nothing"}, {"hunter2", "***"}, {"hunter", "hunter"}, {"xhunter2hunter2y", "x******y"},
		{"abcdefgh", "***"}, {"abcdefg", "***efg"}, {"abcdabcdefgh", "******"}, {"hunthunter2", "hunt***"},
		{"aaaab", "a***"}, {"aaa", "aaa"}, {"abcabcd", "abc***"}, {"\x00\xffhunter2\n", "\x00\xff***\n"},
	} {
		for step := 1; step <= len(tt.in)+1; step++ {
			m := newMask(secrets)
			var got strings.Builder
			for in := tt.in; len(in) > 0; {
				n := min(step, len(in))
				got.Write(m.hide([]byte(in[:n])))
				in = in[n:]
			}
			got.Write(m.flush())
			if got.String() != tt.want {
				t.Errorf("%q by %d: %q, want %q", tt.in, step, got.String(), tt.want)
			}
		}
	}
	if m := newMask(nil); string(m.hide([]byte("x"))) != "x" || m.flush() != nil {
		t.Error("no secrets, and something is hidden")
	}
}

// TestSecretsOfARun: a secret is in the environment of the run and never in its
// stored output, for any stream and any split of writes.
func TestSecretsOfARun(t *testing.T) {
	c := startGuest(t).client(t)
	id := holt.NewRunID()
	spec := holt.RunSpec{Command: `echo "$KEY"; printf hunt; sleep 0.05; echo er2; echo "<$KEY>" >&2; echo ${#KEY}; printf hunt`,
		Secrets: holt.Secrets{"KEY": "hunter2"}}
	if _, err := c.StartRun(t.Context(), id, spec); err != nil {
		t.Fatal(err)
	}
	r := follow(t, c, id, 0)
	if r.stdout != "***\n***\n7\nhunt" || r.stderr != "<***>\n" {
		t.Errorf("%q %q", r.stdout, r.stderr)
	}
	if r := follow(t, c, id, 4); r.stdout != "***\n7\nhunt" {
		t.Errorf("from 4: %q %q", r.stdout, r.stderr)
	}
	if r.Spec.Secrets != nil {
		t.Errorf("the agent tells the secrets: %+v", r.Spec)
	}
}

func FuzzMask(f *testing.F) {
	f.Add([]byte("a hunter2 b"), uint8(3))
	f.Add([]byte("abcdabcdefgh"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		secrets := []string{"abcdefgh", "hunter2", "abcd"}
		whole := newMask(secrets)
		want := string(whole.hide(in)) + string(whole.flush())
		cut, got := newMask(secrets), ""
		for rest := in; len(rest) > 0; {
			n := min(int(step%16)+1, len(rest))
			got += string(cut.hide(rest[:n]))
			rest = rest[n:]
		}
		if got += string(cut.flush()); got != want {
			t.Errorf("%q by %d: %q, want %q", in, step%16+1, got, want)
		}
	})
}
