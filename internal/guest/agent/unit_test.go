package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// TestUnit: a service survives encoding as a unit; other units are not services.
func TestUnit(t *testing.T) {
	spec, err := holt.ServiceSpec{
		Name: "web", Command: `echo "100%" $HOME '\n'`, Env: map[holt.OSString]holt.OSString{"A": `b "c" %d`}, Ready: holt.ServiceReady{Command: "test -e 'x y'"}, RestartInFork: true,
	}.Normal()
	if err != nil {
		t.Fatal(err)
	}
	text, err := unitText(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`ExecStart=/usr/bin/env "A=b \"c\" %%d" /bin/bash -c "echo \"100%%\" $$HOME '\\n'"`, // counts more than EnvironmentFile=, as Environment= does not
		"User=agent", "WorkingDirectory=/home/agent", "Restart=on-failure", "TimeoutStartSec=60", "PartOf=holt-fork.target", "Before=holt-fork.target",
		`ExecStartPost=/usr/bin/env "A=b \"c\" %%d" /bin/bash -c "until /bin/sh -c 'test -e '\\''x y'\\''' >/dev/null 2>&1; do [ -d /proc/$$MAINPID ] || exit 1; sleep 0.2; done"`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("%s is not in\n%s", line, text)
		}
	}
	got, ok := readUnit(unitDir+"/web.service", text)
	spec.Env = nil
	if d := cmp.Diff(holt.Service{Name: "web", Spec: spec}, got); d != "" || !ok {
		t.Error(ok, d)
	}
	if _, ok := readUnit(unitDir+"/other.service", text); ok {
		t.Error("a unit under another name is a service")
	}
	if _, ok := readUnit(unitDir+"/ssh.service", "[Unit]\nDescription=OpenBSD Secure Shell server\n"); ok {
		t.Error("a unit of the system is a service")
	}
	template := "[Unit]\nDescription=db, of the template\n\n[Service]\nExecStart=/usr/bin/env \"A=/bin/sh -c \\\"x\\\"\" /bin/sh -c \"run \\\"$$X\\\" 5%%\"\nRestart=always\n"
	got, ok = readUnit(unitDir+"/db.service", template)
	want := holt.Service{Name: "db", Template: true, Spec: holt.ServiceSpec{Name: "db", Command: `run "$X" 5%`, User: "root", Restart: holt.RestartAlways}}
	if d := cmp.Diff(want, got); d != "" || !ok {
		t.Error(ok, d)
	}
}

func TestShowService(t *testing.T) {
	for text, want := range map[string]holt.Service{
		"ActiveState=active\nSubState=running\nResult=success\nMainPID=7\nNRestarts=2\nUnitFileState=enabled":          {State: holt.ServiceRunning, PID: 7, Restarts: 2, Wanted: true},
		"ActiveState=activating\nSubState=start-post\nResult=success":                                                  {State: holt.ServiceStarting},
		"ActiveState=activating\nSubState=auto-restart\nResult=exit-code\nExecMainCode=1\nExecMainStatus=3":            {State: holt.ServiceRestarting, ExitCode: 3, Reason: "exit-code"},
		"ActiveState=failed\nSubState=failed\nResult=signal\nExecMainCode=2\nExecMainStatus=9\nUnitFileState=disabled": {State: holt.ServiceFailed, ExitCode: 137, Signal: "SIGKILL", Reason: "signal"},
		"ActiveState=inactive\nSubState=dead\nResult=success\nMainPID=x\nStateChangeTimestamp=":                        {State: holt.ServiceStopped},
	} {
		var got holt.Service
		showService(&got, text)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}

// TestHostileService: a guest's description of a service is sanitised or refused.
func TestHostileService(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for _, s := range []holt.Service{
		{Name: "../x", State: holt.ServiceRunning}, {Name: "web", State: "odd"}, {Name: "web", State: holt.ServiceFailed, Signal: "\x1b"},
	} {
		if _, err := vetService(s); holt.CodeOf(err) != holt.Corrupt {
			t.Errorf("%+v: %v", s, err)
		}
	}
	s, err := vetService(holt.Service{
		Name: "web", State: holt.ServiceFailed, Reason: "a\x1b" + long, PID: -1, Restarts: -1, ExitCode: 1 << 20,
		Spec: holt.ServiceSpec{Name: "other", Command: holt.OSString(long), User: long, Cwd: holt.OSString(long), Env: map[holt.OSString]holt.OSString{"A": "b"}, Ready: holt.ServiceReady{Port: 1 << 20, Command: holt.OSString(long)}},
	})
	if err != nil || s.Spec.Name != "web" || len(s.Reason) > maxWord+2 || s.PID != 0 || s.Restarts != 0 || s.ExitCode != 255 || len(s.Spec.Command) != maxTold || len(s.Spec.User) != maxWord ||
		len(s.Spec.Cwd) != maxTarget || s.Spec.Env != nil || s.Spec.Ready.Port != 65535 || len(s.Spec.Ready.Command) != maxTold {
		t.Errorf("%+.200v %v", s, err)
	}
}
