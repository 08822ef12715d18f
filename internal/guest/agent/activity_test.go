package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"holt"
)

func TestBusyTicks(t *testing.T) {
	for line, want := range map[string]int64{
		"cpu  10 20 30 4000 500 6 7 800 9 9\n": 10 + 20 + 30 + 6 + 7,
		"cpu":                                  0,
		"cpu x y z":                            0,
	} {
		if got := busyTicks(line); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}

func TestInterfaceBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dev")
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0
  eth0: 300 3 0 0 0 0 0 0 40 1 0 0 0 0 0 0
  docker0:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := interfaceBytes(path); got != 351 {
		t.Error(got)
	}
	if got := interfaceBytes(path + "-none"); got != 0 {
		t.Error(got)
	}
}

// TestTopScan: a scan names the process that used most since the last one; the first scan is empty.
func TestTopScan(t *testing.T) {
	var scan topScan
	if top := scan.scan(); top != nil {
		t.Errorf("the first scan: %+v", top)
	}
	spin := exec.Command("sh", "-c", "while :; do :; done")
	if err := spin.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { spin.Process.Kill(); spin.Wait() }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		for _, p := range scan.scan() {
			if p.PID == spin.Process.Pid && p.CPUMS > 0 && p.Command == "sh -c while :; do :; done" {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatal("the one that spins is not named")
		}
	}
}

// TestActivityOfRun: the processes that an ended run left are a group.
func TestActivityOfRun(t *testing.T) {
	c := startGuest(t).client(t)
	id := holt.NewRunID()
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: "(while :; do :; done) >/dev/null 2>&1 &", User: "root", Cwd: "/"}); err != nil {
		t.Fatal(err)
	}
	defer c.SignalRun(t.Context(), id, "KILL")
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		a, err := c.Activity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Groups) == 1 && a.Groups[0].ID == string(id) && a.Groups[0].Processes > 0 && a.Groups[0].CPUMS > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", a)
		}
	}
}

// TestHostileActivity: a guest's activity is sanitised.
func TestHostileActivity(t *testing.T) {
	told := Activity{CPUMS: -1, NetBytes: -2}
	told.Groups = []GroupActivity{{ID: strings.Repeat("x", 300), CPUMS: -1, Processes: -1}}
	for range mostActive + 10 {
		told.Groups = append(told.Groups, GroupActivity{ID: "x"})
	}
	for range 10 {
		told.Top = append(told.Top, ProcessActivity{Command: strings.Repeat("\x1b", 1000)})
	}
	c := hostile(t, eachStream(func(st *yamux.Stream) {
		defer st.Close()
		var q request
		if readMessage(st, &q) == nil {
			writeAnswer(st, told, nil)
		}
	}))
	a, err := c.Activity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a.CPUMS < 0 || a.NetBytes < 0 || len(a.Groups) > mostActive || len(a.Groups[0].ID) > maxWord || a.Groups[0].CPUMS < 0 || len(a.Top) > mostTop || len(a.Top[0].Command) > 4*maxTopCommand {
		t.Errorf("%d groups, the first %+v, %+v", len(a.Groups), a.Groups[0], a.Top)
	}
}
