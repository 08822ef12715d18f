package cli

import (
	"strings"
	"testing"

	"holt"
)

func TestTerminalLost(t *testing.T) {
	s := &session{computer: "gk", name: "main"}
	for state, want := range map[holt.ComputerState]string{
		holt.ComputerStopped:  "gk was stopped, which ended its terminals",
		holt.ComputerStopping: "gk was stopped",
		holt.ComputerRunning:  "gk was restarted, or restored to a snapshot older than the terminal main",
		holt.ComputerFailed:   "gk ended while its terminal was attached",
		"":                    "gk ended while its terminal was attached",
	} {
		if err := holt.AsError(s.lost(state)); !strings.HasPrefix(err.Message, want) || !strings.Contains(err.Hint, "gk") {
			t.Errorf("%s: %+v", state, err)
		}
	}
}

// What goes on no more, and what is left of it.
func TestRunRows(t *testing.T) {
	for want, run := range map[string]holt.Run{
		"its exit status is not known":              {State: holt.RunLost},
		"1 process; end them with: holt run kill":   {State: holt.RunExited, Background: 1},
		"2 processes; end them with: holt run kill": {State: holt.RunExited, Background: 2},
		"exit 3": {State: holt.RunExited, ExitCode: 3},
	} {
		said := ""
		for _, row := range runRows(run, "gk") {
			said += strings.Join(row, " ") + "\n"
		}
		if !strings.Contains(said, want) {
			t.Errorf("%q lacks %q", said, want)
		}
	}
	if got := terminalSize(holt.TerminalSize{}); got != "-" {
		t.Errorf("a size that is not known is %s", got)
	}
}

func TestFullName(t *testing.T) {
	for signal, want := range map[string]string{"15": "SIGTERM", "TERM": "SIGTERM", "sigterm": "SIGTERM", "SIGTERM": "SIGTERM", "40": "40", "-1": "-1", "NO": "NO"} {
		if got := fullName(signal); got != want {
			t.Errorf("%s is %s, want %s", signal, got, want)
		}
	}
}
