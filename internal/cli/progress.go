package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bar shows how far long work is: a bar on a terminal, else a line for each
// step. Its lock guards last, which the bar's own goroutine reads.
type bar struct {
	a     *app
	title string
	began time.Time
	pool  *mpb.Progress
	bar   *mpb.Bar

	mu   sync.Mutex
	last Progress
}

const whole = 10_000 // a bar's resolution

// begin shows a bar until end is called.
func (a *app) begin(title string) *bar {
	b := &bar{a: a, title: title, began: time.Now()}
	if !isTerminal(a.Err) {
		return b
	}
	b.pool = mpb.New(mpb.WithOutput(a.Err), mpb.WithWidth(30), mpb.WithRefreshRate(150*time.Millisecond))
	b.bar = b.pool.New(whole, mpb.BarStyle().Lbound("").Filler("━").Tip("━").Padding("─").Rbound(""),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(title+" ", decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), decor.Elapsed(decor.ET_STYLE_MMSS, decor.WC{W: 7}),
			decor.Any(func(decor.Statistics) string { return "  " + b.text() })))
	return b
}

func (b *bar) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := stepOf(b.last)
	if b.last.Detail != "" {
		text += ": " + visible(b.last.Detail)
	}
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:59]) + "…"
	}
	return text
}

// stepOf names a step, as "2 of 5: packages".
func stepOf(p Progress) string {
	if p.Step == 0 {
		return visible(p.Stage)
	}
	return fmt.Sprintf("%d of %d: %s", p.Step, imageSteps, visible(p.Stage))
}

// show takes the next step of the work.
func (b *bar) show(p Progress) {
	b.mu.Lock()
	changed := p.Stage != b.last.Stage
	b.last = p
	b.mu.Unlock()
	if b.bar != nil {
		b.bar.SetCurrent(int64(p.Fraction * (whole - 1))) // the last step is end's
	} else if changed && p.Stage != "" {
		b.a.say("%s: %s (%d s)", b.title, stepOf(p), int(time.Since(b.began).Seconds()))
	}
}

// end removes the bar.
func (b *bar) end() {
	if b.bar == nil {
		return
	}
	b.bar.Abort(true)
	b.pool.Wait()
}

// lastingHelp ends the help of a command whose work the daemon completes.
const lastingHelp = `

If this command is interrupted, the daemon completes the work. See the result with: %s`
