package cli

import (
	"strings"
	"testing"

	"holt"
)

func TestTerminalLost(t *testing.T) {
	s := &session{computer: "gk", name: "main"}
	for state, want := range map[holt.ComputerState]string{
		holt.ComputerStopped:  "gk was stopped, and its terminals with it",
		holt.ComputerStopping: "gk was stopped",
		holt.ComputerRunning:  "gk was started anew, or went back to a moment before the terminal main",
		holt.ComputerFailed:   "gk ended under the terminal",
		"":                    "gk ended under the terminal",
	} {
		if err := holt.AsError(s.lost(state)); !strings.HasPrefix(err.Message, want) || !strings.Contains(err.Hint, "gk") {
			t.Errorf("%s: %+v", state, err)
		}
	}
}
