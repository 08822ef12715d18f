// Package schedule runs commands in computers at times of the calendar. When a schedule is
// due it wakes the computer, starts the run, follows it to its end, and pauses or stops
// the computer again.
//
// It is not cron: nothing runs on the host. It reaches computers only through [Computers]. The
// output belongs to the run. It does not decide when an idle computer is paused, only whether a
// computer that it woke returns to its former state.
//
// # Format
//
// The tables schedule and firing of the control database ([Schema]). A firing is the result
// of one due time. Its row is written in the transaction that moves the schedule past the
// due time (column after), and has the id of its run before the computer is woken. So when a
// daemon is killed, the next one finds either the due time or the open firing, and starts a
// run of that id only if there is none. The column was has the state from which the
// computer was woken, until the computer is in that state again.
//
// # Clocks
//
// The wall clock is read at least once a minute, since timers do not advance while the host is
// suspended and do not notice a clock that is set. If the clock goes back by more than clockStep
// the schedules follow the new time.
//
// # Lock order
//
// workers.mu, then the database. slots.mu is taken alone. A schedule with open firings has one
// worker, a goroutine, so two runs of a schedule never overlap.
package schedule
