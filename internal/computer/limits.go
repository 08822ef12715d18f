package computer

import (
	"time"

	"holt/internal/engine/machine"
)

// Limits are the deadlines of everything that waits for a guest, and the times that end a terminal
// session.
type Limits struct {
	Boot      time.Duration // from the machine's launch to the agent's answer and the mounted workspace
	Resume    time.Duration // from a machine's restore from a snapshot to the agent's answer and the mounted workspace
	Wake      time.Duration // for a call to have a computer run that is paused, stopped, or being made so
	Dial      time.Duration // for one try to reach the agent
	Beat      time.Duration // between heartbeats
	Answer    time.Duration // for one answer of the agent
	Reconnect time.Duration // how long a call waits for a channel that is down, and a stop for the agent
	Flush     time.Duration // for a guest to write what it holds of its workspace in memory
	Stall     time.Duration // without a byte in a file's transfer
	Shutdown  time.Duration // for a guest to end after it was asked
	PowerDown time.Duration // for a guest to end after its power button was pressed
	Quiet     time.Duration // without a change in terminals: what comes then is another terminal session
	Stretch   time.Duration // for a terminal session, however much is changed
	Leave     time.Duration // without a change, once the last one has left a terminal of the terminal session
}

// defaultLimits are generous enough for a fully loaded host. Software emulation is 5 to 20 times
// slower than hardware.
func defaultLimits(a machine.Acceleration) Limits {
	l := Limits{
		Boot: 5 * time.Minute, Resume: 2 * time.Minute, Wake: 7 * time.Minute, Dial: 30 * time.Second, Beat: 15 * time.Second, Answer: 20 * time.Second,
		Reconnect: 10 * time.Second, Flush: 10 * time.Second, Stall: 30 * time.Second, Shutdown: 30 * time.Second, PowerDown: 20 * time.Second,
		Quiet: time.Minute, Stretch: 5 * time.Minute, Leave: 2 * time.Second,
	}
	if a == machine.AccelTCG {
		l.Shutdown, l.PowerDown = time.Minute, 45*time.Second
		l.Answer, l.Reconnect, l.Stall = 40*time.Second, 20*time.Second, time.Minute
	}
	return l
}

// or fills the zero fields of l from d.
func (l Limits) or(d Limits) Limits {
	for _, f := range []struct{ mine, other *time.Duration }{
		{&l.Boot, &d.Boot}, {&l.Resume, &d.Resume}, {&l.Wake, &d.Wake}, {&l.Dial, &d.Dial}, {&l.Beat, &d.Beat}, {&l.Answer, &d.Answer},
		{&l.Reconnect, &d.Reconnect}, {&l.Flush, &d.Flush}, {&l.Stall, &d.Stall}, {&l.Shutdown, &d.Shutdown}, {&l.PowerDown, &d.PowerDown},
		{&l.Quiet, &d.Quiet}, {&l.Stretch, &d.Stretch}, {&l.Leave, &d.Leave},
	} {
		if *f.mine == 0 {
			*f.mine = *f.other
		}
	}
	return l
}
