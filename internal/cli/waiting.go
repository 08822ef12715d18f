package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holt"
	"holt/client"
)

const (
	otherAfter = 2 * time.Second // after this work may be waiting for another call's
	otherLimit = time.Second     // for the answer whether it does
)

// wait shows, on a terminal, that work of unknown length is in progress once it has
// taken a second.
func (a *app) wait(title string, work func() error) error {
	if !isTerminal(a.Err) {
		return work()
	}
	return a.awaits(title, func(time.Duration) string { return "" }, work)
}

// waitOn is wait for work on a computer, which may have to wait for another call that changes it: for which is said
// also off a terminal.
func (a *app) waitOn(c *client.Client, computer, title string, work func() error) error {
	return a.awaits(title, func(elapsed time.Duration) string {
		ctx, cancel := context.WithTimeout(context.Background(), otherLimit)
		defer cancel()
		is, err := c.Computers.Get(ctx, computer)
		if err != nil {
			return "" // the work says so too
		}
		return waitsFor(is, elapsed)
	}, work)
}

// waitsFor says for which call a call waits that was made so long ago. The one at work is another if it began before that.
func waitsFor(c holt.Computer, elapsed time.Duration) string {
	w := c.AtWork
	if w == nil || w.Waiting == 0 || time.Duration(w.ForMS)*time.Millisecond <= elapsed {
		return ""
	}
	return fmt.Sprintf("waiting for another call: %s of %s, in progress for %s", visible(w.Verb), visible(c.Name), span(time.Duration(w.ForMS)*time.Millisecond))
}

// awaits shows that work is in progress, or what other says that it waits for: on a terminal each second, elsewhere once.
func (a *app) awaits(title string, other func(elapsed time.Duration) string, work func() error) error {
	done, shown := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(shown)
		began, said, on := time.Now(), false, isTerminal(a.Err)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				if on && time.Since(began) > time.Second {
					fmt.Fprint(a.Err, "\r\x1b[K")
				}
				return
			case <-tick.C:
			}
			elapsed, text := time.Since(began), ""
			if elapsed >= otherAfter && !said {
				text = other(elapsed)
			}
			switch {
			case !on && text != "":
				a.say("holt: %s", text)
				said = true
			case on && text != "":
				fmt.Fprintf(a.Err, "\r\x1b[K%s", text)
			case on:
				fmt.Fprintf(a.Err, "\r\x1b[K%s … %d s", title, int(elapsed.Seconds()))
			}
		}
	}()
	err := work()
	close(done)
	<-shown
	return err
}

// lasts is waitOn for work that the daemon does to its end, also for a caller who leaves; seenBy
// is the command that shows it.
func (a *app) lasts(c *client.Client, computer, title, seenBy string, work func() error) error {
	a.seenBy = seenBy
	err := a.waitOn(c, computer, title, work)
	if !errors.Is(err, context.Canceled) {
		a.seenBy = ""
	}
	return err
}
