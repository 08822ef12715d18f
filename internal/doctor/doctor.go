// Package doctor looks at a host and says whether holt can work there, what
// is worse than it could be, and what to do about it.
//
// It is not a monitor (it looks once) and it mends nothing by itself, except
// that [Install] installs Debian packages when it is asked to. It knows no
// engine: what boots a probe and what finds stray machines is passed in.
//
// Trap: what it looks at may hang, and not only be slow: a paravirtual
// /dev/kvm that stops a booting kernel, a FUSE mount whose server is gone. So
// every check runs under a deadline of its own, and one that does not return
// is reported and left behind.
package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"holt"
)

// Probe says what engine machines would run on here.
type Probe struct {
	KVM    bool   // a kernel booted under KVM
	Reason string // why, or why not; a sentence
}

// Stray is a machine process that no computer owns.
type Stray struct {
	PID int
	Dir string // the machine's directory, which may be gone
}

// Options say what to look at. The zero value looks at the host only.
type Options struct {
	DataDir  string // of the daemon; need not exist
	ImageDir string // where images are built; empty: in DataDir
	Listen   string // the TCP address that a daemon is to listen on; empty: none
	// Probe boots a test program under KVM; nil: judge by processor flags and device alone.
	Probe func(ctx context.Context) (Probe, error)
	// Strays finds machine processes whose directories lie under root and that
	// belong to no computer; nil: not looked for.
	Strays func(root string) ([]Stray, error)
	// Bounds says what bounds computers, or an error that says why nothing does; nil: [cgroup.Look].
	Bounds func() (string, error)
	// Jail tries a program in a jail that is shown these directories, and says why there can be none; nil: [jail.Check].
	Jail func(program string, dirs ...string) error
	// Mounts are the directories where the next daemon of DataDir mounts
	// workspaces again by itself, so that dead mounts there need nobody.
	Mounts []string
	// Timeout bounds each check; zero: 10 seconds. Three times that for Probe.
	Timeout time.Duration
}

const defaultTimeout = 10 * time.Second

// host is where checks look; tests look elsewhere.
type host struct {
	root string                       // of /proc, /dev and /sys; "/" but in tests
	look func(string) (string, error) // finds a program
	arch string                       // as Go names it
	uid  int
	gid  int
}

// check is one thing that is looked at.
type check struct {
	name    string
	timeout time.Duration
	do      func(ctx context.Context, opt Options) holt.Finding
}

// Examine runs every check at once and returns their findings, always the same
// ones in the same order. It returns by the time the longest deadline has
// passed, or soon after ctx ends.
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

// runChecks gives each check a goroutine and a deadline. A goroutine that does
// not come back in time is stuck in the kernel: it is left to end with the program.
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
			findings[i] = warn(fmt.Sprintf("it did not answer within %s", holt.ShortDuration(c.timeout)), "look for processes that hang: ps -eo pid,stat,comm | grep ' D'")
		case <-ctx.Done():
			findings[i] = lastWord(ctx, answers[i])
		}
		late.Stop()
		findings[i].Name = c.name
	}
	return findings
}

// lastWord prefers an answer that is there to the fact that nobody waits for it.
func lastWord(ctx context.Context, answer <-chan holt.Finding) holt.Finding {
	select {
	case f := <-answer:
		return f
	default:
		return warn("not looked at: "+context.Cause(ctx).Error(), "")
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
