package computer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
)

// slow is an engine whose starts in the background last until they are ended, as all do with hold.
type slow struct {
	rooted
	hold     bool
	starting chan struct{}
	start    func() error // in the foreground
}

func (slow) CreateDisk(context.Context, string, machine.Base, int) error { return nil }

func (e slow) Start(ctx context.Context, spec machine.Spec) (machine.Machine, error) {
	if !spec.Background && !e.hold {
		return nil, e.start()
	}
	e.starting <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestPreempted: who waits for a template that is being booted in the background boots it instead. What was
// cut off so counts as not tried. In the background it begins once the host has memory for it.
func TestPreempted(t *testing.T) {
	ctx := t.Context()
	images := builtImages(t, strings.Repeat("a", 64))
	engine := slow{starting: make(chan struct{}, 1)}
	var store *Store
	key, foreground := "", errors.New("booted in the foreground")
	engine.start = func() error {
		if left, err := images.Unbooted(); err != nil || len(left) != 1 {
			t.Errorf("to be booted: %v, %v", left, err)
		}
		if store.templates.failedBoots.recently(key) {
			t.Error("what was cut off counts as failed")
		}
		return foreground
	}
	_, d := openKeys(t)
	store = newStore(ctx, Config{DB: d, Engines: Engines{Default: &engine}, Images: images, Templates: t.TempDir(), Renew: time.Nanosecond, Log: slog.New(slog.DiscardHandler)})
	img, err := images.Get(ctx, "mine")
	if err != nil {
		t.Fatal(err)
	}
	one, err := store.Templates().of(img, holt.Shape{})
	if err != nil {
		t.Fatal(err)
	}
	key = one.key()
	looks, want := 0, int64(defaultMemoryMB+1024)<<20
	store.table.room.host = func() (int64, int64) { // enough at the third look
		looks++
		return 4096 << 20, want + int64(min(looks, 3)-3)
	}
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		store.Templates().renew(ctx)
	}()
	<-engine.starting
	if looks != 3 {
		t.Errorf("it began after %d looks at the host's memory", looks)
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, _, err := one.keep(bounded, false); !errors.Is(err, foreground) {
		t.Errorf("in the foreground: %v", err)
	}
	<-renewed
	if left, err := images.Unbooted(); err != nil || len(left) != 1 {
		t.Errorf("to be booted still: %v, %v", left, err)
	}

	done := store.templates.preempt.want(key) // somebody waits, so none begins
	one.background = true
	if _, _, err := one.keep(bounded, true); !errors.Is(err, errPreempted) {
		t.Errorf("behind one who waits: %v", err)
	}
	done()
}

// TestDrainedBoot: a boot of a template ends when the daemon is to end, and counts as not tried; it can be
// begun again if the daemon stays.
func TestDrainedBoot(t *testing.T) {
	ctx := t.Context()
	images := builtImages(t, strings.Repeat("a", 64))
	engine := slow{hold: true, starting: make(chan struct{}, 1)}
	store := newStore(ctx, Config{Engines: Engines{Default: &engine}, Images: images, Templates: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	for range 2 {
		booted := make(chan error, 1)
		go func() {
			_, err := store.Templates().Boot(ctx, "mine", holt.Shape{}, "")
			booted <- err
		}()
		<-engine.starting
		store.Drain(true)
		select {
		case err := <-booted:
			if !errors.Is(err, errDrained) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it goes on")
		}
		if _, err := store.Templates().Boot(ctx, "mine", holt.Shape{}, ""); !errors.Is(err, errDrained) {
			t.Error("one that comes later:", err)
		}
		store.Drain(false)
	}
	if left, err := images.Unbooted(); err != nil || len(left) != 1 || len(store.templates.failedBoots.since) > 0 {
		t.Errorf("to be booted still: %v, %v; failed: %v", left, err, store.templates.failedBoots.since)
	}
}

// late is an engine whose starts fail with what is next in codes; once none is, with NotFound.
type late struct {
	rooted
	codes  []holt.Code
	starts int
}

func (late) CreateDisk(context.Context, string, machine.Base, int) error { return nil }

func (e *late) Start(context.Context, machine.Spec) (machine.Machine, error) {
	code := holt.NotFound
	if e.starts < len(e.codes) {
		code = e.codes[e.starts]
	}
	e.starts++
	return nil, holt.Errorf(code, "as it was to end")
}

// TestRenewedAgain: what does not come up in time in the background is booted again, a few times; what
// fails otherwise is not.
func TestRenewedAgain(t *testing.T) {
	for _, c := range []struct {
		codes        []holt.Code
		starts, left int
	}{
		{[]holt.Code{holt.Timeout}, 2, 0},
		{slices.Repeat([]holt.Code{holt.Timeout}, 4), 3, 1}, // the next daemon tries
		{[]holt.Code{holt.Unavailable}, 1, 0},
	} {
		images := builtImages(t, strings.Repeat("a", 64))
		engine := &late{codes: c.codes}
		_, d := openKeys(t)
		store := newStore(t.Context(), Config{DB: d, Engines: Engines{Default: engine}, Images: images, Templates: t.TempDir(), Renew: time.Nanosecond, Log: slog.New(slog.DiscardHandler)})
		store.Templates().renew(t.Context())
		if left, err := images.Unbooted(); err != nil || engine.starts != c.starts || len(left) != c.left {
			t.Errorf("%v: booted %d times, to be booted still: %v, %v", c.codes, engine.starts, left, err)
		}
	}
}
