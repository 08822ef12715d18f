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
	"time"

	"holt"
)

// Probe says what engine machines would run on here.
type Probe struct {
	KVM    bool   // a kernel booted under KVM
	Reason string // why not, when not; a sentence
}

// Stray is a machine process that no computer owns.
type Stray struct {
	PID int
	Dir string
}

// Options say what to look at. The zero value looks at the host only.
type Options struct {
	DataDir  string // of the daemon
	ImageDir string // where images are built; empty: in DataDir
	// Probe boots a kernel under KVM and returns; nil: judge by processor
	// flags and device alone.
	Probe func(ctx context.Context) (Probe, error)
	// Strays finds machine processes whose directories lie under root; nil:
	// not looked for.
	Strays func(root string) ([]Stray, error)
	// Owned tells whether a stray's directory belongs to a computer; nil: none does.
	Owned func(dir string) bool
	// Timeout bounds each check; zero: 10 seconds. The KVM probe gets 30.
	Timeout time.Duration
}

// Examine runs every check and returns their findings, always the same ones
// in the same order. It returns early, with what it has, when ctx ends.
func Examine(ctx context.Context, opt Options) []holt.Finding { return nil }

// Install installs Debian packages with apt-get; it needs root. progress may be
// nil; it gets a word of what goes on and the fraction done, 0 to 1.
//
// Errors: Unsupported without apt-get, Denied without root, Unavailable when
// a package cannot be fetched, Internal otherwise; the detail holds the
// last lines that apt-get printed.
func Install(ctx context.Context, packages []string, progress func(what string, fraction float64)) error {
	return holt.Errorf(holt.Unsupported, "packages cannot be installed yet")
}
