// Package schedule runs commands in computers at times of the calendar: it keeps
// what is to be run when, fires what is due, wakes the computer, follows the run
// to its end, and lets the computer rest again.
//
// It is not cron: nothing runs on the host. It does not know machines; what it
// needs of computers is [Computers]. It keeps no output, the run does. It does
// not decide when an idle computer is paused, only whether one that it woke rests.
//
// Tables schedule and firing of the control database ([Schema]) are the truth. A
// firing is what became of one due time: its row is written in the transaction that
// moves the schedule past the due time (column after), and before the computer is
// woken the row has the id that its run is to have. So a daemon that dies at any instant
// leaves either a due time that the next one finds, or a firing that it goes on with: a run of
// that id is started once. How a computer rested that was woken is in the
// firing's row (column was) until it does so again.
//
// Due times are found by looking at the wall clock, at least each minute, so that
// a host that slept and a clock that was set are noticed. A clock that went back by
// more than clockStep was wrong before, and the schedules go by the new one.
//
// Lock order: lanes.mu, then the database; turns.mu alone. A lane is the goroutine of a schedule
// that has firings which go on: there is one, so two runs of a schedule never overlap.
package schedule
