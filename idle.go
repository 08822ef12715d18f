package holt

import (
	"strconv"
	"time"
)

// IdleTimeout is after how long without a use a computer is paused. The zero value
// stands for [DefaultIdleTimeout], [NeverIdle] for no pause at all. As text it is a Go
// duration, as 15m, or null; in JSON that text, or null.
type IdleTimeout time.Duration

const (
	// DefaultIdleTimeout is that of computers which are given none.
	DefaultIdleTimeout = IdleTimeout(15 * time.Minute)
	// NeverIdle: the computer is not paused for being idle.
	NeverIdle IdleTimeout = -1

	leastIdleTimeout = IdleTimeout(time.Second)
	mostIdleTimeout  = IdleTimeout(365 * 24 * time.Hour)
	neverIdle        = "null"
)

// ParseIdleTimeout reads what String writes; "" is the default.
func ParseIdleTimeout(s string) (IdleTimeout, error) {
	switch s {
	case "":
		return 0, nil
	case neverIdle:
		return NeverIdle, nil
	}
	d, err := time.ParseDuration(s)
	if t := IdleTimeout(d); err == nil && t >= leastIdleTimeout && t <= mostIdleTimeout {
		return t, nil
	}
	return 0, Errorf(InvalidArgument, "%q is no idle timeout", clip(s)).
		WithHint("give a duration of 1s to 8760h, as 15m, or null for never")
}

// Or returns t or, if that is the zero value, other.
func (t IdleTimeout) Or(other IdleTimeout) IdleTimeout {
	if t == 0 {
		return other
	}
	return t
}

// Never says whether there is no pause.
func (t IdleTimeout) Never() bool { return t < 0 }

// String is as 15m, or null; "" for the zero value.
func (t IdleTimeout) String() string {
	switch {
	case t == 0:
		return ""
	case t < 0:
		return neverIdle
	}
	return ShortDuration(time.Duration(t))
}

// MarshalJSON is null for never.
func (t IdleTimeout) MarshalJSON() ([]byte, error) {
	if t < 0 {
		return []byte(neverIdle), nil
	}
	return []byte(strconv.Quote(t.String())), nil
}

// UnmarshalJSON is the inverse.
func (t *IdleTimeout) UnmarshalJSON(data []byte) error {
	s := string(data)
	if s != neverIdle {
		var err error
		if s, err = strconv.Unquote(s); err != nil {
			s = string(data)
		}
	}
	return t.UnmarshalText([]byte(s))
}

// UnmarshalText is ParseIdleTimeout.
func (t *IdleTimeout) UnmarshalText(text []byte) (err error) {
	*t, err = ParseIdleTimeout(string(text))
	return err
}

// UseKind says what a computer is in use for.
type UseKind string

// The kinds of uses. Those from UseHold on are not calls that go on.
const (
	UseRun        UseKind = "run"        // a command runs, or is being started
	UseTerminal   UseKind = "terminal"   // somebody is attached, or a program in it works
	UseConnection UseKind = "connection" // a port of the computer is connected to
	UseSSH        UseKind = "ssh"        // somebody is in it by SSH
	UseFiles      UseKind = "files"      // its files are read or written
	UseSchedule   UseKind = "schedule"   // a schedule is at work
	UseCall       UseKind = "call"       // another call of the API
	UseHold       UseKind = "hold"       // somebody keeps it awake
	UseBackground UseKind = "background" // processes that an ended run left use the processor
	UseCPU        UseKind = "cpu"        // the guest uses the processor
	UseNetwork    UseKind = "network"    // the guest uses the network
	UseStart      UseKind = "start"      // it was started, or went on
	UseUnknown    UseKind = "unknown"    // its agent does not say
)

// Use is one thing that a computer is in use for.
type Use struct {
	Kind   UseKind    `json:"kind" enum:"run,terminal,connection,ssh,files,schedule,call,hold,background,cpu,network,start,unknown"`
	ID     string     `json:"id,omitempty" doc:"of the run, terminal or hold"`
	Detail string     `json:"detail,omitempty" doc:"the command, the terminal's name, the port, the reason of a hold, the busiest process"`
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty" doc:"of a hold: when it expires"`
}

// Awake says why a computer is awake, and until when.
type Awake struct {
	ComputerID  ComputerID    `json:"computer_id"`
	Computer    string        `json:"computer"`
	State       ComputerState `json:"state"`
	Uses        []Use         `json:"uses" nullable:"false" doc:"what it is in use for now; holds of a computer that is not awake, too"`
	IdleTimeout IdleTimeout   `json:"idle_timeout" nullable:"true" doc:"as 15m; null: never"`
	LastUse     *Use          `json:"last_use,omitempty" doc:"what it was in use for last, if it is not now; since is when that ended"`
	IdleSince   *time.Time    `json:"idle_since,omitempty" doc:"since when nothing has used it"`
	PausesAt    *time.Time    `json:"pauses_at,omitempty" doc:"when it is paused, unless something uses it before"`
	Note        string        `json:"note,omitempty" doc:"why it is not paused though nothing uses it, or by whom it was"`
}

// Hold keeps a computer awake until it expires or is released. It wakes none.
type Hold struct {
	ID         HoldID     `json:"id"`
	ComputerID ComputerID `json:"computer_id"`
	Reason     string     `json:"reason"`
	By         string     `json:"by,omitempty" doc:"who asked for it"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  time.Time  `json:"expires_at"`
}

// HoldSpec asks for a hold.
type HoldSpec struct {
	Reason string `json:"reason" minLength:"1" maxLength:"200" doc:"what is waited for, as thinking"`
	ForMS  int64  `json:"for_ms,omitempty" minimum:"0" doc:"how long, milliseconds; default: 30 minutes, at most 7 days"`
}

// ComputerUpdate says what to change of a computer, whatever state it is in.
type ComputerUpdate struct {
	Name        string      `json:"name,omitempty" maxLength:"63" doc:"another name, a DNS label; the id stays, its workspace keeps its name, and inside it is the host name from the next start on"`
	IdleTimeout IdleTimeout `json:"idle_timeout,omitzero" nullable:"true" doc:"after how long without a use it is paused, as 15m; null: never"`
}
