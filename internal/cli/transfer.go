package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
	"holt/internal/store/parcel"
)

// transferFlags are what import and export share.
type transferFlags struct{ owner, devices, setID bool }

func (f *transferFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.owner, "owner", false, "keep numeric owners and groups (export needs root)")
	cmd.Flags().BoolVar(&f.devices, "devices", false, "include device nodes")
	cmd.Flags().BoolVar(&f.setID, "set-id", false, "keep set-user-id and set-group-id bits")
}

func (a *app) workspaceImport() *cobra.Command {
	var flags transferFlags
	var exclude []string
	cmd := &cobra.Command{
		Use: "import NAME[:PATH] DIR", Short: "Copy a local directory into a workspace", Args: exactly(2),
		Long: `Copies what is in DIR into the workspace, with modes, times, links, user
attributes, POSIX ACLs and holes. An existing file is overwritten: it keeps its owner
and its other hard links. Directories are merged, nothing is removed. New files belong
to agent unless --owner is given. Files that match --exclude, or a file named
.holtignore in DIR, are not sent: both take patterns of gitignore(5). Files that cannot
be read are left out. Standard error names them, and the exit status is 1. If the import
is interrupted, the files that arrived stay; import again to complete it.`,
		Example:           "  holt workspace import einstein ~/project\n  holt workspace import einstein:data /srv/data",
		ValidArgsFunction: a.complete(a.workspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := parseSpot(args[0])
			if err != nil {
				return err
			}
			if info, err := os.Stat(args[1]); err != nil {
				return here(err, args[1])
			} else if !info.IsDir() {
				return holt.Errorf(holt.InvalidArgument, "%s is not a directory", args[1]).WithHint("copy a file with: holt workspace put")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			sel, err := selectFrom(args[1], exclude)
			if err != nil {
				return err
			}
			report, err := a.importDir(cmd.Context(), c, at, sel, flags)
			if err != nil {
				return err
			}
			return a.reportTransfer("imported", report, refusals{}, sel.not)
		},
	}
	flags.add(cmd)
	excludeFlag(cmd, &exclude)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) importDir(ctx context.Context, c *client.Client, at spot, sel *selection, flags transferFlags) (holt.TransferReport, error) {
	bar := a.begin("importing")
	defer bar.end()
	return sendDir(ctx, bar, sel, flags, func(ctx context.Context, r io.Reader) (holt.TransferReport, error) {
		return c.Workspaces.Import(ctx, at.workspace, holt.ImportSpec{Path: at.path, Owner: flags.owner, Devices: flags.devices, SetID: flags.setID}, r)
	})
}

// sendDir packs a directory while it is sent. Whichever side fails first has
// the cause.
func sendDir(ctx context.Context, bar *bar, sel *selection, flags transferFlags, send func(context.Context, io.Reader) (holt.TransferReport, error)) (holt.TransferReport, error) {
	trial := *sel // which keeps no account
	total, err := parcel.Measure(ctx, sel.root, trial.options())
	if err != nil {
		return holt.TransferReport{}, located(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	var local parcel.Report
	go func() {
		out, err := parcel.NewWriter(w, total)
		if err == nil {
			opt := sel.options()
			opt.Devices, opt.SetID, opt.Progress = flags.devices, flags.setID, bar.passing(total)
			local, err = parcel.Pack(ctx, sel.root, out, opt)
		}
		if err == nil {
			err = out.Close()
		}
		w.CloseWithError(err)
		packed <- err
	}()
	report, err := send(ctx, r)
	r.CloseWithError(io.ErrClosedPipe)
	if mine := <-packed; mine != nil && !errors.Is(mine, io.ErrClosedPipe) {
		return report, partly(located(mine))
	}
	report.Devices += local.Devices
	report.LeftOut = append(report.LeftOut, local.LeftOut...)
	return report, err
}

// located gives an error of this machine's files its code and its path.
func located(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return here(err, at.Path)
	}
	return err
}

// partly says what a local failure leaves on the other side.
func partly(err error) error {
	e := *holt.AsError(err)
	if e.Hint == "" {
		e.Hint = "the files copied so far are kept; run the command again to complete it"
	}
	return &e
}

// passing shows how much of total has passed.
func (b *bar) passing(total parcel.Totals) func(string, parcel.Totals) {
	if b.bar == nil {
		return nil
	}
	next := time.Now()
	return func(name string, done parcel.Totals) {
		now := time.Now()
		if now.Before(next) {
			return
		}
		next = now.Add(100 * time.Millisecond)
		part := float64(done.Entries) / float64(max(total.Entries, done.Entries, 1))
		if total.Bytes > 0 { // a file counts as much as 4 KiB of content
			part = float64(done.Bytes+4096*done.Entries) / float64(max(total.Bytes+4096*total.Entries, done.Bytes+4096*done.Entries, 1))
		}
		b.show(Progress{Stage: fmt.Sprintf("%d of about %d, %s", done.Entries, total.Entries, size(done.Bytes)), Detail: filepath.Base(name), Fraction: part})
	}
}

func (a *app) workspaceExport() *cobra.Command {
	var flags transferFlags
	var at string
	cmd := &cobra.Command{
		Use: "export NAME[:PATH] DIR", Short: "Copy a workspace into a local directory", Args: exactly(2),
		Long: `Copies the files of the workspace to DIR, with modes, times, links, user attributes, POSIX ACLs and
holes. DIR is created if needed. Existing files are replaced, directories are merged, and nothing is
removed. Nothing is written outside of DIR, whatever links the workspace has. Files and attributes that
the file system of DIR does not support are left out and listed, and the exit status is 1.`,
		ValidArgsFunction: a.complete(a.workspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := parseSpot(args[0])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			spec := holt.ExportSpec{Path: from.path, At: at, Devices: flags.devices, SetID: flags.setID}
			var refused refusals
			report, err := a.exportDir(cmd.Context(), c, from.workspace, spec, args[1], flags, &refused)
			if err == nil {
				err = a.reportTransfer("exported", report, refused, notSent{})
			}
			return err
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&at, "at", "", "use the state at this checkpoint")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) exportDir(ctx context.Context, c *client.Client, workspace string, spec holt.ExportSpec, dir string, flags transferFlags, refused *refusals) (holt.TransferReport, error) {
	bar := a.begin("exporting")
	defer bar.end()
	return receiveDir(ctx, bar, dir, flags, refused, func(ctx context.Context, w io.Writer) error { return c.Workspaces.Export(ctx, workspace, spec, w) })
}

// refusals are what the file system here did not take.
type refusals struct {
	N     int64    `json:"refused,omitempty"`
	First []string `json:"refused_files,omitempty"` // at most 100 paths, each with why
}

func (r *refusals) add(path string, why error) {
	if r.N++; len(r.First) < 100 {
		r.First = append(r.First, strings.ReplaceAll(path, "\n", "␊")+": "+why.Error())
	}
}

// receiveDir unpacks a directory while it arrives. Nothing is made before the
// other side has begun to send. What the file system does not take ends it if refused is nil.
func receiveDir(ctx context.Context, bar *bar, dir string, flags transferFlags, refused *refusals, receive func(context.Context, io.Writer) error) (holt.TransferReport, error) {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := receive(ctx, w)
		w.CloseWithError(err)
		sent <- err
	}()
	in, err := parcel.NewReader(r)
	var local parcel.Report
	if err == nil {
		opt := parcel.Options{Owner: flags.owner, Devices: flags.devices, SetID: flags.setID, Progress: bar.passing(in.Total)}
		if refused != nil {
			opt.Refused = refused.add
		}
		local, err = parcel.Unpack(ctx, in, dir, opt)
	}
	r.CloseWithError(io.ErrClosedPipe)
	if theirs := <-sent; theirs != nil && (err == nil || errors.Is(err, theirs)) {
		return holt.TransferReport{}, theirs
	}
	if err != nil {
		return holt.TransferReport{}, partly(located(err))
	}
	return holt.TransferReport{Entries: local.Entries, Bytes: local.Bytes, Devices: local.Devices, LeftOut: local.LeftOut,
		ElapsedMS: float64(time.Since(began).Microseconds()) / 1000}, nil
}

func (a *app) reportTransfer(verb string, r holt.TransferReport, refused refusals, not notSent) error {
	not.say(a)
	for _, one := range refused.First {
		a.say("holt: left out %s", visible(one))
	}
	if refused.N > 0 {
		defer a.say("holt: files and attributes that the file system does not support: %d; everything else was copied\nhint: use a file system with larger files and attributes, such as XFS", refused.N)
	}
	var status error
	if refused.N > 0 || not.lost > 0 {
		status = exitStatus(exitFailure)
	}
	if a.wantsJSON() {
		if err := printJSON(a.Out, struct {
			holt.TransferReport
			refusals
			NotSent notSent `json:"not_sent,omitzero"`
		}{r, refused, not}); err != nil {
			return err
		}
		return status
	}
	what := "files and directories"
	if r.Entries == 1 {
		what = "file or directory"
	}
	fmt.Fprintf(a.Out, "%s %d %s, %s, in %s\n", verb, r.Entries, what, size(r.Bytes), took(r.ElapsedMS))
	if r.Devices > 0 {
		a.say("holt: left out %s; include them with --devices", holt.CountOf(r.Devices, "device node"))
	}
	return status
}
