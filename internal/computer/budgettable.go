package computer

import (
	"fmt"
	"strings"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/store/db"
)

// warnAt is the fraction of a budget at which a warning is logged.
const warnAt = 0.8

// budget is a row of its table.
type budget struct {
	holt.Budget
	cpu, run int64 // used, nanoseconds
	warned   bool
}

func (b *budget) columns() []column {
	return []column{
		text("computer", &b.ComputerID), text("name", &b.Computer), number("cpu_ms", &b.CPUMS), number("run_ms", &b.RunMS), number("network", &b.NetworkBytes),
		number("cpu", &b.cpu), number("run", &b.run), number("sent", &b.Used.NetworkBytes), boolean("warned", &b.warned), stamp("created", &b.CreatedAt),
	}
}

// covers reports whether the budget counts a computer.
func (b budget) covers(r record) bool {
	return b.ComputerID == r.ID || strings.Contains(r.lineage+" ", " "+string(b.ComputerID)+" ")
}

func selectBudgets(tx *db.Tx, condition string, args ...any) (all []budget, err error) {
	err = selectRows(tx, "budget", condition, args, (*budget).columns, func(b *budget) error {
		b.Used.CPUMS, b.Used.RunMS = b.cpu/1e6, b.run/1e6
		b.Exhausted = b.Fullest() >= 1
		all = append(all, *b)
		return nil
	})
	return all, err
}

// addBudgets adds to each record the budgets that count it.
func addBudgets(tx *db.Tx, list []record) error {
	all, err := selectBudgets(tx, `ORDER BY created, computer`)
	for i := range list {
		for _, b := range all {
			if b.covers(list[i]) {
				list[i].Budgets = append(list[i].Budgets, b.Budget)
			}
		}
	}
	return err
}

// checkBudgets returns TooMany if a budget that counts a computer is exhausted.
func checkBudgets(tx *db.Tx, r record) error {
	all, err := selectBudgets(tx, `ORDER BY created, computer`)
	for _, b := range all {
		if b.Exhausted && b.covers(r) {
			return budgetExhausted(b.Budget, r.Name)
		}
	}
	return err
}

func budgetExhausted(b holt.Budget, name string) *holt.Error {
	of := "the budget of " + b.Computer
	if b.Computer != name {
		of += ", which counts its fork " + name + ","
	}
	ref, what, flag := b.Computer, "", ""
	switch {
	case b.CPUMS > 0 && b.Used.CPUMS >= b.CPUMS:
		what, flag = fmt.Sprintf("%s of %s of processor time", holt.ShortMS(b.Used.CPUMS), holt.ShortMS(b.CPUMS)), "--cpu-hours N"
	case b.RunMS > 0 && b.Used.RunMS >= b.RunMS:
		what, flag = fmt.Sprintf("%s of %s of run time", holt.ShortMS(b.Used.RunMS), holt.ShortMS(b.RunMS)), "--run-time DURATION"
	default:
		what, flag = fmt.Sprintf("%d of %d bytes of traffic", b.Used.NetworkBytes, b.NetworkBytes), "--network-mb N"
	}
	e := holt.Errorf(holt.TooMany, "%s is exhausted: used %s", of, what).
		WithHint("raise it with holt computer budget %s %s, or remove it with holt computer budget %[1]s --remove", ref, flag)
	e.Detail = b
	return e
}

// reading is what the host reports of one machine.
type reading struct {
	machine.Consumption
	network   int64 // bytes since its computer was made
	networked bool  // that is known
}

// process identifies the machine's process in a meter.
func (g reading) process() string { return fmt.Sprintf("%s/%d/%d", g.BootID, g.PID, g.Start) }

// settleMeter adds what a machine has used since the last reading to all budgets that count its
// computer, as part of a transaction.
func settleMeter(tx *db.Tx, r record, g reading) error {
	var was reading
	var process string
	err := tx.Query(`SELECT process, cpu, age, network FROM meter WHERE computer = ?`, []any{r.ID}, func(row *db.Row) error {
		process, was.CPU, was.Age, was.network = row.Text(0), time.Duration(row.Int64(1)), time.Duration(row.Int64(2)), row.Int64(3)
		return nil
	})
	if err != nil {
		return err
	}
	if process != g.process() {
		was.CPU, was.Age = 0, 0
	}
	if !g.networked {
		g.network = was.network
	}
	err = tx.Exec(`UPDATE budget SET cpu = cpu + ?3, run = run + ?4, sent = sent + ?5 WHERE computer = ?1 OR instr(?2, ' ' || computer || ' ') > 0`,
		r.ID, r.lineage+" ", max(0, int64(g.CPU-was.CPU)), max(0, int64(g.Age-was.Age)), max(0, g.network-was.network))
	if err != nil {
		return err
	}
	return setMeter(tx, r.ID, g)
}

// setMeter records a reading as counted.
func setMeter(tx *db.Tx, id holt.ComputerID, g reading) error {
	return tx.Exec(`INSERT OR REPLACE INTO meter (computer, process, cpu, age, network) VALUES (?, ?, ?, ?, ?)`,
		id, g.process(), int64(g.CPU), int64(g.Age), g.network)
}

// saveBudget records the limits of a budget and, if it begins, that nothing is used.
func saveBudget(tx *db.Tx, b holt.Budget, begins bool) error {
	if begins {
		if err := tx.Exec(`INSERT OR REPLACE INTO budget (computer, name, cpu_ms, run_ms, network, created) VALUES (?, ?, 0, 0, 0, ?)`,
			b.ComputerID, b.Computer, b.CreatedAt.UnixNano()); err != nil {
			return err
		}
	}
	return tx.Exec(`UPDATE budget SET name = ?2, cpu_ms = ?3, run_ms = ?4, network = ?5, warned = ?6 WHERE computer = ?1`,
		b.ComputerID, b.Computer, b.CPUMS, b.RunMS, b.NetworkBytes, b.Fullest() >= warnAt)
}

// eraseBudgets removes the meter of a deleted computer, and budgets that count no computer any
// more.
func eraseBudgets(tx *db.Tx, gone holt.ComputerID) error {
	if err := tx.Exec(`DELETE FROM meter WHERE computer = ?`, gone); err != nil {
		return err
	}
	return tx.Exec(`DELETE FROM budget WHERE NOT EXISTS (SELECT 1 FROM computer c WHERE c.id = budget.computer OR instr(c.lineage || ' ', ' ' || budget.computer || ' ') > 0)`)
}
