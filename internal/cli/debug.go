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
	cmd := group("debug", "Debug the daemon: profiles, goroutines, a bundle for a bug report",
		a.debugProfile(), a.debugGoroutines(), a.debugMetrics(), a.debugBundle())
	cmd.Long = `Helps with a daemon that is slow, hangs, or has a bug. Profiles and goroutines are available only on
its socket, not over TCP.`
	return cmd
}

// profiles are those that a daemon makes, besides cpu and trace.
var profiles = []string{"cpu", "heap", "allocs", "goroutine", "mutex", "block", "threadcreate", "trace"}

func (a *app) debugProfile() *cobra.Command {
	var kind, file string
	var during time.Duration
	cmd := &cobra.Command{
		Use: "profile", Short: "Write a profile of the daemon, for go tool pprof", Args: exactly(0),
		Long: "Writes a profile of the daemon to a file. A CPU profile and a trace cover the time --during.",
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
					return holt.Errorf(holt.InvalidArgument, "invalid --during %v", during).WithHint("use 1s to 10m")
				}
				query.Set("seconds", strconv.Itoa(int(during.Seconds())))
			case "heap", "allocs", "goroutine", "mutex", "block", "threadcreate":
			default:
				return holt.Errorf(holt.InvalidArgument, "no profile %q", kind).WithHint("use one of %v", profiles)
			}
			if file == "" {
				file = "holt-" + kind + ".pprof"
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			var n int64
			err = a.wait("profiling the daemon", func() error {
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
	cmd.Flags().DurationVar(&during, "during", 10*time.Second, "how long a CPU profile or a trace covers")
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
		return holt.Errorf(holt.Unsupported, "the daemon offers this only on its socket").WithHint("run the command on the daemon's machine, with --context %s", localContext)
	}
	return err
}

func (a *app) debugGoroutines() *cobra.Command {
	cmd := &cobra.Command{
		Use: "goroutines", Short: "Print the stacks of the daemon's goroutines", Args: exactly(0),
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
		Use: "metrics", Short: "Print the daemon's metrics", Args: exactly(0),
		Long:    "Prints the daemon's metrics in Prometheus' text format, as /metrics does.",
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
		Use: "bundle", Short: "Write a bundle for a bug report", Args: exactly(0),
		Long: `Writes an archive with versions, the findings of holt doctor, the daemon's health, metrics, goroutines,
heap and command line, the states of computers, the list of images, and the last 2 MiB of the log. It
contains names of computers, workspaces and files; tokens are removed. Check it before you pass it on:
tar -xzf FILE. Parts that are not available, for example because the daemon does not answer, are listed
in missing.txt.`,
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
