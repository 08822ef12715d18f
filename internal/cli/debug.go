package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) debugCommand() *cobra.Command {
	cmd := group("debug", "Look into the daemon of this machine: profiles, goroutines, a bundle for a report",
		a.debugProfile(), a.debugGoroutines(), a.debugMetrics(), a.debugBundle())
	cmd.Long = `Looks into a daemon that is slow, hangs, or has a defect. Profiles and goroutines are shown on
its socket only, not over TCP.`
	return cmd
}

// profiles are those that a daemon makes, besides cpu and trace.
var profiles = []string{"cpu", "heap", "allocs", "goroutine", "mutex", "block", "threadcreate", "trace"}

func (a *app) debugProfile() *cobra.Command {
	var kind, file string
	var during time.Duration
	cmd := &cobra.Command{
		Use: "profile", Short: "Make a profile of the daemon, for go tool pprof", Args: exactly(0),
		Long: "Makes a profile of the daemon and writes it into a file. A CPU profile and a trace take --during.",
		Example: `  holt debug profile && go tool pprof -top holt-cpu.pprof
  holt debug profile --kind heap --output heap.pprof`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, query := "/debug/pprof/"+kind, url.Values{}
			switch kind {
			case "cpu":
				path = "/debug/pprof/profile"
				fallthrough
			case "trace":
				if during < time.Second || during > 10*time.Minute {
					return holt.Errorf(holt.InvalidArgument, "--during cannot be %v", during).WithHint("give 1s to 10m")
				}
				query.Set("seconds", strconv.Itoa(int(during.Seconds())))
			case "heap", "allocs", "goroutine", "mutex", "block", "threadcreate":
			default:
				return holt.Errorf(holt.InvalidArgument, "there is no profile %q", kind).WithHint("profiles are %v", profiles)
			}
			if file == "" {
				file = "holt-" + kind + ".pprof"
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			var n int64
			err = a.wait("looking at the daemon", func() error {
				n, err = a.fetchFile(cmd.Context(), c, path, query, file)
				return err
			})
			if err != nil {
				return err
			}
			return a.wrote(file, n)
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "cpu", "cpu, heap, allocs, goroutine, mutex, block, threadcreate or trace")
	cmd.Flags().StringVarP(&file, "output", "o", "", "the file (default: holt-KIND.pprof)")
	cmd.Flags().DurationVar(&during, "during", 10*time.Second, "for how long a CPU profile or a trace is made")
	a.jsonFlag(cmd)
	a.completeFlag(cmd, "kind", func(context.Context, *client.Client) []string { return profiles })
	return cmd
}

// wrote says that a file is there.
func (a *app) wrote(file string, n int64) error {
	if a.wantsJSON() {
		return printJSON(a.Out, struct {
			File  string `json:"file"`
			Bytes int64  `json:"bytes"`
		}{file, n})
	}
	fmt.Fprintf(a.Out, "wrote %s, %s\n", file, size(n))
	return nil
}

// fetchFile writes what the daemon answers into a file, that is there only if all of it is.
func (a *app) fetchFile(ctx context.Context, c *client.Client, path string, query url.Values, file string) (int64, error) {
	var all bytes.Buffer
	if err := c.Daemon.Debug(ctx, path, query, &all); err != nil {
		return 0, notOnSocket(err)
	}
	return int64(all.Len()), here(os.WriteFile(file, all.Bytes(), 0o600), file)
}

// notOnSocket explains why a daemon over TCP does not know these paths.
func notOnSocket(err error) error {
	if holt.CodeOf(err) == holt.NotFound {
		return holt.Errorf(holt.Unsupported, "the daemon shows that on its socket only").WithHint("call it on the machine where it runs, with --context %s", localContext)
	}
	return err
}

func (a *app) debugGoroutines() *cobra.Command {
	cmd := &cobra.Command{
		Use: "goroutines", Short: "Print what every goroutine of the daemon does now", Args: exactly(0),
		Example: "  holt debug goroutines | less",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.printDebug(cmd.Context(), "/debug/pprof/goroutine", url.Values{"debug": {"2"}})
		},
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print it as one JSON string")
	return cmd
}

func (a *app) debugMetrics() *cobra.Command {
	cmd := &cobra.Command{
		Use: "metrics", Short: "Print what the daemon counts, as Prometheus reads it", Args: exactly(0),
		Long:    "Prints the daemon's metrics, in Prometheus' text format: what /metrics on its socket answers.",
		Example: "  holt debug metrics | grep holt_computers",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.printDebug(cmd.Context(), "/metrics", nil) },
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print it as one JSON string")
	return cmd
}

// printDebug prints text of the daemon: as it is also in a pipe, unless --json asks for a string.
func (a *app) printDebug(ctx context.Context, path string, query url.Values) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	if !a.json {
		return notOnSocket(c.Daemon.Debug(ctx, path, query, a.forContent()))
	}
	var text bytes.Buffer
	if err := c.Daemon.Debug(ctx, path, query, &text); err != nil {
		return notOnSocket(err)
	}
	return printJSON(a.Out, text.String())
}

func (a *app) debugBundle() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "bundle", Short: "Write a file with what a report of a defect needs", Args: exactly(0),
		Long: `Writes an archive with versions, what holt doctor finds, the daemon's health, metrics, goroutines, heap
and how it was started, the states of computers and what there is of images, and the last 2 MiB of its log. There are names of
computers, workspaces and files in it, as far as the log has them; tokens, wherever they are, are
blotted out. Look before you pass it on: tar -xzf FILE. What cannot be had, as of a daemon that
does not answer, is left out and named in missing.txt.`,
		Example: "  holt debug bundle --output report.tar.gz",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if file == "" {
				file = "holt-debug-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
			}
			var n int64
			var missing []string
			err = a.wait("collecting", func() error {
				n, missing, err = a.writeBundle(cmd.Context(), c, file)
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, struct {
					File    string   `json:"file"`
					Bytes   int64    `json:"bytes"`
					Missing []string `json:"missing"`
				}{file, n, missing})
			}
			fmt.Fprintf(a.Out, "wrote %s, %s\n", file, size(n))
			for _, what := range missing {
				a.say("without %s", visible(what))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "the file (default: holt-debug-TIME.tar.gz)")
	a.jsonFlag(cmd)
	return cmd
}

// writeBundle makes the file as one step, readable by its owner only.
func (a *app) writeBundle(ctx context.Context, c *client.Client, file string) (int64, []string, error) {
	var all bytes.Buffer
	missing, err := a.bundle(ctx, c, &all)
	if err != nil {
		return 0, nil, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, nil, here(err, file)
	}
	n, err := io.Copy(f, &all)
	if err2 := f.Close(); err == nil {
		err = err2
	}
	return n, missing, here(err, file)
}
