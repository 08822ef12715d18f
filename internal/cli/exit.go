package cli

import (
	"fmt"

	"holt"
)

// The exit statuses besides those of the guest's commands. They never change
// meaning; docs/words.md and every help show them.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitConflict = 4
	exitRun      = 125 // holt computer run failed itself, not the guest's command
)

// exitOf is holt's table from codes to exit statuses, see [holt.ExitStatus].
func exitOf(code holt.Code) int { return holt.ExitStatus(code) }

// exitHelp is what every help says about them.
const exitHelp = `Exit status:
  0  done                          5  unavailable, timeout or too many
  1  failure                       6  out of space
  2  usage or invalid argument     7  not authenticated or not allowed
  3  not found                     8  not supported here
  4  already exists, or conflict   130  interrupted
computer run, run follow, job run and terminal attach: the command's status, or 125 if holt fails
`

// exitStatus ends the program with a status and no message.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// runFailure is a failure of holt itself while it ran a guest's command.
type runFailure struct{ err error }

func (f runFailure) Error() string { return f.err.Error() }
func (f runFailure) Unwrap() error { return f.err }

// visible makes text from elsewhere safe for a terminal.
func visible(s string) string { return holt.Visible(s) }
