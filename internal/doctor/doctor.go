// Package doctor checks whether holt can run on a host, and says how to fix or
// improve what is missing.
//
// It is not a monitor: it checks once. It changes nothing, except that
// [Install] installs Debian packages. It knows no engine: the caller passes the
// functions that boot a probe and find stray machines.
//
// Trap: a check can hang, not only be slow: a paravirtual /dev/kvm can stop a
// booting kernel, and the server of a FUSE mount can be gone. So every check
// has a deadline, and a check that does not return is reported and left
// running.
package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"holt"
)

// Probe is the result of a boot under KVM.
type Probe struct {
	KVM    bool   // a kernel booted under KVM
	Reason string // a sentence
}

// Stray is a machine process without a computer.
type Stray struct {
	PID int
	Dir string // the machine's directory, which may not exist
}

// Options say what to check. The zero value checks the host only.
type Options struct {
	DataDir  string // of the daemon; need not exist
	ImageDir string // where images are built; empty: in DataDir
	Listen   string // the TCP address of a daemon; empty: not checked
	// Engine is that of the daemon: auto (also ""), qemu, gvisor or local. It decides what is needed.
	Engine string
	// GVisor says why gVisor sandboxes do not work here; nil: they are not checked, and not used.
	GVisor func() error
	// Probe boots a test program under KVM; nil: only the processor's flags and the device are checked.
	Probe func(ctx context.Context) (Probe, error)
	// Strays finds stray machines with directories below root; nil: not checked.
	Strays func(root string) ([]Stray, error)
	// Bounds returns how control groups limit computers, or an error if they cannot; nil: [cgroup.Look].
	Bounds func() (string, error)
	// Jail tries a program in a jail that can see these directories; nil: [jail.Check].
	Jail func(program string, dirs ...string) error
	// Mounts are the directories where the next daemon of DataDir mounts
	// workspaces again, so that dead mounts there need no action.
	Mounts []string
	// Timeout of each check; zero: 10 seconds. Probe has three times that.
	Timeout time.Duration
}

const defaultTimeout = 10 * time.Second

// host is the host that is checked; tests have fake ones.
type host struct {
	root string                       // of /proc, /dev and /sys; "/" except in tests
	look func(string) (string, error) // finds a program
	arch string                       // as GOARCH
	uid  int
	gid  int
}

type check struct {
	name    string
	timeout time.Duration
	do      func(ctx context.Context, opt Options) holt.Finding
}

// Examine runs all checks concurrently and returns their findings, always in
// the same order. It returns before the longest deadline, or soon after ctx
// ends.
func Examine(ctx context.Context, opt Options) []holt.Finding {
	return thisHost().examine(ctx, opt)
}

func (h host) examine(ctx context.Context, opt Options) []holt.Finding {
	if opt.Timeout <= 0 {
		opt.Timeout = defaultTimeout
	}
	if opt.ImageDir == "" && opt.DataDir != "" {
		opt.ImageDir = filepath.Join(opt.DataDir, "images")
	}
	checks := []check{
		{"processor", opt.Timeout, h.processor},
		{"kvm", 3 * opt.Timeout, h.kvm},
		{"qemu", opt.Timeout, h.qemu},
		{"gvisor", opt.Timeout, h.gvisor},
		{"image tools", opt.Timeout, h.imageTools},
		{"fuse", opt.Timeout, h.fuse},
		{"user", opt.Timeout, h.user},
		{"jail", opt.Timeout, h.jail},
		{"memory", opt.Timeout, h.memory},
		{"limits", opt.Timeout, h.limits},
		{"names", opt.Timeout, h.names},
		{"ping", opt.Timeout, h.ping},
		{"disk", opt.Timeout, h.disk},
		{"socket", opt.Timeout, h.socket},
		{"machines", opt.Timeout, h.machines},
		{"mounts", opt.Timeout, h.mounts},
	}
	if opt.Listen != "" {
		checks = append(checks, check{"port", opt.Timeout, h.port})
	}
	return runChecks(ctx, opt, checks)
}

// runChecks gives each check a goroutine and a deadline. A goroutine that misses
// it is stuck in the kernel and ends with the program.
func runChecks(ctx context.Context, opt Options, checks []check) []holt.Finding {
	answers := make([]chan holt.Finding, len(checks))
	for i, c := range checks {
		answers[i] = make(chan holt.Finding, 1)
		go func() {
			ctx, cancel := context.WithTimeout(ctx, c.timeout)
			defer cancel()
			answers[i] <- c.do(ctx, opt)
		}()
	}
	began := time.Now()
	findings := make([]holt.Finding, len(checks))
	for i, c := range checks {
		late := time.NewTimer(time.Until(began.Add(c.timeout + time.Second/2)))
		select {
		case findings[i] = <-answers[i]:
		case <-late.C:
			findings[i] = warn(fmt.Sprintf("the check did not return within %s", holt.ShortDuration(c.timeout)), "find processes that hang: ps -eo pid,stat,comm | grep ' D'")
		case <-ctx.Done():
			findings[i] = lastWord(ctx, answers[i])
		}
		late.Stop()
		findings[i].Name = c.name
	}
	return findings
}

// lastWord returns the answer of a check if there is one, after ctx has ended.
func lastWord(ctx context.Context, answer <-chan holt.Finding) holt.Finding {
	select {
	case f := <-answer:
		return f
	default:
		return warn("not checked: "+context.Cause(ctx).Error(), "")
	}
}

func ok(found string) holt.Finding {
	return holt.Finding{Verdict: holt.VerdictOK, Found: found}
}

func warn(found, do string, install ...string) holt.Finding {
	return holt.Finding{Verdict: holt.VerdictWarn, Found: found, Do: do, Install: install}
}

func bad(found, do string, install ...string) holt.Finding {
	return holt.Finding{Verdict: holt.VerdictBad, Found: found, Do: do, Install: install}
}
