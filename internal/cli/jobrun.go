package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

// jobFlags are what the flags of job run say besides the [holt.JobSpec].
type jobFlags struct {
	runFlags
	image, in, out string
	exclude        []string
	reach          networkFlags
	publish        string
	publishPaths   []string
	batchFlags
}

func (a *app) jobRun() *cobra.Command {
	var spec holt.JobSpec
	var flags jobFlags
	cmd := &cobra.Command{
		Use:   `run "shell command" | run -- PROGRAM ARGS… | run --batch FILE.jsonl`,
		Short: "Run a command in a temporary computer",
		Long: `Creates a computer from a template with the files of --in in its workspace, runs the command there,
copies the files in /home/agent/out (or --collect) to the local directory --out, and deletes the
computer. The command's output is passed through unchanged, and the exit status is that of the
command. Ctrl-C cancels the job; a second Ctrl-C exits immediately. With --background it prints the
job's id and exits (see holt job follow). The daemon may be on another machine.

With --publish, each file of the outputs becomes an artifact when the command has succeeded, before the
computer is deleted, at most 1000. Their origin has the job and its run.

These files of --in are not sent: the directory --out if it is inside; files that match --exclude or
a .holtignore file (patterns of gitignore(5)); unreadable files; pipes, sockets and devices. Standard
error lists them. They do not change the exit status.

The command can reach the internet, but not this machine or private networks. --egress off blocks
the network, --allow permits only the given destinations (see holt computer network). With
--secrets-of, the proxy adds that computer's host secrets to requests.

With --batch, each line of a file is a job. Flags are the defaults of its fields:
  {"id": "a", "command": "make", "in": "a.src", "env": {"K": "V"}, "timeout": "10m"}
Other fields: argv (instead of command), user, cwd, template, image, engine, cpus, memory_mb,
disk_size_mb, collect, egress, allow (a list; replaces --allow) and secrets_of. Paths are relative
to the file. A directory is sent once, however many jobs use it. The outputs of a job go to DIR/ID,
its output to DIR/ID.log, and its result to a line of DIR/results.jsonl, where DIR is --out or
FILE.out. --resume skips lines that already have a result for the same id and content, and waits for
running jobs. The exit status is 1 if a job failed.`,
		Example: `  holt job run --in . --out results --timeout 10m "make test && cp report.xml out"
  holt job run --in . --egress off "python3 untrusted.py"
  holt job run --template coding-agent --cpus 2 --memory-mb 2048 -- python3 -c 'print(6*7)'
  holt job run --in . --publish=builds "make && cp app out"
  holt job run --batch sizes.jsonl --parallel 8 --out results
  holt job run --batch sizes.jsonl --parallel 8 --out results --resume --retry-failed`,
		Args: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if (flags.file != "" && len(args) == 0) || (flags.file == "" && (dash == 0 && len(args) > 0 || dash < 0 && len(args) == 1)) {
				return nil
			}
			return holt.Errorf(holt.InvalidArgument, "job run needs exactly one command, or --batch").
				WithHint(`quote a shell command: holt job run "ls -l | wc -l"; or run a program: holt job run -- ls -l`)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseEmptyFlags(cmd); err != nil {
				return err
			}
			if err := flags.fill(&spec, args, cmd.ArgsLenAtDash() == 0, a.getenv); err != nil {
				return err
			}
			spec.Network = flags.reach.policy(cmd, holt.NetworkPolicy{})
			c, err := a.connect()
			if err != nil {
				return err
			}
			if flags.file != "" {
				return a.runBatch(cmd.Context(), c, spec, flags)
			}
			return a.runJob(cmd.Context(), c, spec, flags)
		},
	}
	f := cmd.Flags()
	f.StringVar(&spec.Template, "template", "", "source of its root disk: a template, the path of a recipe, or an OCI image (default: base)")
	f.StringVar(&flags.image, "image", "", "an OCI image instead of a template: docker://…, oci:… or docker-archive:…")
	engineFlag(cmd, &spec.Engine)
	f.IntVar(&spec.CPUs, "cpus", 0, "virtual processors (default: 1)")
	f.IntVar(&spec.MemoryMB, "memory-mb", 0, "memory, MiB (default: 1024)")
	f.IntVar(&spec.DiskSizeMB, "disk-size-mb", 0, "root disk, MiB (default: 10240)")
	f.StringVar(&flags.in, "in", "", "local directory whose files are the job's inputs (default: none)")
	excludeFlag(cmd, &flags.exclude)
	f.StringVar(&spec.Workspace, "workspace", "", "use the files of this workspace as inputs instead, now or at NAME@CHECKPOINT")
	f.StringVar(&flags.out, "out", "", "local directory for the outputs (default: outputs are discarded)")
	f.StringVar((*string)(&spec.Collect), "collect", "", "directory of the job's workspace that holds the outputs (default: out)")
	f.StringVar(&flags.publish, "publish", "", "publish the outputs as artifacts JOB/PATH in this bucket, if the command succeeds (--publish alone: artifacts)")
	f.Lookup("publish").NoOptDefVal = holt.DefaultBucket
	f.StringArrayVar(&flags.publishPaths, "publish-path", nil, "publish only this output, such as report.pdf (repeatable)")
	f.DurationVar(&flags.timeout, "timeout", 0, "end the command after this time, such as 90s or 10m (default: 6h)")
	f.StringArrayVarP(&flags.env, "env", "e", nil, "environment variable KEY=VALUE, or KEY to pass this shell's value if it is set (repeatable)")
	f.StringArrayVar(&flags.secrets, "secret", nil, "like --env, but the value is shown as *** in the job's output and record")
	f.StringVarP(&spec.Run.User, "user", "u", "", "Linux user (default: agent)")
	f.StringVar((*string)(&spec.Run.Cwd), "cwd", "", "working directory, absolute (default: the workspace, /home/agent)")
	secretsOfFlag(a, cmd, &spec.SecretsOf)
	flags.reach.add(a, cmd)
	f.BoolVar(&flags.background, "background", false, "print the job's id and exit")
	f.BoolVar(&a.json, "json", false, "at the end, print the job with its output as one JSON object")
	flags.add(cmd)
	a.completeFlag(cmd, "template", a.templateNames)
	a.completeFlag(cmd, "workspace", a.workspaceNames)
	return cmd
}

// fill puts the command and the flags into spec.
func (f *jobFlags) fill(spec *holt.JobSpec, args []string, program bool, getenv func(string) string) (err error) {
	if f.file == "" {
		if f.parallel != 0 || f.resume || f.retry {
			return holt.Errorf(holt.InvalidArgument, "--parallel, --resume and --retry-failed need --batch").WithHint("add --batch FILE.jsonl, or leave them out")
		}
		if err := commandInto(&spec.Run, append([]string{"job"}, args...), program); err != nil {
			return err
		}
	} else if f.background {
		return holt.Errorf(holt.InvalidArgument, "--batch and --background exclude each other").WithHint("run the command in the background of your shell; if it is killed, continue with --resume")
	}
	if err := f.runFlags.into(&spec.Run, getenv); err != nil {
		return err
	}
	if f.in != "" && spec.Workspace != "" {
		return holt.Errorf(holt.InvalidArgument, "--in and --workspace exclude each other").WithHint("use only one of them")
	}
	if f.background && f.out != "" {
		return holt.Errorf(holt.InvalidArgument, "--background and --out exclude each other").WithHint("fetch the outputs when the job has ended: holt job outputs JOB DIR")
	}
	if f.publish != "" || len(f.publishPaths) > 0 {
		spec.Publish = &holt.JobPublish{Bucket: f.publish}
		for _, file := range f.publishPaths {
			spec.Publish.Paths = append(spec.Publish.Paths, holt.OSString(file))
		}
	}
	spec.Template, err = templateRef(spec.Template, f.image, "")
	return err
}

// templateRef returns the template that is meant. Of a recipe file that is its absolute path: the daemon has another
// working directory.
func templateRef(template, image, dir string) (string, error) {
	switch {
	case image != "" && template != "":
		return "", holt.Errorf(holt.InvalidArgument, "--template and --image exclude each other").WithHint("use only one of them")
	case image != "" && !holt.OCIReference(image):
		return "", holt.Errorf(holt.InvalidArgument, "%q is not an OCI image", image).WithHint("use docker://NAME:TAG, oci:DIR or docker-archive:FILE")
	case image != "":
		return image, nil
	case strings.Contains(template, "/") && !holt.OCIReference(template):
		if dir != "" && !filepath.IsAbs(template) {
			template = filepath.Join(dir, template)
		}
		return filepath.Abs(template)
	}
	return template, nil
}

// runJob runs one job.
func (a *app) runJob(ctx context.Context, c *client.Client, spec holt.JobSpec, flags jobFlags) (err error) {
	var not notSent
	if flags.in != "" {
		bar := a.begin("sending")
		spec.Inputs, not, err = flags.sendInputs(ctx, c, bar, flags.in, flags.out)
		bar.end()
		if err != nil {
			return err
		}
		not.say(a)
		defer dropInputs(c, spec.Inputs)
	}
	j, err := createJob(ctx, c, spec, "")
	if err != nil {
		return err
	}
	if flags.background {
		if a.json {
			return printJSON(a.Out, struct {
				holt.Job
				NotSent notSent `json:"not_sent,omitzero"`
			}{j, not})
		}
		fmt.Fprintln(a.Out, j.ID)
		return nil
	}
	r := &remoteJob{remoteRun: remoteRun{a: a, c: c}, out: flags.out, own: true, not: not}
	if a.json {
		r.kept = &keptOutput{}
	}
	return r.follow(ctx, j.ID)
}

// createJob makes a job. It hears what became of that also when ctx ends meanwhile.
func createJob(ctx context.Context, c *client.Client, spec holt.JobSpec, key string) (holt.Job, error) {
	late, cancel := linger(ctx)
	defer cancel()
	return c.Jobs.Create(late, spec, key)
}

// sendInputs sends a directory for jobs to begin with, without the directory that their outputs go to.
func (f *jobFlags) sendInputs(ctx context.Context, c *client.Client, bar *bar, dir, out string) (id holt.JobInputsID, not notSent, err error) {
	if info, err := os.Stat(dir); err != nil {
		return "", not, hinted(here(err, dir), "--in needs a local directory; leave it out for a job without inputs")
	} else if !info.IsDir() {
		return "", not, holt.Errorf(holt.InvalidArgument, "%s is not a directory", dir).WithHint("use its directory")
	}
	sel, err := selectFrom(dir, f.exclude)
	if err != nil {
		return "", not, err
	}
	sel.plain = true
	if err := sel.leaveOutputs(out); err != nil {
		return "", not, here(err, out)
	}
	_, err = sendDir(ctx, bar, sel, transferFlags{}, func(ctx context.Context, r io.Reader) (holt.TransferReport, error) {
		sent, err := c.Jobs.Send(ctx, r)
		id = sent.ID
		return sent.TransferReport, err
	})
	return id, sel.not, err
}

// parting bounds what is done for a caller who has left.
const parting = time.Minute

// dropInputs says that no more jobs begin with inputs. If it does not get through they go by themselves.
func dropInputs(c *client.Client, id holt.JobInputsID) {
	late, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	_ = c.Jobs.Drop(late, id, "")
}

// fetchOutputs copies the outputs of a job into a directory.
func fetchOutputs(ctx context.Context, c *client.Client, bar *bar, id holt.JobID, dir string) (holt.TransferReport, error) {
	return receiveDir(ctx, bar, dir, transferFlags{}, nil, func(ctx context.Context, w io.Writer) error { return c.Jobs.Outputs(ctx, id, w) })
}

// remoteJob is one job as this program follows it.
type remoteJob struct {
	remoteRun
	out string // directory for its outputs; "": none
	own bool   // it was begun here: Ctrl-C cancels it
	not notSent
}

// follow waits for the job's end and gets what it has left.
func (r *remoteJob) follow(ctx context.Context, id holt.JobID) error {
	signal.Ignore(syscall.SIGPIPE) // a write says so too, and then the job must end
	err := r.c.Jobs.Follow(ctx, id, 0, r.event)
	if r.own && (ctx.Err() != nil || errors.Is(err, syscall.EPIPE)) {
		late, cancel := context.WithTimeout(context.Background(), parting)
		defer cancel()
		if _, lost := r.c.Jobs.Cancel(late, id, ""); lost != nil {
			r.a.say("holt: the job %s continues: %s", id, visible(lost.Error()))
		} else {
			r.a.say("holt: the job %s is cancelled", id)
		}
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return exitStatus(128 + int(syscall.SIGPIPE))
	case ctx.Err() != nil:
		return err
	case err != nil:
		return runFailure{err}
	}
	j, err := r.c.Jobs.Get(ctx, id)
	if err == nil {
		err = r.fetch(ctx, &j)
	}
	if err != nil {
		return runFailure{err}
	}
	return r.finish(j)
}

// fetch gets the job's outputs, and has them removed where they were.
func (r *remoteJob) fetch(ctx context.Context, j *holt.Job) (err error) {
	if len(j.Artifacts) > 0 {
		r.a.say("holt: %s published; %s", holt.CountOf(len(j.Artifacts), "output"), published(*j))
	}
	if j.Outputs == nil || !j.Outputs.Kept || r.out == "" && !r.own {
		return nil
	}
	if r.out == "" {
		if len(j.Artifacts) == 0 {
			r.a.say("holt: outputs of %s were discarded\nhint: keep them with --out DIR", holt.CountOf(j.Outputs.Files, "file"))
		}
	} else {
		bar := r.a.begin("fetching")
		_, err = fetchOutputs(ctx, r.c, bar, j.ID, r.out)
		bar.end()
	}
	if err == nil {
		*j, err = r.c.Jobs.Release(ctx, j.ID, "")
	}
	return err
}

// published says how to find what a job has published.
func published(j holt.Job) string {
	bucket := holt.DefaultBucket
	if p := j.Spec.Publish; p != nil && p.Bucket != "" {
		bucket = p.Bucket
	}
	return fmt.Sprintf("list them with: holt artifact list %s --prefix %s/", bucket, j.ID)
}

// finish makes the job's end this program's.
func (r *remoteJob) finish(j holt.Job) error {
	if r.kept != nil {
		err := printJSON(r.a.Out, struct {
			Job       holt.Job `json:"job"`
			Stdout    string   `json:"stdout"` // bytes that are not UTF-8 are replaced
			Stderr    string   `json:"stderr"`
			Truncated bool     `json:"truncated,omitempty"`
			NotSent   notSent  `json:"not_sent,omitzero"` // of --in
		}{j, r.kept.stdout.String(), r.kept.stderr.String(), r.kept.truncated, r.not})
		if err != nil {
			return runFailure{err}
		}
	}
	switch {
	case j.State == holt.JobCancelled:
		return runFailure{holt.Errorf(holt.Conflict, "the job %s was cancelled", j.ID).WithHint("run it again with: holt job run")}
	case j.Error != nil:
		return runFailure{j.Error}
	case j.TimedOut && r.kept == nil:
		r.a.say("holt: the command exceeded its timeout and was ended\nhint: set a longer --timeout")
	case r.kept == nil:
		r.a.sayMemory(j.OutOfMemory)
	}
	if err := r.short("job", string(j.ID), j.ExitCode); err != nil {
		return err
	}
	if j.ExitCode != 0 {
		return exitStatus(j.ExitCode)
	}
	return nil
}
