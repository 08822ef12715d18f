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
	shortLook = 500 * time.Millisecond // between two looks, for who waits
)

// busy is what works in a guest by itself, as far as its agent tells.
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

// look asks the guest what works in it, unless it was asked just now. Who waits for another's question
// waits no longer than ctx.
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

// rebooted reports whether the guest has begun to count anew since the last answer. That what it has used became a
// little less says nothing: the agent's own time, which is left out, is measured, all others' is sampled by the
// tick; and an interface that goes takes its bytes along. mu is held.
func (b *busy) rebooted(told agent.Activity, now time.Time) bool {
	return b.told.CPUMS-told.CPUMS > now.Sub(b.at).Milliseconds()
}

// lookTwice is look and, if nobody has asked a guest that answers within patience, look again after a while.
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

// rest waits until another look tells something.
func (b *busy) rest(ctx context.Context) {
	timer := time.NewTimer(shortLook)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// compare returns what was used between the last answer and this one. mu is held.
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

// group is the use that a terminal's processes are, or those that an ended run left.
func (b *busy) group(g agent.GroupActivity, used int64, span time.Duration) (holt.Use, bool) {
	if id, err := holt.ParseRunID(g.ID); err == nil {
		return holt.Use{Kind: holt.UseBackground, ID: string(id), Detail: fmt.Sprintf("%s that it left: %s", holt.CountOf(g.Processes, "process"), percent(used, span))}, true
	}
	id, err := holt.ParseTerminalID(g.ID)
	if err != nil {
		return holt.Use{}, false
	}
	name, ok := b.named(id)
	return holt.Use{Kind: holt.UseTerminal, ID: string(id), Detail: name + ": what runs in it uses " + percent(used, span)}, ok
}

// share is how much of one processor was used.
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

// is returns what works in the guest, which was asked within patience; and why that is not known.
func (b *busy) is(patience time.Duration) (uses []holt.Use, unknown string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.fault != nil:
		return nil, "its agent does not answer: " + clip(b.fault.Error())
	case !b.known || b.now().Sub(b.at) > patience:
		return b.uses, "what works in it is not known yet: its agent is asked twice before it is paused"
	}
	return b.uses, ""
}
