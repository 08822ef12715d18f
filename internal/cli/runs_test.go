package cli_test

import (
	"regexp"
	"testing"

	"holt"
	"holt/internal/door/httpapi/servertest"
)

// Runs as a person sees them.
func TestRunsOnTerminal(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.New(t).Nouns()), "")
	onTerminal(t, d, "", "computer", "create", "--name", "einstein")
	step{"run list", "", 0, []string{"no runs yet; start one with: holt computer run NAME"}, nil}.take(t, d)
	step{"run list einstein", "", 0, []string{"no runs in einstein yet; start one with: holt computer run einstein"}, nil}.take(t, d)
	onTerminal(t, d, "", "computer", "run", "einstein", "true")
	onTerminal(t, d, "", "computer", "run", "einstein", "exit 7")
	step{"run list --running", "", 0, []string{"no runs in progress; for runs that have ended: holt run list\n"}, nil}.take(t, d)
	step{"run list einstein --running", "", 0, []string{"no runs in einstein in progress; for runs that have ended: holt run list einstein"}, nil}.take(t, d)
	step{"run list -n 1", "", 0, []string{"exit 7", "only the newest 1 are shown; for more: --limit"}, []string{"exit 0"}}.take(t, d)
	step{"run list -n 2", "", 0, []string{"exit 7", "exit 0"}, []string{"these are"}}.take(t, d)

	screen, _ := onTerminal(t, d, "", "computer", "run", "einstein", "--background", "sleep 1000")
	id := regexp.MustCompile("run_[a-z2-7]{16}").FindString(screen)
	step{"run show " + id, "", 0, []string{"s so far", "no changes so far"}, nil}.take(t, d)
	step{"run signal " + id + " SIGKILL", "", 0, []string{"sent SIGKILL to " + id}, nil}.take(t, d)
	onTerminal(t, d, "", "run", "follow", id)
	step{"run show " + id, "", 0, []string{"killed by SIGKILL"}, []string{"so far"}}.take(t, d)
}

// TestShortOutput: output that is gone is never missed in silence.
func TestShortOutput(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	onTerminal(t, d, "", "computer", "create", "--name", "einstein")
	screen, _ := onTerminal(t, d, "", "computer", "run", "einstein", "--background", "echo 12345; yes | head -c 5000000; echo x; exit 3") // 4 MiB are kept
	id := regexp.MustCompile("run_[a-z2-7]{16}").FindString(screen)
	servertest.Collect(t, nouns, holt.RunID(id))
	step{"run follow " + id, "", 125, []string{"x", " of the output is missing; the command itself ended with status 3", "holt run show " + id}, []string{"12345"}}.take(t, d)
	step{"run follow --json " + id, "", 125, []string{`"truncated": true`, "of the output is missing"}, nil}.take(t, d)
	step{"run follow --from 5000006 " + id, "", 3, []string{"x"}, []string{"missing"}}.take(t, d)
}
