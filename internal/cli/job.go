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
	cmd := group("job", "Commands in computers of their own that are thrown away", a.jobRun(), a.jobList(), a.jobGet(), a.jobFollow(), a.jobOutputs(), a.jobCancel(), a.jobDelete())
	cmd.Aliases = []string{"jobs"}
	cmd.Long = `A job is one command with known inputs. It gets a computer of its own, made from a template
like any other, whose workspace begins with the inputs; what the command leaves in the
directory out is its outputs. At its end these and its exit status are kept, and all else
is thrown away.

A job belongs to the daemon: it goes on when its client leaves and when the daemon is
killed. It waits, queued, until the host has memory for its computer. When its machine ends
under it, it is begun again with its inputs, three times at most. Outputs stay until they
are fetched, or for 24 hours; the last 1000 jobs of a tenant, and those with outputs,
are remembered, with the last 64 KiB of what each wrote.`
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
				a.say("no jobs yet; run one: holt job run \"make test\" --in . --out results")
				return nil
			}
			rows := make([][]string, len(list))
			for i, j := range list {
				rows[i] = []string{string(j.ID), jobState(j), ago(j.CreatedAt), jobTook(j), clipLine(commandOf(j.Spec.Run), 60)}
			}
			return printTable(a.Out, []string{"JOB", "STATE", "CREATED", "TOOK", "COMMAND"}, rows)
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", mostRunsShown, "how many to list, at most 1000")
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
			said += "; to get them: holt job outputs " + string(j.ID) + " DIR"
		}
		rows = append(rows, []string{"outputs", said})
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
		Use: "follow JOB", Aliases: []string{"attach", "logs"}, Short: "Print what a job writes, until it has ended", Args: exactly(1),
		Long: `Prints what the job's command has written and writes, its streams apart, and exits with
its status once the job has ended. Of one that is over the last 64 KiB are kept; what is
gone shows as a gap. With --out its outputs are then fetched.
Ctrl-C stops following; the job goes on.`,
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
	cmd.Flags().StringVar(&out, "out", "", "directory of this machine for its outputs, which are then removed there")
	cmd.Flags().BoolVar(&a.json, "json", false, "at the end, print the job with its output as one JSON object")
	return cmd
}

func (a *app) jobOutputs() *cobra.Command {
	var release bool
	cmd := &cobra.Command{
		Use: "outputs JOB DIR", Short: "Copy the outputs of a job into a directory of this machine", Args: exactly(2),
		Long: `Copies the outputs of a job that has ended into DIR, which is made if it is not there. They
stay with the job, for 24 hours after its end, unless --release is given.`,
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
	cmd.Flags().BoolVar(&release, "release", false, "then remove them there")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) jobCancel() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cancel JOB...", Short: "End jobs and throw away what there is of them", Args: exactly(1),
		Long:              "Ends jobs, with all that they have left, and returns when that is done. One that has ended is left as it is.",
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
		Use: "delete JOB...", Aliases: []string{"rm"}, Short: "Remove jobs with their outputs; those that have not ended are cancelled", Args: exactly(1),
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
