package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) jobCommand() *cobra.Command {
	cmd := group("job", "Commands that run once in a temporary computer", a.jobRun(), a.jobList(), a.jobGet(), a.jobFollow(), a.jobOutputs(), a.jobCancel(), a.jobDelete())
	cmd.Aliases = []string{"jobs"}
	cmd.Long = `A job is one command with its inputs. It runs in its own computer, created from a template, whose
workspace starts with the inputs. The files that the command leaves in the directory out are its
outputs. When the job ends, its outputs and exit status are kept and the computer is deleted.

The daemon runs jobs: they continue if the client disconnects or the daemon restarts. A job is queued
until the host has memory for its computer. If the machine fails, the job starts again with its
inputs, three times at most. Outputs are kept for 24 hours unless released earlier. The daemon
keeps the last 1000 jobs of a tenant, and those with outputs, each with its last 64 KiB of output.`
	return cmd
}

func (a *app) jobList() *cobra.Command {
	limit := mostRunsShown
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List jobs, newest first", Args: exactly(0),
		Example: "  holt job list\n  holt job list --json | jq -r '.[] | select(.state == \"failed\").id'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			list, err := c.Jobs.List(cmd.Context(), "", min(limit, holt.MostPerPage))
			switch {
			case err != nil:
				return err
			case a.wantsJSON():
				return printJSON(a.Out, list)
			case len(list) == 0:
				a.say("no jobs yet; run one with: holt job run \"make test\" --in . --out results")
				return nil
			}
			rows := make([][]string, len(list))
			for i, j := range list {
				rows[i] = []string{string(j.ID), jobState(j), ago(j.CreatedAt), jobTook(j), clipLine(commandOf(j.Spec.Run), 60)}
			}
			return printTable(a.Out, []string{"JOB", "STATE", "CREATED", "TOOK", "COMMAND"}, rows)
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", mostRunsShown, "number of jobs to list, at most 1000")
	a.jsonFlag(cmd)
	return cmd
}

// jobState says how a job is, in a few words.
func jobState(j holt.Job) string {
	switch {
	case j.State != holt.JobFailed:
		return string(j.State)
	case j.TimedOut:
		return "failed: timed out"
	case j.Error != nil:
		return "failed: " + string(j.Error.Code)
	case j.OutOfMemory != nil:
		return "failed: out of memory"
	case j.Signal != "":
		return "failed: " + visible(j.Signal)
	}
	return fmt.Sprintf("failed: exit %d", j.ExitCode)
}

// jobTook says how long a job took, without its time in the queue.
func jobTook(j holt.Job) string {
	switch {
	case j.StartedAt == nil:
		return "-"
	case j.EndedAt == nil:
		return span(time.Since(*j.StartedAt))
	}
	return took(float64(jobMS(j)))
}

func jobMS(j holt.Job) int64 {
	if j.StartedAt == nil || j.EndedAt == nil {
		return 0
	}
	return j.EndedAt.Sub(*j.StartedAt).Milliseconds()
}

func (a *app) jobGet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get JOB", Aliases: []string{"show"}, Short: "Show a job", Args: exactly(1),
		ValidArgsFunction: a.complete(a.jobIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := a.theJob(args[0])
			if err != nil {
				return err
			}
			j, err := c.Jobs.Get(cmd.Context(), id)
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, j)
			}
			return printTable(a.Out, nil, jobRows(j))
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func jobRows(j holt.Job) [][]string {
	rows := [][]string{{"job", string(j.ID)}, {"command", commandOf(j.Spec.Run)}, {"state", jobState(j)}}
	if j.Reason != "" {
		rows = append(rows, []string{"because", visible(j.Reason)})
	}
	if j.Error != nil {
		rows = append(rows, []string{"error", visible(j.Error.Message)})
	}
	rows = append(rows, memoryRows(j.OutOfMemory)...)
	rows = append(rows, []string{"template", j.Spec.Template}, []string{"cpus", fmt.Sprint(j.Spec.CPUs)}, []string{"memory", size(int64(j.Spec.MemoryMB) << 20)})
	if p := j.Spec.Network; p != nil {
		rows = append(rows, []string{"egress", strings.TrimSuffix(string(p.Egress)+": "+visible(strings.Join(p.Allow, ", ")), ": ")})
	}
	if j.Spec.SecretsOf != "" {
		rows = append(rows, []string{"secrets of", j.Spec.SecretsOf})
	}
	if from := cmp.Or(string(j.Spec.Inputs), j.Spec.Workspace); from != "" {
		rows = append(rows, []string{"inputs", from})
	}
	if o := j.Outputs; o != nil {
		said := fmt.Sprintf("%s, %s", holt.CountOf(o.Files, "file"), size(o.Bytes))
		if o.Kept {
			said += "; get them with: holt job outputs " + string(j.ID) + " DIR"
		}
		rows = append(rows, []string{"outputs", said})
	}
	if len(j.Artifacts) > 0 {
		rows = append(rows, []string{"published", holt.CountOf(len(j.Artifacts), "output") + "; " + published(j)})
	}
	rows = append(rows, []string{"created", ago(j.CreatedAt)}, []string{"took", jobTook(j)})
	if s := j.Steps; s.CreateMS > 0 {
		rows = append(rows, []string{"steps", fmt.Sprintf("create %s, command %s, collect %s, delete %s", took(float64(s.CreateMS)), took(float64(s.RunMS)), took(float64(s.CollectMS)), took(float64(s.DeleteMS)))})
	}
	if j.Attempts > 1 {
		rows = append(rows, []string{"attempts", fmt.Sprint(j.Attempts)})
	}
	return rows
}

func (a *app) jobFollow() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "follow JOB", Aliases: []string{"attach", "logs"}, Short: "Print a job's output until it ends", Args: exactly(1),
		Long: `Prints the output of the job's command, standard output and standard error separately, until the job
ends, and exits with its status. Of a job that has ended, the last 64 KiB are kept; missing output is
marked. With --out the command then fetches the outputs. Ctrl-C stops following; the job continues.`,
		Example:           "  id=$(holt job run --in . --background \"make test\"); holt job follow $id --out results",
		ValidArgsFunction: a.complete(a.jobIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseEmptyFlags(cmd); err != nil {
				return err
			}
			c, id, err := a.theJob(args[0])
			if err != nil {
				return err
			}
			r := &remoteJob{remoteRun: remoteRun{a: a, c: c}, out: out}
			if a.json {
				r.kept = &keptOutput{}
			}
			return r.follow(cmd.Context(), id)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "fetch the outputs into this local directory, and remove them from the daemon")
	cmd.Flags().BoolVar(&a.json, "json", false, "at the end, print the job with its output as one JSON object")
	return cmd
}

func (a *app) jobOutputs() *cobra.Command {
	var release bool
	cmd := &cobra.Command{
		Use: "outputs JOB DIR", Short: "Copy the outputs of a job into a local directory", Args: exactly(2),
		Long: `Copies the outputs of a job that has ended into DIR, which is created if needed. The daemon keeps
them for 24 hours after the job's end, unless --release is given.`,
		ValidArgsFunction: a.complete(a.jobIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := a.theJob(args[0])
			if err != nil {
				return err
			}
			bar := a.begin("fetching")
			report, err := fetchOutputs(cmd.Context(), c, bar, id, args[1])
			bar.end()
			if err == nil && release {
				_, err = c.Jobs.Release(cmd.Context(), id, "")
			}
			if err != nil {
				return err
			}
			return a.reportTransfer("fetched", report, refusals{}, notSent{})
		},
	}
	cmd.Flags().BoolVar(&release, "release", false, "then remove them from the daemon")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) jobCancel() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cancel JOB...", Short: "Cancel jobs and delete their computers", Args: exactly(1),
		Long:              "Cancels jobs and deletes their computers. A job that has ended is not changed.",
		ValidArgsFunction: a.completeAll(a.jobIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := a.theJob(args[0])
			if err != nil {
				return err
			}
			j, err := c.Jobs.Cancel(cmd.Context(), id, "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, j)
			}
			fmt.Fprintf(a.Out, "%s is %s\n", id, jobState(j))
			return nil
		},
	}
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

func (a *app) jobDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete JOB...", Aliases: []string{"rm"}, Short: "Delete jobs with their outputs; running ones are cancelled", Args: exactly(1),
		ValidArgsFunction: a.completeAll(a.jobIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := a.theJob(args[0])
			if err != nil {
				return err
			}
			if err := c.Jobs.Delete(cmd.Context(), id, ""); err != nil {
				return err
			}
			return a.deleted(string(id))
		},
	}
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

// theJob connects and reads a job's id.
func (a *app) theJob(arg string) (*client.Client, holt.JobID, error) {
	id, err := holt.ParseJobID(arg)
	if err != nil {
		return nil, "", err
	}
	c, err := a.connect()
	return c, id, err
}

// jobIDs completes jobs, the newest first.
func (a *app) jobIDs(ctx context.Context, c *client.Client) (out []string) {
	list, _ := c.Jobs.List(ctx, "", mostRunsShown) // no daemon, no jobs
	for _, j := range list {
		out = append(out, string(j.ID)+"\t"+strings.TrimSpace(jobState(j)+" "+clipLine(commandOf(j.Spec.Run), 40)))
	}
	return out
}
