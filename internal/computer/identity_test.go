package computer

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/store/db"
)

// A guest that is not itself is noticed.
func TestIsItself(t *testing.T) {
	asked := time.Unix(1e9, 0)
	id := agent.Identity{Hostname: "einstein", MachineID: "aa", Now: asked}
	is := agent.Identified{
		Hostname: "einstein", MachineID: "aa", Now: asked.Add(time.Minute), Drawn: []byte{1},
		FormerKeys: []string{"a", "b"}, HostKeys: []string{"c", "d"},
	}
	if err := isItself(id, is, asked.Add(time.Minute)); err != nil {
		t.Error(err)
	}
	without := is
	without.FormerKeys, without.HostKeys = nil, nil
	if err := isItself(id, without, asked.Add(time.Minute)); err != nil {
		t.Errorf("without SSH: %v", err)
	}
	same := is // resumed in place, without new SSH host keys
	same.FormerKeys, same.HostKeys = nil, nil
	if err := isItself(agent.Identity{Hostname: "einstein", Now: asked}, same, asked.Add(time.Minute)); err != nil {
		t.Errorf("one that goes on as itself: %v", err)
	}
	for what, spoil := range map[string]func(*agent.Identified){
		"another host name":  func(is *agent.Identified) { is.Hostname = "curie" },
		"another machine id": func(is *agent.Identified) { is.MachineID = "" },
		"a late clock":       func(is *agent.Identified) { is.Now = asked.Add(-clockError - 1) },
		"an early clock":     func(is *agent.Identified) { is.Now = asked.Add(time.Minute + clockError + 1) },
		"no clock":           func(is *agent.Identified) { is.Now = time.Time{} },
		"nothing drawn":      func(is *agent.Identified) { is.Drawn = nil },
		"no SSH host key":    func(is *agent.Identified) { is.HostKeys = nil },
		"a former host key":  func(is *agent.Identified) { is.HostKeys = []string{"c", "b"} },
	} {
		other := is
		if spoil(&other); isItself(id, other, asked.Add(time.Minute)) == nil {
			t.Errorf("a guest with %s passes as itself: %+v", what, other)
		}
	}
}

// Whoever is being created gets SSH host keys of its own, also where it boots from an image that has
// some; one that boots again keeps them.
func TestKeysOfNewComputers(t *testing.T) {
	for _, tt := range []struct {
		state            holt.ComputerState
		disk             holt.DiskID
		kept             string
		keys, machineIDs bool
	}{
		{holt.ComputerCreating, "disk_a", "", true, false},
		{holt.ComputerCreating, "disk_a", "snapshot", false, true}, // keys come with it
		{holt.ComputerCreating, "", "", false, false},              // the host's own
		{holt.ComputerStarting, "disk_a", "", false, false},
	} {
		m := &transition{r: &record{Computer: holt.Computer{State: tt.state}, disk: tt.disk}, kept: tt.kept, live: &live{}}
		m.identify()
		if id := m.live.identity(); id.NewHostKeys != tt.keys || (id.MachineID != "") != tt.machineIDs {
			t.Errorf("%+v: %+v", tt, id)
		}
	}
}

// A guest that says what another one has said, or draws what it has drawn itself, is refused, and
// nothing that it says is written down.
func TestIdentify(t *testing.T) {
	_, d := openKeys(t)
	all := table{d: d}
	ids := map[string]holt.ComputerID{}
	for _, name := range []string{"bohr", "curie", "einstein"} {
		r := record{Computer: holt.Computer{ID: holt.NewComputerID(), Name: name, State: holt.ComputerRunning}, workspaceID: holt.NewWorkspaceID()}
		if err := all.insert(t.Context(), &r, nil, func(string) bool { return false }, nothingWith); err != nil {
			t.Fatal(err)
		}
		ids[name] = r.ID
	}
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	says := func(name string, drawn byte, keys ...string) error {
		is := agent.Identified{HostKeys: keys}
		if drawn != 0 {
			is.Drawn = bytes.Repeat([]byte{drawn}, 32)
		}
		return write(t.Context(), d, func(tx *db.Tx) error { return all.identify(tx, ids[name], is, log) })
	}
	for i, c := range []struct {
		name  string
		drawn byte
		keys  []string
		want  holt.Code
	}{
		{"bohr", 1, []string{"a", "b"}, ""},
		{"curie", 1, nil, holt.Conflict},                // its sibling has drawn that
		{"curie", 2, []string{"c", "b"}, holt.Conflict}, // and has that key
		{"curie", 2, []string{"c", "d"}, ""},            // which it was not noted for
		{"curie", 2, nil, holt.Conflict},                // it goes on again, and draws the same
		{"curie", 3, nil, ""},
		{"curie", 4, []string{"d", "d"}, ""}, // told twice, since the first answer was lost
		{"bohr", 5, []string{"c"}, ""},       // which is nobody's any more
		{"bohr", 6, nil, ""},
		{"einstein", 7, []string{"c"}, holt.Conflict}, // its keys stay noted while it keeps them
		{"einstein", 0, nil, ""},                      // it has no generator of its own
		{"bohr", 0, nil, ""},
		{"einstein", 6, nil, holt.Conflict},
	} {
		said.Reset()
		err := says(c.name, c.drawn, c.keys...)
		if holt.CodeOf(err) != c.want {
			t.Errorf("%d: %s: %v, not %q", i, c.name, err, c.want)
		}
		if err != nil && (err.Error() != "its identity is not fresh" || !strings.Contains(said.String(), " of=cmp_")) {
			t.Errorf("%d: the caller is told %q, the log %q", i, err, said.String())
		}
	}
	if err := all.erase(t.Context(), ids["bohr"]); err != nil {
		t.Fatal(err)
	}
	if err := says("einstein", 6, "c"); err != nil {
		t.Errorf("what a computer said that is gone: %v", err)
	}
}
