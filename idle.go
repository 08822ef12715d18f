package holt

import (
	"strconv"
	"time"
)

// IdleTimeout is the idle time after which a computer is paused. The zero value
// stands for [DefaultIdleTimeout], [NeverIdle] for never. As text it is a Go
// duration such as 15m, or null; in JSON that text, or null.
type IdleTimeout time.Duration

const (
	// DefaultIdleTimeout is the default.
	DefaultIdleTimeout = IdleTimeout(15 * time.Minute)
	// NeverIdle means that the computer is not paused when idle.
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
	return 0, Errorf(InvalidArgument, "invalid idle timeout %q", clip(s)).
		WithHint("use a duration from 1s to 8760h, such as 15m, or null for never")
}

// Or returns t or, if that is the zero value, other.
func (t IdleTimeout) Or(other IdleTimeout) IdleTimeout {
	if t == 0 {
		return other
	}
	return t
}

// Never reports whether the computer is never paused when idle.
func (t IdleTimeout) Never() bool { return t < 0 }

// String returns a duration such as 15m, or null; "" for the zero value.
func (t IdleTimeout) String() string {
	switch {
	case t == 0:
		return ""
	case t < 0:
		return neverIdle
	}
	return ShortDuration(time.Duration(t))
}

// MarshalJSON writes null for never.
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

// UseKind is a reason why a computer is awake.
type UseKind string

// The kinds of uses. Those from UseHold on are not calls in progress.
const (
	UseRun        UseKind = "run"        // a run in progress or starting
	UseTerminal   UseKind = "terminal"   // an attached or busy terminal
	UseConnection UseKind = "connection" // a connection to a port
	UseSSH        UseKind = "ssh"        // an SSH connection
	UseFiles      UseKind = "files"      // access to its files
	UseSchedule   UseKind = "schedule"   // a schedule is due or running
	UseCall       UseKind = "call"       // another call of the API
	UseHold       UseKind = "hold"       // a hold
	UseBackground UseKind = "background" // background processes of an ended run use the processor
	UseCPU        UseKind = "cpu"        // the guest uses the processor
	UseNetwork    UseKind = "network"    // the guest uses the network
	UseStart      UseKind = "start"      // it was just started or resumed
	UseUnknown    UseKind = "unknown"    // the guest agent does not answer
)

// Use is one thing that keeps a computer awake.
type Use struct {
	Kind   UseKind    `json:"kind" enum:"run,terminal,connection,ssh,files,schedule,call,hold,background,cpu,network,start,unknown"`
	ID     string     `json:"id,omitempty" doc:"id of the run, terminal or hold"`
	Detail string     `json:"detail,omitempty" doc:"the command, terminal name, port, reason of a hold, or busiest process"`
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty" doc:"when a hold expires"`
}

// Awake tells why a computer is awake, and until when.
type Awake struct {
	ComputerID  ComputerID    `json:"computer_id"`
	Computer    string        `json:"computer"`
	State       ComputerState `json:"state"`
	Uses        []Use         `json:"uses" nullable:"false" doc:"what keeps it awake now; includes holds of a paused computer"`
	IdleTimeout IdleTimeout   `json:"idle_timeout" nullable:"true" doc:"such as 15m; null: never"`
	LastUse     *Use          `json:"last_use,omitempty" doc:"the last use, if there is none now; since is when it ended"`
	IdleSince   *time.Time    `json:"idle_since,omitempty" doc:"when its last use ended"`
	PausesAt    *time.Time    `json:"pauses_at,omitempty" doc:"when it will be paused, if it stays idle"`
	Note        string        `json:"note,omitempty" doc:"why an idle computer is not paused, or why it was paused"`
}

// Hold keeps a computer awake until it expires or is released. It does not wake one.
type Hold struct {
	ID         HoldID     `json:"id"`
	ComputerID ComputerID `json:"computer_id"`
	Reason     string     `json:"reason"`
	By         string     `json:"by,omitempty" doc:"the caller who created it"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  time.Time  `json:"expires_at"`
}

// HoldSpec describes a hold to create.
type HoldSpec struct {
	Reason string `json:"reason" minLength:"1" maxLength:"200" doc:"the reason, such as thinking"`
	ForMS  int64  `json:"for_ms,omitempty" minimum:"0" doc:"duration, milliseconds; default: 30 minutes, at most 7 days"`
}

// ComputerUpdate changes a computer in any state.
type ComputerUpdate struct {
	Name        string      `json:"name,omitempty" maxLength:"63" doc:"the new name, a DNS label; the id and the name of the workspace do not change; the host name changes at the next start"`
	IdleTimeout IdleTimeout `json:"idle_timeout,omitzero" nullable:"true" doc:"idle time after which it is paused, such as 15m; null: never"`
}
