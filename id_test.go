package holt_test

import (
	"testing"

	"holt"
)

// TestWork: what names a run or work in a terminal is told from what does not.
func TestWork(t *testing.T) {
	terminal := holt.NewTerminalID()
	stretch := holt.NewStretchID(terminal)
	if stretch == holt.NewStretchID(terminal) {
		t.Errorf("two stretches are %s", stretch)
	}
	if got, err := holt.ParseStretchID(string(stretch)); err != nil || got != stretch {
		t.Errorf("%q: %q, %v", stretch, got, err)
	}
	for _, s := range []string{string(terminal), string(terminal) + ".", string(terminal) + ".17", string(stretch) + "a", string(stretch) + ".1",
		string(terminal) + ".AAAAAAAAAAAAAAAA", "term_x.aaaaaaaaaaaaaaaa", ".aaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaa", ""} {
		if _, err := holt.ParseStretchID(s); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%q is taken for a stretch: %v", s, err)
		}
	}
	for _, s := range []string{string(stretch), string(terminal), string(holt.NewRunID()), "main"} {
		if got, err := holt.ParseWork(s); err != nil || got != s {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "run_x", "Main", "a/b", "auto_1", string(terminal) + "."} {
		if _, err := holt.ParseWork(s); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%q is taken for work: %v", s, err)
		}
	}
}
