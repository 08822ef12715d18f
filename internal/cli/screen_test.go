package cli

import (
	"strings"
	"testing"
)

func TestScreen(t *testing.T) {
	for name, tt := range map[string]struct{ replay, live, want, leave string }{
		"text":            {"hello\r\n", "ü", "hello\r\nü", ""},
		"colours stay":    {"\x1b[1;31mred\x1b[0m", "", "\x1b[1;31mred\x1b[0m", ""},
		"attributes":      {"a\x1b[cb\x1b[>0cc\x1b[=cd\x1bZe", "\x1b[c", "abcde\x1b[c", ""},
		"position":        {"a\x1b[6nb\x1b[?6nc\x1b[5n", "\x1b[6n", "abc\x1b[6n", ""},
		"modes":           {"a\x1b[?2026$pb\x1b[4$p", "", "ab", ""},
		"window":          {"a\x1b[18tb\x1b[22;0;0tc", "", "ab\x1b[22;0;0tc", ""},
		"version":         {"a\x1b[>qb\x1b[>0qc\x1b[2 qd", "", "abc\x1b[2 qd", ""},
		"keyboard":        {"a\x1b[?ub\x1b[>1uc", "", "ab\x1b[>1uc", ""},
		"colour question": {"a\x1b]11;?\x07b\x1b]10;?\x1b\\c\x1b]0;title\x07d", "", "abc\x1b]0;title\x07d", ""},
		"terminfo":        {"a\x1bP+q544e\x1b\\b\x1bP$qm\x1b\\c", "", "abc", ""},
		"enquiry":         {"a\x05b", "\x05", "ab\x05", ""},
		"cut in two":      {"a\x1b[", "6nb", "a\x1b[6nb", ""},
		"other screen":    {"\x1b[?1049h\x1b[?25l", "\x1b[?1000;1006h", "\x1b[?1049h\x1b[?25l\x1b[?1000;1006h", "\x1b[?1000l\x1b[?1006l\x1b[?1049l\x1b[?25h"},
		"and back":        {"\x1b[?1049h\x1b[?25l", "\x1b[?1049l\x1b[?25h", "\x1b[?1049h\x1b[?25l\x1b[?1049l\x1b[?25h", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []int{1, 2, 1000} { // however it comes
				var s screen
				var out []byte
				for _, p := range pieces(tt.replay, step) {
					out = s.replayed(out, p)
				}
				for _, p := range pieces(tt.live, step) {
					out = s.live(out, p)
				}
				if string(out) != tt.want {
					t.Errorf("in pieces of %d: %q, want %q", step, out, tt.want)
				}
				if got := string(s.leave()); got != tt.leave+"\x1b>\x1b[0m\r" {
					t.Errorf("leaves with %q, want %q", got, tt.leave)
				}
			}
		})
	}
}

func pieces(s string, n int) (all [][]byte) {
	for len(s) > 0 {
		k := min(n, len(s))
		all, s = append(all, []byte(s[:k])), s[k:]
	}
	return all
}

// FuzzScreen: live bytes pass as they are, and no sequence is held for ever.
func FuzzScreen(f *testing.F) {
	f.Add("\x1b[", "6n")
	f.Add("\x1b]11;?", "\x1b\\x")
	f.Add("\x1bP", strings.Repeat("x", 2*mostSequence))
	f.Fuzz(func(t *testing.T, replay, live string) {
		var s screen
		if out := s.live(nil, []byte(live)); string(out) != live {
			t.Fatalf("live: %q became %q", live, out)
		}
		s = screen{}
		out := s.live(s.replayed(nil, []byte(replay)), []byte(live))
		if len(out) > len(replay)+len(live) || len(out)+len(s.seq) < len(live) {
			t.Fatalf("%d bytes of %d and %d", len(out), len(replay), len(live))
		}
		s.leave()
	})
}

func TestKeys(t *testing.T) {
	for name, want := range map[string]int{`ctrl-\`: 0x1c, "ctrl-a": 1, "Ctrl-Z": 26, "ctrl-]": 0x1d, "ctrl-^": 0x1e, "ctrl-_": 0x1f, "none": -1} {
		if got, err := parseKey(name); err != nil || got != want {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "x", "ctrl-", "ctrl-1", "ctrl-aa"} {
		if _, err := parseKey(name); err == nil {
			t.Errorf("%q is a key", name)
		}
	}
}
