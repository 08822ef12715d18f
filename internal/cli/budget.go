package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) computerBudget() *cobra.Command {
	var cpu float64
	var run time.Duration
	var network int64
	var reset, remove bool
	cmd := &cobra.Command{
		Use: "budget NAME", Short: "Show or change what a computer and all its forks may use", Args: exactly(1),
		Long: `Says what a computer, its forks and theirs may use together, from now on, by the host's own figures:
time of processors, time that they run (two for an hour are two hours), and bytes sent and received.
Without a flag it shows the budgets that count the computer: its own, and those of what it was forked from.

Once a part is used up all of them are paused, with their memory, within a quarter of a minute, and what
would wake, start or fork one is refused (exit status 5, code too_many) until the budget is raised. At four
fifths the daemon's log warns. A part that is not given stays as it is; 0 takes it away.`,
		Example: `  holt computer budget einstein --cpu-hours 2 --run-time 24h
  holt computer budget einstein --network-mb 500
  holt computer budget einstein --cpu-hours 4   # raises it; what is used stays used
  holt computer budget einstein --remove`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			change := holt.BudgetChange{Reset: reset}
			if given := cmd.Flags().Changed; true {
				if given("cpu-hours") {
					change.CPUMS = rounded(cpu * float64(time.Hour.Milliseconds()))
				}
				if given("run-time") {
					change.RunMS = rounded(float64(run) / float64(time.Millisecond))
				}
				if given("network-mb") {
					change.NetworkBytes = rounded(float64(network) * (1 << 20))
				}
			}
			if cpu < 0 || run < 0 || network < 0 {
				return holt.Errorf(holt.InvalidArgument, "a part of a budget cannot be below 0").WithHint("0 takes that part away, --remove all of it")
			}
			changes := change != holt.BudgetChange{}
			if remove && changes {
				return holt.Errorf(holt.InvalidArgument, "a budget is either changed or removed").WithHint("leave --remove out, or all else")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if remove {
				if err := c.Computers.RemoveBudget(cmd.Context(), args[0], ""); err != nil {
					return err
				}
				a.say("%s has no budget of its own any more", args[0])
				return nil
			}
			if changes {
				b, err := c.Computers.SetBudget(cmd.Context(), args[0], change, "")
				if err != nil {
					return err
				}
				return a.printBudgets([]holt.Budget{b}, b)
			}
			got, err := c.Computers.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if len(got.Budgets) == 0 && !a.wantsJSON() {
				a.say("no budget counts %s", got.Name)
				return nil
			}
			return a.printBudgets(got.Budgets, append([]holt.Budget{}, got.Budgets...))
		},
	}
	f := cmd.Flags()
	f.Float64Var(&cpu, "cpu-hours", 0, "time of processors, hours, as 1.5")
	f.DurationVar(&run, "run-time", 0, "time that they run, all together, as 24h")
	f.Int64Var(&network, "network-mb", 0, "what they send and receive, MiB")
	f.BoolVar(&reset, "reset", false, "count from 0 again")
	f.BoolVar(&remove, "remove", false, "take the budget away")
	a.jsonFlag(cmd)
	return cmd
}

// rounded is a whole number of what a flag gives; what is more than there can be is as much as there can be.
func rounded(f float64) *int64 {
	n := int64(-1)
	if f >= 0 {
		n = int64(math.Ceil(min(f, 1<<62)))
	}
	return &n
}

// printBudgets shows what is used of budgets.
func (a *app) printBudgets(all []holt.Budget, answer any) error {
	if a.wantsJSON() {
		return printJSON(a.Out, answer)
	}
	rows := make([][]string, len(all))
	for i, b := range all {
		cpu, run, network := budgetParts(b)
		state := fmt.Sprintf("%.0f %% used", 100*b.Fullest())
		if b.Exhausted {
			state = "exhausted"
		}
		rows[i] = []string{b.Computer, cpu, run, network, state, ago(b.CreatedAt)}
	}
	return printTable(a.Out, []string{"BUDGET OF", "CPU TIME", "RUN TIME", "NETWORK", "STATE", "COUNTS SINCE"}, rows)
}

// budgetParts says what is used of each part of a budget.
func budgetParts(b holt.Budget) (cpu, run, network string) {
	of := func(used, limit int64, say func(int64) string) string {
		if limit == 0 {
			return say(used)
		}
		return say(used) + " of " + say(limit)
	}
	return of(b.Used.CPUMS, b.CPUMS, holt.ShortMS), of(b.Used.RunMS, b.RunMS, holt.ShortMS), of(b.Used.NetworkBytes, b.NetworkBytes, size)
}

// budgetRows are what holt computer get shows of the budgets that count a computer.
func budgetRows(c holt.Computer) (rows [][]string) {
	for _, b := range c.Budgets {
		cpu, run, network := budgetParts(b)
		var parts []string
		for _, part := range []struct {
			limit      int64
			what, said string
		}{{b.CPUMS, "processor", cpu}, {b.RunMS, "run time", run}, {b.NetworkBytes, "network", network}} {
			if part.limit > 0 {
				parts = append(parts, part.what+" "+part.said)
			}
		}
		said := strings.Join(parts, ", ")
		if b.Exhausted {
			said += ": exhausted"
		}
		if b.ComputerID != c.ID {
			said += " (of " + b.Computer + ")"
		}
		rows = append(rows, []string{"budget", said})
	}
	return rows
}
