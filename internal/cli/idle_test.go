package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"holt"
)

// TestAwakeSaid: what why-awake says to a person.
func TestAwakeSaid(t *testing.T) {
	ago, soon := time.Now().Add(-3*time.Minute-time.Second), time.Now().Add(12*time.Minute+time.Second)
	for name, c := range map[string]struct {
		why  holt.Awake
		says []string
	}{
		"in use": {holt.Awake{State: holt.ComputerRunning, Uses: []holt.Use{
			{Kind: holt.UseRun, ID: "run_a", Detail: "make\x1b[2J", Since: ago}, {Kind: holt.UseHold, ID: "hld_a", Detail: "thinking", Since: ago, Until: &soon},
		}}, []string{"einstein is awake because of:", "run   run_a  3 min ago", "make␛[2J", "in 12 min  thinking"}},
		"idle": {holt.Awake{State: holt.ComputerRunning, IdleSince: &ago, PausesAt: &soon, LastUse: &holt.Use{Kind: holt.UseFiles, Detail: "read /x"}},
			[]string{"einstein has been idle for 3 min, and will be paused in 12 min (at ", "last use: files (read /x)"}},
		"never": {holt.Awake{State: holt.ComputerRunning, IdleSince: &ago, Note: "its idle timeout is null"}, []string{"einstein has been idle for 3 min\n", "its idle timeout is null"}},
		"due": {holt.Awake{State: holt.ComputerRunning, IdleSince: &ago, PausesAt: &ago, Note: "a pause failed"},
			[]string{"einstein has been idle for 3 min, and will be paused now\na pause failed\n"}},
		"paused": {holt.Awake{State: holt.ComputerPaused, Note: "it is paused, by idle", Uses: []holt.Use{{Kind: holt.UseHold, Detail: "waits", Since: ago, Until: &soon}}},
			[]string{"einstein is not awake: it is paused, by idle", "these will keep it awake:", "waits"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			a := &app{Streams: Streams{Out: &out}}
			c.why.Computer = "einstein"
			if err := a.printAwake(c.why); err != nil {
				t.Fatal(err)
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it lacks %q:\n%s", want, out.String())
				}
			}
		})
	}
}
