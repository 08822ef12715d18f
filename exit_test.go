package holt

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestNoExitStatusBeforeTheEnd: a program that goes on has none in JSON, and what is read again is what was written.
func TestNoExitStatusBeforeTheEnd(t *testing.T) {
	now := time.Now().UTC()
	for _, c := range []struct {
		v    any
		want string
	}{
		{Run{State: RunRunning}, "null"},
		{Run{State: RunLost}, "null"},
		{Run{State: RunExited, EndedAt: &now}, "0"},
		{Run{State: RunExited, ExitCode: 7}, "7"},
		{Terminal{State: TerminalRunning}, "null"},
		{Terminal{State: TerminalLost}, "null"},
		{Terminal{State: TerminalExited}, "0"},
		{Job{State: JobQueued}, "null"},
		{Job{State: JobRunning}, "null"},
		{Job{State: JobCollecting}, "0"},
		{Job{State: JobCollecting, ExitCode: 3}, "3"},
		{Job{State: JobCollecting, Error: Errorf(Timeout, "it took too long")}, "null"},
		{Job{State: JobDone}, "0"},
		{Job{State: JobFailed, ExitCode: 3}, "3"},
		{Job{State: JobFailed, Error: Errorf(Timeout, "it took too long")}, "null"},
		{Job{State: JobCancelled}, "null"},
		{Firing{State: FiringQueued}, "null"},
		{Firing{State: FiringRunning}, "null"},
		{Firing{State: FiringSkipped}, "null"},
		{Firing{State: FiringExited}, "0"},
	} {
		b, err := json.Marshal(c.v)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(b); strings.Count(got, `"exit_code"`) != 1 || !strings.Contains(got, `"exit_code":`+c.want) || !strings.Contains(got, `"state":"`) {
			t.Errorf("%+v: %s", c.v, got)
		}
		again := reflect.New(reflect.TypeOf(c.v))
		if err := json.Unmarshal(b, again.Interface()); err != nil {
			t.Error(err)
		}
		if twice, err := json.Marshal(again.Interface()); err != nil || string(twice) != string(b) {
			t.Errorf("%s became %s, %v", b, twice, err)
		}
	}
}
