// Package job runs commands in computers of their own that are thrown away:
// known inputs in, outputs and an exit status out, nothing else left.
//
// [Store] is the jobs of one daemon. It is not a scheduler (no times, no
// dependencies; a batch of many is the client's), and knows computers, runs and
// workspaces only through the interfaces here.
//
// # Format
//
// Tables job and job_inputs of the control database ([Schema]), and one file a
// job, DIR/<id>, with the end of its output as JSON of holt.RunEvents; it is
// written before the row says that the command has ended and removed before the row.
//
// # Crash only
//
// A job belongs to the daemon. Its row is written before anything of it is made
// and goes after everything of it has: the row names the workspace before that
// is there, and a computer says which job it is for. The next daemon takes each
// job on from what there is (see worker.attempt): it makes the computer if there is none,
// starts the command (with the idempotency key of the attempt) if it is not on record,
// follows it if it is, and repeats collecting, all of which may be done twice. A job whose machine ends
// under it is begun anew with its inputs, up to mostAttempts times; one that is paused is resumed.
//
// # Lock order
//
// Store.mu is short; nothing is waited for under it.
package job
