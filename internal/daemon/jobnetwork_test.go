package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"holt"
)

// TestJobsReach: a job reaches what it is given and nothing else: with egress off nothing at all, with a list what that names, and
// by default nothing of the host. The host secrets of another computer are in its requests, and not in it.
func TestJobsReach(t *testing.T) {
	port := hears(t)
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	y := newYard(t, v.dir, 1)
	ctx, far, other := t.Context(), listenDownload(t), listenDownload(t)
	says := func(spec holt.JobSpec) string {
		t.Helper()
		spec.MemoryMB = 512
		j, err := y.Jobs.Create(ctx, spec, "")
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		if err := y.Jobs.Follow(ctx, j.ID, 0, func(e holt.RunEvent) error { said.Write(e.Data); return nil }); err != nil {
			t.Fatal(err)
		}
		if j, err = y.Jobs.Get(ctx, j.ID); err != nil || j.State != holt.JobDone {
			t.Fatalf("%+v %v: %s", j, err, &said)
		}
		return said.String()
	}
	tries := func(policy *holt.NetworkPolicy, want map[string]string) {
		t.Helper()
		var each []string
		for at := range want {
			each = append(each, at)
		}
		said := says(holt.JobSpec{Network: policy, Run: holt.RunSpec{Argv: append(holt.OSStrings{"bash", "-c", `for at in "${@:2}"; do echo $at $(python3 -c "$1" try ${at%:*} ${at#*:}); done`, "tries", loading}, each...)}})
		for at, how := range want {
			if !strings.Contains(said, at+" "+how+" soon\n") {
				t.Errorf("under %+v to %s not %s: %s", policy, at, how, said)
			}
		}
	}
	at := func(d *download) string { return fmt.Sprintf("host.holt.internal:%d", d.port()) }
	tries(&holt.NetworkPolicy{Egress: holt.EgressOff, Allow: []string{at(far)}}, map[string]string{at(far): "refused", "192.0.2.1:80": "refused", "example.com:80": "no such name"})
	tries(&holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{at(far)}}, map[string]string{at(far): "connected 1", at(other): "refused", "192.0.2.1:80": "refused", "example.com:80": "no such name"})
	tries(nil, map[string]string{at(far): "refused", "127.0.0.1:80": "refused", "169.254.169.254:80": "refused"})
	if far.conns.Load() != 1 || other.conns.Load() != 0 {
		t.Errorf("the host was reached %d times at what is granted and %d times at what is not", far.conns.Load(), other.conns.Load())
	}
	if _, err := y.Jobs.Create(ctx, holt.JobSpec{Network: &holt.NetworkPolicy{Egress: "some"}, Run: holt.RunSpec{Command: "true"}}, ""); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("a policy that is none: %v", err)
	}

	if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "curie", MemoryMB: 512}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Secrets.Set(ctx, "curie", "api", holt.HostSecret{Host: "host.holt.internal:" + port, Value: apiSecret}); err != nil {
		t.Fatal(err)
	}
	ask := holt.JobSpec{SecretsOf: "curie", Network: &holt.NetworkPolicy{Egress: holt.EgressOpen, Allow: []string{"host.holt.internal:" + port}}, Run: holt.RunSpec{
		Command: holt.OSString(`python3 -c "import urllib.request; print(urllib.request.urlopen('https://host.holt.internal:` + port + `/').read().decode())"; env | grep -c hunter; cat /run/holt/* 2>/dev/null | grep -ac hunter; true`)}}
	if said := says(ask); strings.Join(strings.Fields(said), " ") != "has the first 0 0" {
		t.Errorf("a job with curie's secrets: %q", said)
	}
	v.remove("curie")
	if _, err := y.Jobs.Create(ctx, ask, ""); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("with the secrets of a computer that is gone: %v", err)
	}
	y.nothing()
	endAll(t, v.process)
}
