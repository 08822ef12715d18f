package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"holt"
)

// mostKept bounds what --json keeps of each stream, in bytes.
const mostKept = 8 << 20

// keptOutput is the output of a run that is printed at its end.
type keptOutput struct {
	stdout, stderr strings.Builder
	truncated      bool
	over           int64 // bytes that came and had no room
}

func (k *keptOutput) add(e holt.RunEvent) {
	into := &k.stdout
	switch e.Kind {
	case holt.RunGap:
		k.truncated = true
		return
	case holt.RunStderr:
		into = &k.stderr
	}
	room := mostKept - into.Len()
	if over := len(e.Data) - room; over > 0 {
		k.truncated, k.over = true, k.over+int64(over)
	}
	into.Write(e.Data[:min(room, len(e.Data))])
}

func (k *keptOutput) print(w io.Writer, run holt.Run, receipt *holt.Receipt) error {
	return printJSON(w, struct {
		Run       holt.Run      `json:"run"`
		Stdout    string        `json:"stdout"` // bytes that are not UTF-8 are replaced
		Stderr    string        `json:"stderr"`
		Truncated bool          `json:"truncated,omitempty"`
		Receipt   *holt.Receipt `json:"receipt,omitempty"`
	}{run, k.stdout.String(), k.stderr.String(), k.truncated, receipt})
}

// short is the failure of having shown less than a command wrote; noun and id are of what was followed.
func (r *remoteRun) short(noun, id string, exit int) error {
	lost := r.lost
	if r.kept != nil {
		lost += r.kept.over
	}
	if lost == 0 {
		return nil
	}
	hint := fmt.Sprintf("holt %s show %s shows how it ended; to keep all output, write it to a file: make > log 2>&1", noun, id)
	if r.lost == 0 {
		hint = fmt.Sprintf("--json keeps %s of each stream; without --json all output is printed", size(mostKept))
	}
	return runFailure{holt.Errorf(holt.Unavailable, "%s of the output is missing; the command itself ended with status %d", size(lost), exit).WithHint("%s", hint)}
}

// deadline calls a function when a time has passed, of which pauses are no part.
type deadline struct {
	timer *time.Timer
	at    time.Time
}

func newDeadline(after time.Duration, call func()) *deadline {
	return &deadline{timer: time.AfterFunc(after, call), at: time.Now().Add(after)}
}

func (d *deadline) stop() { d.timer.Stop() }

// pause has it wait until resume is called.
func (d *deadline) pause() (resume func()) {
	if d == nil || !d.timer.Stop() {
		return func() {}
	}
	began := time.Now()
	return func() {
		d.at = d.at.Add(time.Since(began))
		d.timer.Reset(time.Until(d.at))
	}
}

// lostRun is the failure of a run whose computer ended before it did.
func lostRun(run holt.Run, computer string) error {
	if run.Reason != "" {
		return holt.Errorf(holt.Unavailable, "%s %s, which ended the run", computer, run.Reason).
			WithHint("holt computer get %s shows its state; holt run show %s shows what the run changed", computer, run.ID)
	}
	return holt.Errorf(holt.Unavailable, "%s ended during the run", computer).
		WithHint("look for the cause: holt computer logs %s", computer)
}

// sayMemory says that memory was at an end, and what gives more.
func (a *app) sayMemory(o *holt.OutOfMemory) {
	switch {
	case o == nil:
	case o.Raise == "":
		a.say("holt: %s", visible(o.String()))
	default:
		a.say("holt: %s\nhint: %s gives the computer more memory", visible(o.String()), visible(o.Raise))
	}
}

// memoryRows are what a table of one thing has of that.
func memoryRows(o *holt.OutOfMemory) [][]string {
	if o == nil {
		return nil
	}
	return [][]string{{"killed", visible(o.String())}, {"for more memory", visible(o.Raise)}}
}
