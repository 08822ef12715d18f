package holt

import (
	"crypto/rand"
	"encoding/base32"
	"regexp"
	"strings"
)

// Identifiers are a prefix, an underscore and 16 characters of lower-case
// base 32 (80 random bits). They are never reused. Each kind is a distinct type,
// parsed once at the interface.
type (
	// ComputerID identifies a computer: "cmp_…".
	ComputerID string
	// WorkspaceID identifies a workspace: "wsp_…".
	WorkspaceID string
	// DiskID identifies a root disk, or one layer of it: "dsk_…".
	DiskID string
	// SnapshotID identifies a snapshot of a computer: "snap_…".
	SnapshotID string
	// RunID identifies one run of a command: "run_…".
	RunID string
	// TerminalID identifies a terminal of a computer and its forks: "term_…".
	TerminalID string
	// StretchID names a terminal's share of a stretch of work: the terminal's id, a
	// dot, and 16 characters of its own, since forks have the terminal too: "term_….…".
	StretchID string
	// HoldID identifies a hold of a computer: "hld_…".
	HoldID string
	// ScheduleID identifies a schedule: "sch_…".
	ScheduleID string
	// TokenID identifies an API token; it is not the secret: "tok_…".
	TokenID string
)

const (
	computerPrefix  = "cmp_"
	workspacePrefix = "wsp_"
	diskPrefix      = "dsk_"
	snapshotPrefix  = "snap_"
	runPrefix       = "run_"
	terminalPrefix  = "term_"
	holdPrefix      = "hld_"
	schedulePrefix  = "sch_"
	tokenPrefix     = "tok_"
)

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func newID(prefix string) string {
	var b [10]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return prefix + idEncoding.EncodeToString(b[:])
}

func parseID(prefix, noun, s string) (string, error) {
	rest, ok := strings.CutPrefix(s, prefix)
	if ok && len(rest) == 16 {
		if _, err := idEncoding.DecodeString(rest); err == nil {
			return s, nil
		}
	}
	return "", Errorf(InvalidArgument, "%q is not a %s id", clip(s), noun).
		WithHint("a %s id is %s followed by 16 characters a-z and 2-7", noun, prefix)
}

// NewComputerID returns a fresh random identifier.
func NewComputerID() ComputerID { return ComputerID(newID(computerPrefix)) }

// NewWorkspaceID returns a fresh random identifier.
func NewWorkspaceID() WorkspaceID { return WorkspaceID(newID(workspacePrefix)) }

// NewDiskID returns a fresh random identifier.
func NewDiskID() DiskID { return DiskID(newID(diskPrefix)) }

// NewSnapshotID returns a fresh random identifier.
func NewSnapshotID() SnapshotID { return SnapshotID(newID(snapshotPrefix)) }

// NewRunID returns a fresh random identifier.
func NewRunID() RunID { return RunID(newID(runPrefix)) }

// NewHoldID returns a fresh random identifier.
func NewHoldID() HoldID { return HoldID(newID(holdPrefix)) }

// NewTerminalID returns a fresh random identifier.
func NewTerminalID() TerminalID { return TerminalID(newID(terminalPrefix)) }

// NewScheduleID returns a fresh random identifier.
func NewScheduleID() ScheduleID { return ScheduleID(newID(schedulePrefix)) }

// NewTokenID returns a fresh random identifier.
func NewTokenID() TokenID { return TokenID(newID(tokenPrefix)) }

// ParseRunID returns s as a RunID, or an InvalidArgument [Error].
func ParseRunID(s string) (RunID, error) {
	id, err := parseID(runPrefix, "run", s)
	return RunID(id), err
}

// ParseHoldID checks an id that came from outside.
func ParseHoldID(s string) (HoldID, error) {
	id, err := parseID(holdPrefix, "hold", s)
	return HoldID(id), err
}

// ParseTerminalID returns s as a TerminalID, or an InvalidArgument [Error].
func ParseTerminalID(s string) (TerminalID, error) {
	id, err := parseID(terminalPrefix, "terminal", s)
	return TerminalID(id), err
}

// NewStretchID returns a fresh random identifier of a terminal session.
func NewStretchID(t TerminalID) StretchID { return StretchID(newID(string(t) + ".")) }

// ParseStretchID returns s as a StretchID, or an InvalidArgument [Error].
func ParseStretchID(s string) (StretchID, error) {
	terminal, _, _ := strings.Cut(s, ".")
	_, err := ParseTerminalID(terminal)
	id, bad := parseID(terminal+".", "stretch", s)
	if err != nil || bad != nil {
		return "", Errorf(InvalidArgument, "%q is not the id of a terminal session", clip(s)).
			WithHint("the id is the terminal's id, a dot and 16 characters a-z and 2-7")
	}
	return StretchID(id), nil
}

// ParseWork returns s if it is the id of a run or a terminal session, or the id
// or name of a terminal, which stands for its last session. Otherwise it returns
// an InvalidArgument [Error].
func ParseWork(s string) (string, error) {
	_, run := ParseRunID(s)
	_, stretch := ParseStretchID(s)
	_, terminal := ParseTerminalID(s)
	_, name := ParseName(s)
	if run != nil && stretch != nil && terminal != nil && name != nil {
		return "", Errorf(InvalidArgument, "%q is neither a run nor a terminal session", clip(s)).
			WithHint("use the id of a run (run_…), or the id or name of a terminal; holt workspace checkpoints lists both")
	}
	return s, nil
}

// ParseSnapshotID returns s as a SnapshotID, or an InvalidArgument [Error].
func ParseSnapshotID(s string) (SnapshotID, error) {
	id, err := parseID(snapshotPrefix, "snapshot", s)
	return SnapshotID(id), err
}

// ParseScheduleID returns s as a ScheduleID, or an InvalidArgument [Error].
func ParseScheduleID(s string) (ScheduleID, error) {
	id, err := parseID(schedulePrefix, "schedule", s)
	return ScheduleID(id), err
}

// ParseComputerID returns s as a ComputerID, or an InvalidArgument [Error].
func ParseComputerID(s string) (ComputerID, error) {
	id, err := parseID(computerPrefix, "computer", s)
	return ComputerID(id), err
}

// ParseWorkspaceID returns s as a WorkspaceID, or an InvalidArgument [Error].
func ParseWorkspaceID(s string) (WorkspaceID, error) {
	id, err := parseID(workspacePrefix, "workspace", s)
	return WorkspaceID(id), err
}

var nameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ParseName returns s if it can name a computer or a workspace: a DNS label
// (RFC 1123), because previews put names into host names. Otherwise it
// returns an InvalidArgument [Error].
func ParseName(s string) (string, error) {
	if nameRE.MatchString(s) {
		return s, nil
	}
	return "", Errorf(InvalidArgument, "invalid name %q", clip(s)).
		WithHint("use 1 to 63 characters a-z, 0-9 and -, not starting or ending with -")
}

// clip shortens an untrusted value.
func clip(s string) string { return Clip(s, 64) }
