package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
)

// fakeHost returns a host with these files, below a directory.
func fakeHost(t *testing.T, files map[string]string) host {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return host{root: root, look: func(string) (string, error) { return "/bin/true", nil }, arch: "amd64"}
}

const intel = "processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu vmx sse\n\nprocessor\t: 1\nmodel name\t: Xeon\nflags\t\t: fpu vmx sse\n"

func TestProcessor(t *testing.T) {
	for _, c := range []struct {
		name, info string
		want       holt.Verdict
		found      string
	}{
		{"intel", intel, holt.VerdictOK, "2 × Xeon, vmx"},
		{"no virtualisation", strings.ReplaceAll(intel, "vmx", "mmx"), holt.VerdictWarn, "2 × Xeon, without hardware virtualisation"},
		{"a word that contains it", strings.ReplaceAll(intel, "vmx", "svmx"), holt.VerdictWarn, "2 × Xeon, without hardware virtualisation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fakeHost(t, map[string]string{"proc/cpuinfo": c.info}).processor(t.Context(), Options{})
			if f.Verdict != c.want || f.Found != c.found {
				t.Errorf("got %+v", f)
			}
		})
	}
	h := fakeHost(t, nil)
	h.arch = "arm64"
	if f := h.processor(t.Context(), Options{}); f.Verdict != holt.VerdictBad {
		t.Errorf("arm64: got %+v", f)
	}
}

func TestKVM(t *testing.T) {
	probe := func(p Probe, err error) Options {
		return Options{Probe: func(context.Context) (Probe, error) { return p, err }}
	}
	with := map[string]string{"dev/kvm": "", "proc/cpuinfo": intel}
	for _, c := range []struct {
		name  string
		files map[string]string
		opt   Options
		want  holt.Verdict
	}{
		{"absent", nil, probe(Probe{KVM: true}, nil), holt.VerdictWarn},
		{"device and flags, no probe", with, Options{}, holt.VerdictOK},
		{"device without flags", map[string]string{"dev/kvm": "", "proc/cpuinfo": "flags: fpu"}, Options{}, holt.VerdictWarn},
		{"booted", with, probe(Probe{KVM: true, Reason: "it booted"}, nil), holt.VerdictOK},
		{"does not boot", with, probe(Probe{Reason: "it hung"}, nil), holt.VerdictWarn},
		{"probe fails", with, probe(Probe{}, errors.New("no")), holt.VerdictWarn},
	} {
		t.Run(c.name, func(t *testing.T) {
			if f := fakeHost(t, c.files).kvm(t.Context(), c.opt); f.Verdict != c.want {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// TestSandboxesInsteadOfKVM: where there is no KVM and gVisor works, nothing is wrong, and QEMU is not asked for; unless it is wanted.
func TestSandboxesInsteadOfKVM(t *testing.T) {
	works, fails := func() error { return nil }, func() error {
		return holt.Errorf(holt.Unsupported, "there is no /dev/fuse").WithHint("load it")
	}
	lacks := func() error {
		err := holt.Errorf(holt.Unsupported, "mkfs.ext4 is not installed")
		err.Detail = map[string]any{"install": []string{"e2fsprogs"}}
		return err
	}
	with := map[string]string{"dev/kvm": "", "proc/cpuinfo": intel}
	without := map[string]string{"proc/cpuinfo": strings.ReplaceAll(intel, "vmx", "mmx")}
	type verdicts [4]holt.Verdict // processor, kvm, qemu, gvisor
	const fine, poor, bad = holt.VerdictOK, holt.VerdictWarn, holt.VerdictBad
	for _, c := range []struct {
		name, engine string
		files        map[string]string
		gvisor       func() error
		want         verdicts
	}{
		{"neither", "auto", without, fails, verdicts{poor, poor, bad, poor}},
		{"gvisor", "auto", without, works, verdicts{fine, fine, fine, fine}},
		{"gvisor, and nothing is asked for", "", without, works, verdicts{fine, fine, fine, fine}},
		{"gvisor, qemu is asked for", "qemu", without, works, verdicts{poor, poor, bad, fine}},
		{"gvisor, but for a package", "auto", without, lacks, verdicts{fine, fine, fine, bad}},
		{"gvisor is asked for", "gvisor", without, fails, verdicts{poor, poor, fine, bad}},
		{"kvm", "auto", with, fails, verdicts{fine, fine, bad, fine}},
		{"both", "auto", with, works, verdicts{fine, fine, bad, fine}},
		{"both, gvisor is asked for", "gvisor", with, works, verdicts{fine, fine, fine, fine}},
		{"local", "local", without, works, verdicts{poor, poor, fine, fine}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, opt := fakeHost(t, c.files), Options{Engine: c.engine, GVisor: c.gvisor}
			h.look = func(string) (string, error) { return "", os.ErrNotExist } // QEMU
			found := []holt.Finding{h.processor(t.Context(), opt), h.kvm(t.Context(), opt), h.qemu(t.Context(), opt), h.gvisor(t.Context(), opt)}
			for i, f := range found {
				if f.Verdict != c.want[i] || f.Verdict == fine && len(f.Install) > 0 || f.Found == "" ||
					i == 3 && f.Verdict == bad && c.name != "gvisor is asked for" && !slices.Equal(f.Install, []string{"e2fsprogs"}) {
					t.Errorf("%d: %+v, want %s", i, f, c.want[i])
				}
			}
		})
	}
}

func TestQEMUVersion(t *testing.T) {
	for out, want := range map[string]int{
		"QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright": 7,
		"QEMU emulator version 10.0.2":                                  10,
		"QEMU emulator version x":                                       0,
		"":                                                              0,
	} {
		if _, got := parseQEMUVersion(out); got != want {
			t.Errorf("%q: major %d, want %d", out, got, want)
		}
	}
}

func TestMissingProgramsNamePackages(t *testing.T) {
	h := fakeHost(t, map[string]string{"dev/fuse": ""})
	h.look = func(string) (string, error) { return "", os.ErrNotExist }
	if f := h.qemu(t.Context(), Options{}); f.Verdict != holt.VerdictBad || !slices.Contains(f.Install, "qemu-system-x86") {
		t.Errorf("qemu: %+v", f)
	}
	if f := h.imageTools(t.Context(), Options{}); f.Verdict != holt.VerdictBad || !slices.Contains(f.Install, "mmdebstrap") {
		t.Errorf("image tools: %+v", f)
	}
	if f := h.fuse(t.Context(), Options{}); f.Verdict != holt.VerdictWarn || !slices.Contains(f.Install, "fuse3") {
		t.Errorf("fuse as root: %+v", f)
	}
	h.uid = 1000
	if f := h.fuse(t.Context(), Options{}); f.Verdict != holt.VerdictBad {
		t.Errorf("fuse as a user: %+v", f)
	}
	if f := fakeHost(t, nil).fuse(t.Context(), Options{}); f.Verdict != holt.VerdictBad {
		t.Errorf("no device: %+v", f)
	}
}

func TestMemory(t *testing.T) {
	for text, want := range map[string]holt.Verdict{
		"MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n": holt.VerdictOK,
		"MemTotal: 16000000 kB\nMemAvailable: 2000000 kB\n": holt.VerdictWarn,
		"MemTotal: 16000000 kB\nMemAvailable: 100000 kB\n":  holt.VerdictBad,
		"nonsense": holt.VerdictBad,
	} {
		if f := fakeHost(t, map[string]string{"proc/meminfo": text}).memory(t.Context(), Options{}); f.Verdict != want {
			t.Errorf("%q: got %+v", text, f)
		}
	}
}

func TestSocket(t *testing.T) {
	h := fakeHost(t, nil)
	dir, err := os.MkdirTemp("", "holt") // shorter than t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if f := h.socket(t.Context(), Options{DataDir: dir}); f.Verdict != holt.VerdictOK || !strings.HasPrefix(f.Found, "free") {
		t.Errorf("absent: %+v", f)
	}
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	if f := h.socket(t.Context(), Options{DataDir: dir}); f.Verdict != holt.VerdictOK || !strings.HasPrefix(f.Found, "a daemon answers") {
		t.Errorf("answered: %+v", f)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if f := h.socket(t.Context(), Options{DataDir: dir}); f.Verdict != holt.VerdictOK || !strings.Contains(f.Found, "left by a killed daemon") {
		t.Errorf("left behind: %+v", f)
	}
	if f := h.socket(t.Context(), Options{DataDir: "/" + strings.Repeat("x", 120)}); f.Verdict != holt.VerdictBad {
		t.Errorf("too long: %+v", f)
	}
}

func TestPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h, at := fakeHost(t, nil), l.Addr().String()
	if f := h.port(t.Context(), Options{Listen: at}); f.Verdict != holt.VerdictBad || !strings.Contains(f.Found, "taken") || f.Do == "" {
		t.Errorf("taken: %+v", f)
	}
	l.Close()
	if f := h.port(t.Context(), Options{Listen: "127.0.0.1:0"}); f.Verdict != holt.VerdictOK {
		t.Errorf("free: %+v", f)
	}
	for _, none := range []string{"nowhere", "127.0.0.1:99999", "192.0.2.1:1"} { // the last is TEST-NET-1 of RFC 5737
		if f := h.port(t.Context(), Options{Listen: none}); f.Verdict != holt.VerdictBad || f.Do == "" {
			t.Errorf("%s: %+v", none, f)
		}
	}
}

func TestMachines(t *testing.T) {
	h := fakeHost(t, nil)
	strays := func(list []Stray, err error) Options {
		return Options{DataDir: "/d", Strays: func(string) ([]Stray, error) { return list, err }}
	}
	if f := h.machines(t.Context(), strays(nil, nil)); f.Verdict != holt.VerdictOK {
		t.Errorf("none: %+v", f)
	}
	f := h.machines(t.Context(), strays([]Stray{{PID: 7}, {PID: 8}}, nil))
	if f.Verdict != holt.VerdictWarn || f.Do != "end them: kill 7 8" {
		t.Errorf("two: %+v", f)
	}
	if f := h.machines(t.Context(), strays(nil, errors.New("no"))); f.Verdict != holt.VerdictWarn {
		t.Errorf("error: %+v", f)
	}
}

func TestMounts(t *testing.T) {
	const info = `22 1 254:0 / / rw - ext4 /dev/vda rw
40 22 0:40 / /mnt/a\040b rw,nosuid - fuse.holt holt rw
41 22 0:41 / /mnt/sshfs rw - fuse.sshfs me@host rw
42 22 0:42 / /nowhere/at/all rw - fuse holt-wsp_x rw
short line
`
	if got := holtMounts(info); !slices.Equal(got, []string{"/mnt/a b", "/nowhere/at/all"}) {
		t.Errorf("holtMounts: %q", got)
	}
	f := fakeHost(t, map[string]string{"proc/self/mountinfo": info}).mounts(t.Context(), Options{})
	if f.Verdict != holt.VerdictWarn || !strings.Contains(f.Do, "/nowhere/at/all") {
		t.Errorf("got %+v", f)
	}
	for _, c := range []struct {
		again   []string
		verdict holt.Verdict
	}{{[]string{"/nowhere/at/all", "/mnt/a b"}, holt.VerdictOK}, {[]string{"/mnt/a b"}, holt.VerdictWarn}} {
		f := fakeHost(t, map[string]string{"proc/self/mountinfo": info}).mounts(t.Context(), Options{Mounts: c.again})
		if f.Verdict != c.verdict || strings.Contains(f.Do, "/mnt/a b") {
			t.Errorf("where the daemon mounts %q again: %+v", c.again, f)
		}
	}
}

func TestLimits(t *testing.T) {
	h := fakeHost(t, nil)
	f := h.limits(t.Context(), Options{Bounds: func() (string, error) { return "all of it", nil }})
	if f.Verdict != holt.VerdictOK || f.Found != "all of it" {
		t.Errorf("bounded: %+v", f)
	}
	f = h.limits(t.Context(), Options{Bounds: func() (string, error) {
		return "", holt.Errorf(holt.Unsupported, "it cannot be").WithHint("do this")
	}})
	if f.Verdict != holt.VerdictWarn || f.Found != "it cannot be" || f.Do != "do this" {
		t.Errorf("not bounded: %+v", f)
	}
}

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	f := fakeHost(t, nil).disk(t.Context(), Options{DataDir: filepath.Join(dir, "not/there/yet"), ImageDir: dir})
	if !strings.Contains(f.Found, "free at "+dir) || strings.Contains(f.Found, ";") {
		t.Errorf("got %+v", f)
	}
}

// TestStuckCheck: a check that never returns affects only its own
// finding.
func TestStuckCheck(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	findings := runChecks(t.Context(), Options{}, []check{
		{"stuck", time.Millisecond, func(context.Context, Options) holt.Finding { <-stuck; return ok("") }},
		{"fine", time.Minute, func(context.Context, Options) holt.Finding { return ok("yes") }},
	})
	if findings[0].Verdict != holt.VerdictWarn || !strings.Contains(findings[0].Found, "did not return") {
		t.Errorf("stuck: %+v", findings[0])
	}
	if findings[1].Found != "yes" || findings[1].Name != "fine" {
		t.Errorf("fine: %+v", findings[1])
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	findings = runChecks(ctx, Options{}, []check{
		{"stuck", time.Hour, func(context.Context, Options) holt.Finding { <-stuck; return ok("") }},
	})
	if findings[0].Verdict != holt.VerdictWarn {
		t.Errorf("cancelled: %+v", findings[0])
	}
}

// TestExamineThisHost runs the real checks.
func TestExamineThisHost(t *testing.T) {
	findings := Examine(t.Context(), Options{DataDir: t.TempDir()})
	var names []string
	for _, f := range findings {
		names = append(names, f.Name)
		if f.Verdict == "" || f.Found == "" {
			t.Errorf("empty finding %+v", f)
		}
		if f.Verdict == holt.VerdictBad && f.Do == "" {
			t.Errorf("%+v does not say what to do", f)
		}
	}
	want := []string{"processor", "kvm", "qemu", "gvisor", "image tools", "fuse", "user", "jail", "memory", "limits", "names", "ping", "disk", "socket", "machines", "mounts"}
	if !slices.Equal(names, want) {
		t.Errorf("checks: %q", names)
	}
}

func TestInstallRefuses(t *testing.T) {
	err := Install(t.Context(), []string{"--allow-downgrades"}, nil)
	if holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("an option: %v", err)
	}
	if err := Install(t.Context(), nil, nil); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

func TestAptError(t *testing.T) {
	for printed, want := range map[string]holt.Code{
		"E: Unable to locate package nope":                         holt.NotFound,
		"E: Failed to fetch x  Could not resolve 'y'":              holt.Unavailable,
		"E: You don't have enough free space in /var/cache":        holt.OutOfSpace,
		"E: Could not get lock /var/lib/dpkg/lock-frontend.":       holt.Conflict,
		"E: Sub-process /usr/bin/dpkg returned an error code (1)":  holt.Internal,
		"dpkg: write error: No space left on device\nE: something": holt.OutOfSpace,
	} {
		if err := aptError([]string{"install"}, printed, errors.New("exit status 100")); holt.CodeOf(err) != want {
			t.Errorf("%q: %v", printed, holt.CodeOf(err))
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add("pmstatus:fuse3:42.5:Unpacking fuse3 (amd64)")
	f.Add("dlstatus:1:NaN:Retrieving")
	f.Fuzz(func(t *testing.T, line string) {
		if _, percent, ok := parseStatus(line); ok && !(percent >= 0 && percent <= 100) {
			t.Errorf("%q: %v percent", line, percent)
		}
	})
}

func FuzzHoltMounts(f *testing.F) {
	f.Add("40 22 0:40 / /mnt/a rw - fuse.holt holt rw\n")
	f.Fuzz(func(t *testing.T, info string) { holtMounts(info) })
}
