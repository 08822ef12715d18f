package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) serviceCommand() *cobra.Command {
	return group("service", "Programs that computers keep running",
		a.serviceAdd(), a.serviceList(), a.serviceLogs(),
		a.serviceDo("start", "Start a service, now and at every start of the computer"),
		a.serviceDo("restart", "Restart a service"),
		a.serviceDo("stop", "Stop a service, also for later starts of the computer"),
		a.serviceDo("delete", "Stop and remove a service"))
}

// readyPoll is how often a service is looked at that is waited for.
const readyPoll = 300 * time.Millisecond

func (a *app) serviceAdd() *cobra.Command {
	var spec holt.ServiceSpec
	var env []string
	var timeout time.Duration
	var wait bool
	cmd := &cobra.Command{
		Use: "add NAME SERVICE --command COMMAND", Short: "Add a service: a program that a computer keeps running", Args: exactly(2),
		Long: `Starts a program in a computer, restarts it when it fails, and starts it again with the computer. Like
every process, it continues after a pause and in forks; with --restart-in-fork it is restarted in each
fork and after a restore. It is a unit of the computer's systemd; systemctl and journalctl know its name.

A service is ready when something listens on --port, when --ready-command exits with 0, or else when it
has started. If it is not ready within --ready-timeout, it has failed. --wait waits until it is ready.
Files that it changes have the service as writer.`,
		Example: `  holt service add einstein web --command "npm run dev" --cwd /home/agent/site --port 3000 --wait
  holt service add einstein worker --command "python3 worker.py" --restart always --env QUEUE=jobs`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			spec.Name = args[1]
			if spec.Env, err = parseEnv(env); err != nil {
				return err
			}
			spec.Ready.Seconds = int((timeout + time.Second - 1) / time.Second)
			if spec, err = spec.Normal(); err != nil {
				return err
			}
			ctx := cmd.Context()
			var one holt.Service
			err = a.waitOn(c, args[0], "adding "+spec.Name, func() error {
				if one, err = c.Services.Add(ctx, args[0], spec, ""); err == nil && wait {
					one, err = awaitService(ctx, c, args[0], one)
				}
				return err
			})
			if err != nil {
				return err
			}
			return a.printService(args[0], one)
		},
	}
	f := cmd.Flags()
	f.StringVar((*string)(&spec.Command), "command", "", "the shell command, on one line")
	f.StringVarP(&spec.User, "user", "u", "", "Linux user (default: agent)")
	f.StringVar((*string)(&spec.Cwd), "cwd", "", "working directory, absolute (default: the workspace, /home/agent)")
	f.StringArrayVarP(&env, "env", "e", nil, "environment variable KEY=VALUE, or KEY to pass this shell's value if it is set (repeatable)")
	f.IntVar(&spec.Ready.Port, "port", 0, "the service is ready when something listens on this TCP port")
	f.StringVar((*string)(&spec.Ready.Command), "ready-command", "", "the service is ready when this shell command exits with 0")
	f.DurationVar(&timeout, "ready-timeout", 0, "how long it may take to become ready (default: 1m)")
	f.StringVar((*string)(&spec.Restart), "restart", "", "when to restart it: always, on-failure (default) or no")
	f.BoolVar(&spec.RestartInFork, "restart-in-fork", false, "restart it in each fork and after a restore, so that forks do not repeat its random numbers")
	f.BoolVar(&wait, "wait", false, "wait until it is ready, and fail if it is not")
	a.jsonFlag(cmd)
	return cmd
}

// awaitService waits until a service is ready, or has failed.
func awaitService(ctx context.Context, c *client.Client, computer string, one holt.Service) (_ holt.Service, err error) {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	failed := one.Restarts
	for {
		switch {
		case one.State == holt.ServiceRunning, one.State == holt.ServiceStopped && one.Reason == "" && one.ExitCode == 0 && one.Since != nil:
			return one, nil
		case one.State == holt.ServiceFailed, one.Restarts > failed:
			return one, holt.Errorf(holt.Unavailable, "the service %s is not ready: %s", one.Name, serviceState(one)).
				WithHint("read its log: holt service logs %s %s; it is kept until holt service delete", computer, one.Name)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return one, context.Canceled
		}
		if one, err = c.Services.Get(ctx, computer, one.Name); err != nil {
			return one, err
		}
	}
}

// printService shows what became of a service.
func (a *app) printService(computer string, one holt.Service) error {
	if a.wantsJSON() {
		return printJSON(a.Out, one)
	}
	fmt.Fprintf(a.Out, "%s is %s in %s\n", one.Name, serviceState(one), computer)
	a.sayMemory(one.OutOfMemory)
	if one.State == holt.ServiceStarting || one.State == holt.ServiceFailed {
		a.say("next: holt service logs %s %s", computer, one.Name)
	}
	return nil
}

// serviceState says how a service is.
func serviceState(s holt.Service) string {
	state := string(s.State)
	switch {
	case s.OutOfMemory != nil && s.State == holt.ServiceRunning:
		state += " (was out of memory)"
	case s.OutOfMemory != nil:
		state += " (out of memory)"
	case s.Signal != "" && s.State != holt.ServiceRunning:
		state += " (ended by " + s.Signal + ")"
	case s.ExitCode != 0 && s.State != holt.ServiceRunning:
		state += fmt.Sprintf(" (exit %d)", s.ExitCode)
	case s.Reason != "":
		state += " (" + visible(s.Reason) + ")"
	}
	return state
}

func (a *app) serviceList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list NAME", Aliases: []string{"ls"}, Short: "List the services of a computer", Args: exactly(1),
		Long:              `Lists the services of a computer, including those of its template. A paused or stopped computer is woken first.`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			var all []holt.Service
			err = a.waitOn(c, args[0], "asking "+args[0], func() error {
				all, err = c.Services.List(cmd.Context(), args[0])
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no services yet; add one with: holt service add %s web --command …", args[0])
				return nil
			}
			rows := make([][]string, len(all))
			for i, s := range all {
				since, from := "-", "added"
				if s.Since != nil {
					since = ago(*s.Since)
				}
				if s.Template {
					from = "template"
				}
				rows[i] = []string{s.Name, serviceState(s), since, fmt.Sprint(s.Restarts), cmp.Or(s.Spec.User, "agent"), from, whatRuns(holt.TerminalSpec{Command: s.Spec.Command})}
			}
			if err := printTable(a.Out, []string{"NAME", "STATE", "SINCE", "RESTARTS", "USER", "FROM", "COMMAND"}, rows); err != nil {
				return err
			}
			for _, s := range all {
				if s.OutOfMemory != nil {
					a.say("%s:", visible(s.Name))
					a.sayMemory(s.OutOfMemory)
				}
			}
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) serviceDo(verb, short string) *cobra.Command {
	long := short + "."
	if verb == "delete" {
		long += " A service of the template cannot be removed; stop it instead."
	}
	cmd := &cobra.Command{
		Use: verb + " NAME SERVICE...", Short: short, Args: exactly(2), Long: long,
		ValidArgsFunction: a.completeServices,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			var one holt.Service
			err = a.waitOn(c, args[0], verb+" "+args[1], func() error {
				one, err = c.Services.Do(cmd.Context(), args[0], args[1], verb, "")
				return err
			})
			switch {
			case err != nil:
				return err
			case verb == "delete":
				return a.deleted(one.Name)
			}
			return a.printService(args[0], one)
		},
	}
	if verb == "delete" {
		cmd.Aliases = []string{"rm"}
	}
	a.jsonFlag(cmd)
	return a.severally(cmd, 1)
}

func (a *app) serviceLogs() *cobra.Command {
	var q holt.ServiceLogQuery
	cmd := &cobra.Command{
		Use: "logs NAME SERVICE", Short: "Print the log of a service", Args: exactly(2),
		Long: `Prints the last lines of a service's standard output and standard error with their times, from the
computer's journal.`,
		Example: `  holt service logs einstein web -n 50
  holt service logs einstein web --follow`,
		ValidArgsFunction: a.completeServices,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			out := a.Out
			if isTerminal(a.Out) { // a guest chose these bytes
				out = &consoleWriter{w: a.Out}
			}
			err = c.Services.Logs(cmd.Context(), args[0], args[1], q, out)
			if q.Follow && cmd.Context().Err() != nil {
				return nil // Ctrl-C is how one stops following
			}
			return err
		},
	}
	cmd.Flags().IntVarP(&q.Lines, "lines", "n", 0, "number of lines from the end (default: 1000)")
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "keep printing new output")
	return cmd
}

// completeServices completes a computer, then one of its services if it runs: none is woken for that.
func (a *app) completeServices(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.ask(cmd, a.computerNames), cobra.ShellCompDirectiveNoFileComp
	default:
		return a.ask(cmd, func(ctx context.Context, c *client.Client) (out []string) {
			if one, err := c.Computers.Get(ctx, args[0]); err != nil || one.State != holt.ComputerRunning {
				return nil
			}
			all, _ := c.Services.List(ctx, args[0]) // no daemon, no names
			for _, s := range all {
				out = append(out, s.Name)
			}
			slices.SortFunc(out, strings.Compare)
			return out
		}), cobra.ShellCompDirectiveNoFileComp
	}
}
