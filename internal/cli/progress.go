package cli

import (
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bar shows how far long work is: a moving bar on a terminal, a line for each
// stage elsewhere. Its lock guards stage and detail, which the bar's own
// goroutine reads.
type bar struct {
	a     *app
	title string
	pool  *mpb.Progress
	bar   *mpb.Bar

	mu            sync.Mutex
	stage, detail string
}

const whole = 10_000 // a bar's resolution

// begin shows a bar until end is called.
func (a *app) begin(title string) *bar {
	b := &bar{a: a, title: title}
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
	text := visible(b.stage)
	if b.detail != "" {
		text += ": " + visible(b.detail)
	}
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:59]) + "…"
	}
	return text
}

// show takes the next step of the work.
func (b *bar) show(p Progress) {
	b.mu.Lock()
	changed := p.Stage != b.stage
	b.stage, b.detail = p.Stage, p.Detail
	b.mu.Unlock()
	if b.bar != nil {
		b.bar.SetCurrent(int64(p.Fraction * (whole - 1))) // the last step is end's
	} else if changed && p.Stage != "" {
		b.a.say("%s: %s", b.title, p.Stage)
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

// lastingHelp is what the help of such a command says.
const lastingHelp = `

Interrupted, this command ends, and what it asked for goes on: %s shows it.`
