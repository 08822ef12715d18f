// Package job runs a command in a computer that is created for it and deleted after it. The job has
// inputs, outputs and an exit status.
//
// [Store] is the set of jobs of one daemon. It is not a scheduler: jobs have no times and no
// dependencies, and a batch is driven by its client. It reaches computers, runs and
// workspaces only through the interfaces here.
//
// # Format
//
// Tables job and job_inputs of the control database ([Schema]), and a file for each
// job, DIR/<id>, with the end of its output as JSON of holt.RunEvents. The file is
// written before the row says that the command has ended, and removed before the row.
//
// # Crash only
//
// A job survives the daemon. Its row is written before its workspace and computer are created,
// and deleted after they are. The row names the workspace in advance, and the computer's record names the job.
// The next daemon continues each job (see worker.attempt): it creates the computer if there is none,
// starts the command (with the idempotency key of the attempt) if the row names no run,
// follows the run otherwise, and repeats collecting. Each step can be repeated. A job whose machine
// ends is started again with its inputs, up to mostAttempts times. A job whose computer is paused is resumed.
//
// # Lock order
//
// Store.mu is a short lock: no code waits while it holds it.
package job
