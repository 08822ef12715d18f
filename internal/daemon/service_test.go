package daemon_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"holt"
)

// servicePy listens at a port, and says who it is; it writes a file each time that it begins.
const servicePy = `
import http.server, os
open("/home/agent/begun", "a").write("x")
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write((open("/etc/hostname").read().strip() + " " + os.environ["GREETING"]).encode())
        if self.path == "/die": os._exit(7)
    def log_message(self, *args): pass
print("serving", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), H).serve_forever()
`

// isService waits until a service is as it should be.
func (v *vm) isService(computer, name string, is func(holt.Service) bool) holt.Service {
	v.t.Helper()
	end := time.Now().Add(patience)
	for {
		s, err := v.Services.Get(v.t.Context(), computer, name)
		if err == nil && is(s) {
			return s
		}
		if time.Now().After(end) || holt.CodeOf(err) == holt.Unsupported { // also just after a start
			v.t.Fatalf("%s of %s: %+v %v", name, computer, s, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func runs(s holt.Service) bool { return s.State == holt.ServiceRunning }

// TestServices: a service is ready when its port listens, is started again when it fails, goes on through pause and
// in a fork, is there after a cold start, and is the writer of what it writes. One that was stopped stays so.
func TestServices(t *testing.T) {
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx := t.Context()
	if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein", MemoryMB: 512}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Files.Write(ctx, "einstein", "/home/agent/web.py", holt.WriteSpec{}, strings.NewReader(servicePy)); err != nil {
		t.Fatal(err)
	}
	spec := holt.ServiceSpec{Name: "web", Command: "exec python3 web.py", Env: map[holt.OSString]holt.OSString{"GREETING": `it's 100% "$HOME"`}, Ready: holt.ServiceReady{Port: 8000}}
	for range 2 { // the second changes nothing
		if _, err := v.Services.Add(ctx, "einstein", spec, ""); err != nil {
			t.Fatal(err)
		}
	}
	began := v.isService("einstein", "web", runs)
	if began.PID == 0 || began.Since == nil || !began.Wanted || began.Spec.Env != nil || began.Spec.Command != spec.Command || began.Spec.User != "agent" {
		t.Errorf("%+v", began)
	}
	answers := func(computer string) {
		t.Helper()
		if got, want := string(v.fetch(computer, "/")), computer+` it's 100% "$HOME"`; got != want {
			t.Errorf("it answers %q, want %q", got, want)
		}
	}
	answers("einstein")
	v.serviceErrors(spec)
	v.serviceWrites()

	v.fetch("einstein", "/die")
	died := v.isService("einstein", "web", func(s holt.Service) bool { return runs(s) && s.PID != began.PID })
	if died.Restarts != 1 {
		t.Errorf("after its end: %+v", died)
	}
	answers("einstein")
	if _, err := v.Computers.Pause(ctx, "einstein", ""); err != nil {
		t.Fatal(err)
	}
	answers("einstein") // it wakes
	if s := v.isService("einstein", "web", runs); s.PID != died.PID {
		t.Errorf("after the pause: %+v", s)
	}
	if _, err := v.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "bohr"}, ""); err != nil {
		t.Fatal(err)
	}
	answers("bohr")
	answers("einstein")
	if s := v.isService("bohr", "web", runs); s.PID != died.PID {
		t.Errorf("in the fork: %+v", s)
	}
	if _, err := v.Services.Do(ctx, "bohr", "web", "stop", ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"einstein", "bohr"} {
		if _, err := v.Computers.Stop(ctx, name, ""); err != nil {
			t.Fatal(err)
		}
	}
	v.isService("einstein", "web", runs) // a cold start
	answers("einstein")
	if s := v.isService("bohr", "web", func(holt.Service) bool { return true }); s.State != holt.ServiceStopped || s.Wanted {
		t.Errorf("stopped, after a cold start: %+v", s)
	}
	if _, err := v.Services.Do(ctx, "einstein", "web", "delete", ""); err != nil {
		t.Fatal(err)
	}
	if list, err := v.Services.List(ctx, "einstein"); err != nil || len(list) != 0 {
		t.Errorf("after the delete: %+v %v", list, err)
	}
	for _, name := range []string{"einstein", "bohr"} {
		if _, err := v.Computers.Delete(ctx, name, ""); err != nil {
			t.Error(err)
		}
	}
}

// serviceErrors asks for what cannot be.
func (v *vm) serviceErrors(there holt.ServiceSpec) {
	v.t.Helper()
	ctx := v.t.Context()
	other, user, dir, unit := there, there, there, there
	other.Command = "true"
	user.Name, user.User = "other", "nobody-such"
	dir.Name, dir.Cwd = "other", "/no/such"
	unit.Name = "systemd-journald"
	for _, c := range []struct {
		spec holt.ServiceSpec
		code holt.Code
	}{{other, holt.AlreadyExists}, {user, holt.NotFound}, {dir, holt.NotFound}, {unit, holt.AlreadyExists}} {
		_, err := v.Services.Add(ctx, "einstein", c.spec, "")
		wantCode(v.t, err, c.code)
	}
	_, err := v.Services.Do(ctx, "einstein", "none", "restart", "")
	wantCode(v.t, err, holt.NotFound)
	slow := there
	slow.Name, slow.Command, slow.Restart, slow.Ready = "slow", "echo never; sleep 1000", holt.RestartNo, holt.ServiceReady{Command: "false", Seconds: 2}
	if _, err := v.Services.Add(ctx, "einstein", slow, ""); err != nil {
		v.t.Fatal(err)
	}
	s := v.isService("einstein", "slow", func(s holt.Service) bool { return s.State == holt.ServiceFailed })
	if s.Reason != "timeout" {
		v.t.Errorf("never ready: %+v", s)
	}
	if _, err := v.Services.Do(ctx, "einstein", "slow", "delete", ""); err != nil {
		v.t.Error(err)
	}
}

// serviceWrites looks at what the service has written: a file, and its log.
func (v *vm) serviceWrites() {
	v.t.Helper()
	ctx := v.t.Context()
	by, err := v.History.Blame(ctx, "einstein", "/begun")
	if err != nil || by.Kind != "service" || by.Name != "web" {
		v.t.Errorf("its file is by %+v, %v", by, err)
	}
	var log bytes.Buffer
	if err := v.Services.Logs(ctx, "einstein", "web", holt.ServiceLogQuery{Lines: 10}, &log); err != nil || !strings.Contains(log.String(), "serving") {
		v.t.Errorf("its log: %q, %v", log.String(), err)
	}
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- v.Services.Logs(following, "einstein", "web", holt.ServiceLogQuery{Lines: 10, Follow: true}, w)
		w.Close()
	}()
	buf := make([]byte, 4096)
	if n, err := r.Read(buf); err != nil || n == 0 {
		v.t.Errorf("followed: %v", err)
	}
	go io.Copy(io.Discard, r)
	cancel()
	<-done
}

// TestServicesNeedSystemd: a computer without systemd says so.
func TestServicesNeedSystemd(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	services := d.Computers().Services()
	_, err := services.Add(t.Context(), "curie", holt.ServiceSpec{Name: "web", Command: "true"}, "")
	wantCode(t, err, holt.Unsupported)
	_, err = services.List(t.Context(), "curie")
	wantCode(t, err, holt.Unsupported)
	_, err = services.Add(t.Context(), "curie", holt.ServiceSpec{Name: "web"}, "")
	wantCode(t, err, holt.InvalidArgument)
}
