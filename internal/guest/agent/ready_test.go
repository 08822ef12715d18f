package agent

import (
	"strings"
	"testing"
)

// TestUnreadyState: units that are up or done are distinguished from those that are neither.
func TestUnreadyState(t *testing.T) {
	for _, c := range []struct{ load, active, sub, result, want string }{
		{"loaded", "active", "running", "success", ""},
		{"loaded", "active", "exited", "success", ""},
		{"loaded", "inactive", "dead", "success", ""},
		{"loaded", "active", "listening", "success", ""},
		{"loaded", "failed", "failed", "exit-code", "failed (failed)"},
		{"loaded", "activating", "auto-restart", "timeout", "activating (auto-restart)"},
		{"loaded", "activating", "start-post", "success", "activating (start-post)"},
		{"not-found", "inactive", "dead", "success", "not-found"},
		{"bad-setting", "inactive", "dead", "success", "bad-setting"},
	} {
		text := "Result=" + c.result + "\nLoadState=" + c.load + "\nActiveState=" + c.active + "\nSubState=" + c.sub
		if got := unreadyState(text); got != c.want {
			t.Errorf("%q: %q, want %q", text, got, c.want)
		}
	}
	if unreadyState("") == "" {
		t.Error("a unit of which nothing is shown is up")
	}
}

// TestVetReadiness: a guest's report is limited to the requested units, and in size.
func TestVetReadiness(t *testing.T) {
	asked := []string{"web.service"}
	said := Readiness{State: strings.Repeat("x", 1<<20), Unready: []Unit{
		{Name: "other.service", State: "failed"},
		{Name: "web.service", State: "\x1b[2J" + strings.Repeat("y", 1<<20), Log: strings.Repeat("line\x1b\n", 1<<16) + "the last"},
	}}
	for range 100 {
		said.Unready = append(said.Unready, Unit{Name: "web.service"})
	}
	r := vetReadiness(said, asked)
	if len(r.State) > maxWord || len(r.Unready) > mostUnready || len(r.Unready) == 0 {
		t.Fatalf("%d bytes, %d units", len(r.State), len(r.Unready))
	}
	u := r.Unready[0]
	if u.Name != "web.service" || len(u.State) > 3*maxWord || strings.Contains(u.State+u.Log, "\x1b") || !strings.HasSuffix(u.Log, "\nthe last") || strings.Count(u.Log, "\n") >= mostLines {
		t.Errorf("%.300q", u)
	}
	if r = vetReadiness(said, nil); len(r.Unready) > 0 {
		t.Errorf("of none: %d", len(r.Unready))
	}
}
