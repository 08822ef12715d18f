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

func (a *app) scheduleCommand() *cobra.Command {
	cmd := group("schedule", "Commands that run in computers at set times (cron)",
		a.scheduleAdd(), a.scheduleList(), a.scheduleShow(), a.scheduleUpdate(), a.scheduleEnable(), a.scheduleDisable(), a.scheduleRun(), a.scheduleHistory(), a.scheduleDelete())
	cmd.Aliases = []string{"schedules"}
	cmd.Long = `A schedule runs a command in a computer at the times of a cron expression in a time zone. When it is
due, the computer is woken and the command runs; then the computer is paused or stopped again, unless
something else uses it. If a pause interrupts a run, the run continues when the schedule is due next.
The runs are ordinary runs (holt run show, follow). The writer of files that they change is the
schedule's name:
  holt workspace query einstein "SELECT path FROM files WHERE writer = 'nightly'"

To name a schedule, use its id, its name if that is unique, or COMPUTER@NAME. A schedule is deleted
with its computer. Forks do not get it.

Daylight saving time: a time that does not exist is due when the clock has moved forward, and a time
that exists twice is due once. With * as minute or hour, the intervals are real time.`
	return cmd
}

// scheduleFlags are what schedule add and update say of a schedule.
type scheduleFlags struct {
	cron, zone, missed, overlap string
	keepAwake                   bool
	run                         holt.RunSpec
	env                         []string
	timeout                     time.Duration
}

func (f *scheduleFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.cron, "cron", "", `cron expression: minute, hour, day of month, month, day of week, such as "0 3 * * *"; or @hourly, @daily, @weekly, @monthly, @yearly`)
	flags.StringVar(&f.zone, "tz", "", "time zone, such as Europe/Berlin (default: UTC)")
	flags.StringVar(&f.missed, "missed", "", "what to do about times missed while the daemon was down: skip, once (one run for all) or all (one run for each, at most 24) (default: once)")
	flags.StringVar(&f.overlap, "overlap", "", "what to do if the previous run is still in progress: skip, queue (one waits) or replace (end the previous run) (default: skip)")
	flags.BoolVar(&f.keepAwake, "keep-awake", false, "leave the computer running if it was paused or stopped before")
	flags.StringVarP(&f.run.User, "user", "u", "", "Linux user (default: agent)")
	flags.StringVar((*string)(&f.run.Cwd), "cwd", "", "working directory, absolute (default: the workspace, /home/agent)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable KEY=VALUE, or KEY to store this shell's value; stored on the daemon's disk, only names are shown (repeatable)")
	flags.DurationVar(&f.timeout, "timeout", 0, "end the command after this time, such as 90s or 10m (default: never)")
	for flag, values := range map[string][]string{"missed": {"skip", "once", "all"}, "overlap": {"skip", "queue", "replace"}} {
		if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // the flag's name is misspelt
		}
	}
}

// command reads the command behind the first n arguments; false if there is none.
func (f *scheduleFlags) command(cmd *cobra.Command, args []string, n int) (spec holt.RunSpec, given bool, err error) {
	spec = f.run
	if len(args) == n {
		return spec, false, nil
	}
	if f.timeout > 0 && f.timeout < time.Millisecond {
		return spec, true, holt.Errorf(holt.InvalidArgument, "invalid timeout %s", holt.ShortDuration(f.timeout)).WithHint("use a duration above 0, such as 90s or 10m, or leave --timeout out")
	}
	spec.TimeoutMS = f.timeout.Milliseconds()
	if spec.Env, err = parseEnv(f.env); err != nil {
		return spec, true, err
	}
	return spec, true, commandInto(&spec, args[n-1:], cmd.ArgsLenAtDash() == n)
}

// withCommand checks that n arguments come with a command, which update may leave out.
func withCommand(n int, must bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		if dash == n && len(args) > n || dash < 0 && len(args) == n+1 || !must && dash < 0 && len(args) == n {
			return nil
		}
		return holt.Errorf(holt.InvalidArgument, "%s needs %s and exactly one command", cmd.Name(), holt.CountOf(n, "argument")).
			WithHint(`quote a shell command: "make report > report.md"; or put a program and its arguments after --. Usage: %s`, cmd.UseLine())
	}
}

func (a *app) scheduleAdd() *cobra.Command {
	var f scheduleFlags
	var disabled bool
	cmd := &cobra.Command{
		Use:   `add COMPUTER NAME --cron "…" "shell command" | … -- PROGRAM ARGS…`,
		Short: "Run a command in a computer at set times", Aliases: []string{"create"},
		Long: `Creates a schedule. The command is one argument for the shell, or a program and its arguments after
--, as for holt computer run. It has no standard input.`,
		Example: `  holt schedule add einstein nightly --cron "0 3 * * *" --tz Europe/Berlin "make report"
  holt schedule add einstein watch --cron "*/15 8-18 * * MON-FRI" --overlap skip --timeout 10m -- ./check --all
  holt schedule run nightly`,
		Args: withCommand(2, true), ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			if f.cron == "" {
				return holt.Errorf(holt.InvalidArgument, "--cron is missing").WithHint(`for example --cron "0 3 * * *" for every day at 3:00; the fields are minute, hour, day of month, month, day of week`)
			}
			spec := holt.ScheduleSpec{Computer: args[0], Name: args[1], Cron: f.cron, TimeZone: f.zone,
				Missed: holt.MissedPolicy(f.missed), Overlap: holt.OverlapPolicy(f.overlap), KeepAwake: f.keepAwake, Disabled: disabled}
			if spec.Spec, _, err = f.command(cmd, args, 2); err != nil {
				return err
			}
			made, err := c.Schedules.Create(cmd.Context(), spec, "")
			if err != nil {
				return err
			}
			return a.sayChanged(made, "is created")
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&disabled, "disabled", false, "create it disabled")
	a.jsonFlag(cmd)
	return cmd
}

// sayChanged shows a schedule that was made or changed.
func (a *app) sayChanged(s holt.Schedule, what string) error {
	if a.wantsJSON() {
		return printJSON(a.Out, s)
	}
	fmt.Fprintf(a.Out, "schedule %s of %s %s; %s\n", s.Name, s.Computer, what, nextSaid(s))
	return nil
}

// nextSaid says when a schedule is due next.
func nextSaid(s holt.Schedule) string {
	if !s.Enabled {
		return "disabled"
	}
	if len(s.Next) == 0 {
		return "not due within the next years"
	}
	var times []string
	for _, t := range s.Next {
		times = append(times, calendar(t))
	}
	return fmt.Sprintf("due %s (%s)", strings.Join(times, ", "), visible(s.TimeZone))
}

// calendar shows an instant as a calendar does, by the clock of its zone.
func calendar(t time.Time) string { return t.Format("Mon 2006-01-02 15:04") }

func (a *app) scheduleList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [COMPUTER]", Aliases: []string{"ls"}, Short: "List schedules", Args: atLeast(0, 1),
		Long: `Lists the schedules of one computer or of all. NEXT is in the schedule's TIME ZONE. LAST is the
result of the last firing.`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			list, err := c.Schedules.List(cmd.Context(), strings.Join(args, ""))
			switch {
			case err != nil:
				return err
			case a.wantsJSON():
				return printJSON(a.Out, list)
			case len(list) == 0:
				a.say("no schedules yet; create one with: holt schedule add COMPUTER NAME --cron \"0 3 * * *\" \"make report\"")
				return nil
			}
			rows := make([][]string, len(list))
			for i, s := range list {
				rows[i] = []string{s.Name, s.Computer, visible(s.Cron), visible(s.TimeZone), nextShown(s), lastShown(s), clipLine(commandOf(s.Spec), 60)}
			}
			return printTable(a.Out, []string{"NAME", "COMPUTER", "CRON", "TIME ZONE", "NEXT", "LAST", "COMMAND"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func nextShown(s holt.Schedule) string {
	switch {
	case !s.Enabled:
		return "disabled"
	case len(s.Next) == 0:
		return "-"
	}
	return calendar(s.Next[0])
}

func lastShown(s holt.Schedule) string {
	switch {
	case s.Firing != nil:
		return string(s.Firing.State)
	case s.Last == nil:
		return "-"
	}
	return firingState(*s.Last) + ", " + ago(s.Last.Due)
}

// theSchedule connects and returns the schedule that an argument names.
func (a *app) theSchedule(cmd *cobra.Command, ref string) (*client.Client, holt.Schedule, error) {
	c, err := a.connectFor(cmd)
	if err != nil {
		return nil, holt.Schedule{}, err
	}
	s, err := c.Schedules.Get(cmd.Context(), ref)
	return c, s, err
}

func (a *app) scheduleShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show SCHEDULE", Aliases: []string{"get"}, Short: "Show a schedule", Args: exactly(1),
		Example:           "  holt schedule show einstein@nightly",
		ValidArgsFunction: a.complete(a.scheduleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, s, err := a.theSchedule(cmd, args[0])
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, s)
			}
			return printTable(a.Out, nil, scheduleRows(s))
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func scheduleRows(s holt.Schedule) [][]string {
	rows := [][]string{{"schedule", s.Name}, {"id", string(s.ID)}, {"computer", s.Computer}, {"cron", visible(s.Cron)}, {"time zone", visible(s.TimeZone)}, {"command", commandOf(s.Spec)}}
	for _, one := range [][]string{{"user", s.Spec.User}, {"directory", shown(s.Spec.Cwd)}, {"environment", strings.Join(shownAll(s.Variables), ", ")}} {
		if one[1] != "" {
			rows = append(rows, one)
		}
	}
	if s.Spec.TimeoutMS > 0 {
		rows = append(rows, []string{"timeout", holt.ShortMS(s.Spec.TimeoutMS)})
	}
	after := "its computer is paused or stopped again as before"
	if s.KeepAwake {
		after = "its computer is left running"
	}
	rows = append(rows, []string{"if missed", string(s.Missed)}, []string{"if it overlaps", string(s.Overlap)}, []string{"after it", after}, []string{"next", nextSaid(s)})
	if s.Firing != nil {
		rows = append(rows, []string{"now", strings.TrimSpace(string(s.Firing.State) + " " + string(s.Firing.Run))})
	}
	return append(rows, []string{"last", cmp.Or(lastOf(s.Last), "-")})
}

func lastOf(f *holt.Firing) string {
	if f == nil {
		return ""
	}
	said := firingState(*f) + ", " + ago(f.Due)
	for _, more := range []string{string(f.Run), visible(f.Reason)} {
		if more != "" {
			said += "; " + more
		}
	}
	return said
}

func shownAll(names holt.OSStrings) (out []string) {
	for _, name := range names {
		out = append(out, shown(name))
	}
	return out
}

func (a *app) scheduleUpdate() *cobra.Command {
	var f scheduleFlags
	var name string
	var enable, disable bool
	cmd := &cobra.Command{
		Use:   `update SCHEDULE ["shell command" | -- PROGRAM ARGS…]`,
		Short: "Change a schedule",
		Long: `Changes the given settings and keeps the others. A new command replaces the old one together with its
--user, --cwd, --env and --timeout. A run in progress is not affected. Times at which a schedule is
disabled do not count as missed. To only disable or enable it: holt schedule disable, holt schedule enable.`,
		Example: `  holt schedule update nightly --cron "30 4 * * *"
  holt schedule update nightly --name daily --disable
  holt schedule update einstein@nightly --env LEVEL=2 "make report"`,
		Args: withCommand(1, false), ValidArgsFunction: a.complete(a.scheduleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			change, err := f.change(cmd, args)
			if err != nil {
				return err
			}
			if enable && disable {
				return holt.Errorf(holt.InvalidArgument, "--enable and --disable exclude each other").WithHint("use only one of them")
			}
			if enable || disable {
				change.Enabled = &enable
			}
			if name != "" {
				change.Name = &name
			}
			if change == (holt.ScheduleChange{}) {
				return holt.Errorf(holt.InvalidArgument, "no change is given").WithHint("list the settings with: %s --help", cmd.CommandPath())
			}
			changed, err := c.Schedules.Update(cmd.Context(), args[0], change, "")
			if err != nil {
				return err
			}
			return a.sayChanged(changed, "is changed")
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&name, "name", "", "the new name")
	cmd.Flags().BoolVar(&enable, "enable", false, "enable it")
	cmd.Flags().BoolVar(&disable, "disable", false, "disable it")
	a.jsonFlag(cmd)
	return cmd
}

// change reads what of a schedule is to be changed.
func (f *scheduleFlags) change(cmd *cobra.Command, args []string) (change holt.ScheduleChange, err error) {
	spec, given, err := f.command(cmd, args, 1)
	if err != nil {
		return change, err
	}
	if given {
		change.Spec = &spec
	}
	for _, flag := range []string{"user", "cwd", "env", "timeout"} {
		if cmd.Flags().Changed(flag) && !given {
			return change, holt.Errorf(holt.InvalidArgument, "--%s needs a command", flag).WithHint("give the command too: both are changed together")
		}
	}
	if f.cron != "" {
		change.Cron = &f.cron
	}
	if f.zone != "" {
		change.TimeZone = &f.zone
	}
	if f.missed != "" {
		change.Missed = new(holt.MissedPolicy)
		*change.Missed = holt.MissedPolicy(f.missed)
	}
	if f.overlap != "" {
		change.Overlap = new(holt.OverlapPolicy)
		*change.Overlap = holt.OverlapPolicy(f.overlap)
	}
	if cmd.Flags().Changed("keep-awake") {
		change.KeepAwake = &f.keepAwake
	}
	return change, nil
}

func (a *app) scheduleDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete SCHEDULE...", Aliases: []string{"rm"}, Short: "Delete a schedule with its history", Args: exactly(1),
		Long:              "Deletes a schedule with its history. A run in progress is not interrupted, and its record is kept.",
		ValidArgsFunction: a.completeAll(a.scheduleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, s, err := a.theSchedule(cmd, args[0])
			if err != nil {
				return err
			}
			if err := c.Schedules.Delete(cmd.Context(), string(s.ID), ""); err != nil {
				return err
			}
			return a.deleted(s.Name)
		},
	}
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

// scheduleNames completes schedules: by name, or as COMPUTER@NAME where several have it.
func (a *app) scheduleNames(ctx context.Context, c *client.Client) (out []string) {
	all, _ := c.Schedules.List(ctx, "") // no daemon, no names
	have := map[string]int{}
	for _, s := range all {
		have[s.Name]++
	}
	for _, s := range all {
		name := s.Name
		if have[name] > 1 {
			name = s.Computer + "@" + name
		}
		out = append(out, name+"\t"+s.Computer+": "+s.Cron)
	}
	return out
}
