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
		Use: "budget NAME", Short: "Show or change the budget of a computer and its forks", Args: exactly(1),
		Long: `A budget limits what a computer, its forks, and their forks may use together from now on: CPU time, running
time (two computers for an hour are two hours), and network bytes sent and received. The host measures it.
Without flags the command shows the budgets that count this computer: its own, and those of its ancestors.

When one part is used up, these computers are paused within 15 seconds. Starting, waking or forking them
fails (exit status 5, code too_many) until the budget is raised. The daemon logs a warning at 80 %. A part
that is not given keeps its value; 0 removes it.`,
		Example: `  holt computer budget einstein --cpu-hours 2 --run-time 24h
  holt computer budget einstein --network-mb 500
  holt computer budget einstein --cpu-hours 4   # raises it; what is used still counts
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
				return holt.Errorf(holt.InvalidArgument, "a budget cannot be negative").WithHint("use 0 to remove one part, or --remove to remove the whole budget")
			}
			changes := change != holt.BudgetChange{}
			if remove && changes {
				return holt.Errorf(holt.InvalidArgument, "--remove excludes the other flags").WithHint("use --remove alone, or leave it out")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if remove {
				if err := c.Computers.RemoveBudget(cmd.Context(), args[0], ""); err != nil {
					return err
				}
				a.say("the budget of %s is removed", args[0])
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
				a.say("%s has no budget", got.Name)
				return nil
			}
			return a.printBudgets(got.Budgets, append([]holt.Budget{}, got.Budgets...))
		},
	}
	f := cmd.Flags()
	f.Float64Var(&cpu, "cpu-hours", 0, "CPU time in hours, such as 1.5")
	f.DurationVar(&run, "run-time", 0, "total running time, such as 24h")
	f.Int64Var(&network, "network-mb", 0, "network bytes sent and received, MiB")
	f.BoolVar(&reset, "reset", false, "reset the counters to 0")
	f.BoolVar(&remove, "remove", false, "remove the budget")
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
