package qemu

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

func TestJudge(t *testing.T) {
	const bare, nested, guest = "flags : fpu vmx sse\n", "flags\t: fpu svm hypervisor\n", "flags : fpu hypervisor\n"
	for _, c := range []struct {
		cpuinfo string
		device  error
		want    string // a part of the sentence; "" if KVM may work
	}{
		{"processor : 0\n" + bare, nil, ""},
		{nested, nil, ""},
		{guest, nil, "proves nothing"},
		{guest, fs.ErrNotExist, "itself a virtual machine"},
		{"flags : fpu\n", nil, "firmware"},
		{"flags : fpu\nflags : vmx\n", nil, "firmware"}, // the first processor counts
		{"model name : vmx\n", nil, "no virtualisation"},
		{bare, fs.ErrNotExist, "not loaded"},
		{bare, &fs.PathError{Op: "open", Err: unix.EACCES}, "group kvm"},
		{bare, unix.EBUSY, "cannot be opened"},
		{"", nil, "no virtualisation"},
	} {
		got := judge([]byte(c.cpuinfo), c.device)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q, %v: %q, want %q", c.cpuinfo, c.device, got, c.want)
		}
	}
}

func TestPickMachine(t *testing.T) {
	for help, want := range map[string]string{
		"Supported machines are:\nq35   (alias of pc-q35-9.0)\npc-q35-9.0   x\npc-q35-7.2   x\n": "pc-q35-7.2",
		"pc-q35-10.1 x\npc-q35-9.2 x\npc-q35-7.2.1 x\n":                                          "pc-q35-10.1",
		"pc-i440fx-7.2 x\nmicrovm x\n":                                                           "",
		"pc-q35-noble Ubuntu's\npc-q35-8.2 x\npc-q35-noble-maxcpus x\npc-q35-6.2 (deprecated)\n": "pc-q35-8.2",
	} {
		if got := pickMachine(help); got != want {
			t.Errorf("%q: %q, want %q", help, got, want)
		}
	}
}

// installed returns the host's QEMU, and fails the test if there is none.
func installed(t *testing.T) Verdict {
	t.Helper()
	v, err := inspect(t.Context(), "")
	if err != nil {
		t.Fatalf("%v; %s", err, holt.AsError(err).Hint)
	}
	return v
}

func TestBootProbe(t *testing.T) {
	v := installed(t)
	// Software emulation always works, so this tests the boot program.
	if err := bootProbe(t.Context(), v.Binary, machine.AccelTCG); err != nil {
		t.Error(err)
	}
	if err := bootProbe(t.Context(), v.Binary, "nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an acceleration that does not exist: %v", err)
	}
}

// fake writes a program to run in place of QEMU.
func fake(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBootProbeHangs(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	hangs := fake(t, `trap '' TERM INT; echo $$ > `+pid+`; exec sleep infinity`)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err := bootProbe(ctx, hangs, machine.AccelKVM)
	if err == nil || !strings.Contains(err.Error(), "not done") {
		t.Errorf("a boot that hangs: %v", err)
	}
	b, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(b))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("process %s lives on: %v", b, err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := bootProbe(ctx, hangs, machine.AccelKVM); err == nil {
		t.Error("a cancelled probe succeeded")
	}
}

func TestProbe(t *testing.T) {
	installed(t)
	opt := Options{CacheDir: t.TempDir()}
	v, err := Probe(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", v)
	if v.Reason == "" || v.Version == "" || !strings.HasPrefix(v.MachineType, "pc-q35-") {
		t.Errorf("verdict %+v", v)
	}
	kept := filepath.Join(opt.CacheDir, verdictFile)
	for name, spoil := range map[string]func(*Verdict){
		"another boot":    func(v *Verdict) { v.BootID = "x" },
		"another version": func(v *Verdict) { v.Version = "x" },
	} {
		old := v
		old.Reason = "old"
		spoil(&old)
		if err := writeVerdict(opt.CacheDir, old); err != nil {
			t.Fatal(err)
		}
		if again, err := Probe(t.Context(), opt); err != nil || again != v {
			t.Errorf("%s: %+v, %v", name, again, err)
		}
	}
	same := v
	same.Reason = "kept"
	if err := writeVerdict(opt.CacheDir, same); err != nil {
		t.Fatal(err)
	}
	if again, err := Probe(t.Context(), opt); err != nil || again != same {
		t.Errorf("kept verdict: %+v, %v", again, err)
	}
	if err := os.WriteFile(kept, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := Probe(t.Context(), opt); err != nil || again != v {
		t.Errorf("after a spoilt cache: %+v, %v", again, err)
	}
}

func TestProbeWithoutQEMU(t *testing.T) {
	for name, binary := range map[string]string{
		"absent":   filepath.Join(t.TempDir(), "absent"),
		"failing":  fake(t, "exit 1"),
		"other":    fake(t, "echo something else"),
		"outdated": fake(t, `[ "$1" = --version ] && echo "QEMU emulator version 1.0" || echo "pc-1.0 x"`),
	} {
		if _, err := Probe(t.Context(), Options{Binary: binary}); holt.CodeOf(err) != holt.Unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzVerdict(f *testing.F) {
	f.Add([]byte(`{"accel":"tcg","machine_type":"pc-q35-7.2","boot_id":"x"}`))
	f.Add([]byte(`{"accel":"other"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := parseVerdict(b)
		if err == nil && pickMachine(v.MachineType+" x\n") != v.MachineType {
			t.Errorf("accepted machine type %q", v.MachineType)
		}
	})
}
