package computer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"holt"
	"holt/internal/guest/agent"
)

// What a guest does by itself counts as a use from these on, on average between two looks. A guest
// can say what it likes: with a lie it stays awake, as it would by working.
const (
	busyCPU   = 0.10 // of one processor, by the whole guest but its agent and what is a group
	busyGroup = 0.02 // of one processor, by a terminal's processes or those that an ended run left
	busyNet   = 1024 // bytes a second, both ways

	leastLook = 200 * time.Millisecond // what is shorter tells nothing
	shortLook = 500 * time.Millisecond // between two looks of one call
)

// busy is the activity of a guest that no call causes, as its agent reports it.
type busy struct {
	now   func() time.Time
	ask   func(context.Context) (agent.Activity, error)
	named func(holt.TerminalID) (name string, ok bool)

	looking chan struct{} // has a token while the guest is asked

	mu    sync.Mutex
	at    time.Time // of the last answer
	told  agent.Activity
	known bool       // there were two answers, one after the other
	uses  []holt.Use // between these
	fault error      // why there is no answer
}

func newBusy(now func() time.Time, l *live) *busy {
	return &busy{now: now, looking: make(chan struct{}, 1), named: l.terminals.known, ask: func(ctx context.Context) (a agent.Activity, err error) {
		client, _, fault := l.state()
		if client == nil {
			if fault == nil {
				fault = errors.New("no answer yet")
			}
			return a, fault
		}
		ctx, cancel := context.WithTimeout(ctx, l.limits.Answer)
		defer cancel()
		return client.Activity(ctx)
	}}
}

// look asks the guest for its activity, unless it was asked just now.
func (b *busy) look(ctx context.Context) {
	select {
	case b.looking <- struct{}{}:
		defer func() { <-b.looking }()
	case <-ctx.Done():
		return
	}
	b.mu.Lock()
	soon := b.now().Sub(b.at) < leastLook
	b.mu.Unlock()
	if soon {
		return
	}
	told, err := b.ask(ctx)
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault = err; err != nil {
		b.at, b.known, b.uses = time.Time{}, false, nil
		return
	}
	if b.at.IsZero() || b.rebooted(told, now) {
		b.known, b.uses = false, nil
	} else {
		b.known, b.uses = true, b.compare(told, now)
	}
	b.at, b.told = now, told
}

// rebooted reports whether the guest's counters have restarted since the last answer. A small
// decrease is normal: the agent's own time is subtracted exactly and other time is sampled, and a
// removed interface takes its bytes along. mu is held.
func (b *busy) rebooted(told agent.Activity, now time.Time) bool {
	return b.told.CPUMS-told.CPUMS > now.Sub(b.at).Milliseconds()
}

// lookTwice is look, twice if there was no answer within patience: activity is the difference of
// two answers.
func (b *busy) lookTwice(ctx context.Context, patience time.Duration) {
	_, stale := b.is(patience)
	b.look(ctx)
	b.mu.Lock()
	again := (stale != "" || !b.known) && b.fault == nil
	b.mu.Unlock()
	if again {
		b.rest(ctx)
		b.look(ctx)
	}
}

// rest waits until another look gives a meaningful difference.
func (b *busy) rest(ctx context.Context) {
	timer := time.NewTimer(shortLook)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// compare returns the activity between the last answer and this one. mu is held.
func (b *busy) compare(told agent.Activity, now time.Time) (uses []holt.Use) {
	span := now.Sub(b.at)
	before := map[string]int64{}
	for _, g := range b.told.Groups {
		before[g.ID] = g.CPUMS
	}
	others := told.CPUMS - b.told.CPUMS
	for _, g := range told.Groups {
		used := max(0, g.CPUMS-before[g.ID])
		others -= used
		if busyShare(used, span) >= busyGroup {
			if use, ok := b.group(g, used, span); ok {
				uses = append(uses, use)
			}
		}
	}
	if busyShare(others, span) >= busyCPU {
		uses = append(uses, holt.Use{Kind: holt.UseCPU, Detail: percent(others, span) + topOf(told.Top)})
	}
	if rate := float64(told.NetBytes-b.told.NetBytes) / span.Seconds(); rate >= busyNet {
		uses = append(uses, holt.Use{Kind: holt.UseNetwork, Detail: fmt.Sprintf("%.0f KiB/s", rate/1024)})
	}
	for i := range uses {
		uses[i].Since = b.since(uses[i])
	}
	return uses
}

// since is when a use was first seen. mu is held.
func (b *busy) since(use holt.Use) time.Time {
	for _, old := range b.uses {
		if old.Kind == use.Kind && old.ID == use.ID {
			return old.Since
		}
	}
	return b.at
}

// group is the use of a terminal's processes, or of those that an ended run left.
func (b *busy) group(g agent.GroupActivity, used int64, span time.Duration) (holt.Use, bool) {
	if id, err := holt.ParseRunID(g.ID); err == nil {
		return holt.Use{Kind: holt.UseBackground, ID: string(id), Detail: fmt.Sprintf("%s still running after it: %s", holt.CountOf(g.Processes, "process"), percent(used, span))}, true
	}
	id, err := holt.ParseTerminalID(g.ID)
	if err != nil {
		return holt.Use{}, false
	}
	name, ok := b.named(id)
	return holt.Use{Kind: holt.UseTerminal, ID: string(id), Detail: name + ": its processes use " + percent(used, span)}, ok
}

// busyShare is the used fraction of one processor.
func busyShare(ms int64, span time.Duration) float64 {
	return float64(ms) / float64(max(1, span.Milliseconds()))
}

func percent(ms int64, span time.Duration) string {
	return fmt.Sprintf("%.0f %% of a processor", 100*busyShare(ms, span))
}

// topOf names the processes that used most.
func topOf(top []agent.ProcessActivity) string {
	var names []string
	for _, p := range top {
		if p.Command != "" {
			names = append(names, fmt.Sprintf("%s (pid %d)", p.Command, p.PID))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", most by " + strings.Join(names, ", ")
}

// is returns the activity of the guest as of at most patience ago, or why it is unknown.
func (b *busy) is(patience time.Duration) (uses []holt.Use, unknown string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.fault != nil:
		return nil, "the guest agent does not answer: " + clip(b.fault.Error())
	case !b.known || b.now().Sub(b.at) > patience:
		return b.uses, "its activity is not known yet: the guest agent is asked twice before a pause"
	}
	return b.uses, ""
}
