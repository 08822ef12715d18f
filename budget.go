package holt

import (
	"math"
	"time"
)

// Budget limits what a computer, its forks, and their forks use together, counted from when it was set. When it is
// exhausted, they are paused and cannot be woken until it is raised.
type Budget struct {
	ComputerID   ComputerID `json:"computer_id" doc:"the computer that the budget was set on; it also counts its forks and their forks"`
	Computer     string     `json:"computer" doc:"name of that computer when the budget was last set"`
	CPUMS        int64      `json:"cpu_ms,omitempty" doc:"CPU time, milliseconds; absent: no limit"`
	RunMS        int64      `json:"run_ms,omitempty" doc:"total running time of the computers, milliseconds; absent: no limit"`
	NetworkBytes int64      `json:"network_bytes,omitempty" doc:"payload bytes sent and received; absent: no limit"`
	Used         BudgetUse  `json:"used"`
	Exhausted    bool       `json:"exhausted,omitempty" doc:"the computers are paused and cannot be woken until the budget is raised"`
	CreatedAt    time.Time  `json:"created_at" doc:"when counting began"`
}

// BudgetUse is the used part of a budget, accurate to 15 seconds.
type BudgetUse struct {
	CPUMS        int64 `json:"cpu_ms" doc:"CPU time of the machines' processes on the host, milliseconds"`
	RunMS        int64 `json:"run_ms" doc:"milliseconds"`
	NetworkBytes int64 `json:"network_bytes"`
}

// BudgetChange creates or changes a budget. Absent parts keep their value; 0 removes a part.
type BudgetChange struct {
	CPUMS        *int64 `json:"cpu_ms,omitempty" minimum:"0" doc:"CPU time, milliseconds"`
	RunMS        *int64 `json:"run_ms,omitempty" minimum:"0" doc:"total running time of the computers, milliseconds"`
	NetworkBytes *int64 `json:"network_bytes,omitempty" minimum:"0" doc:"payload bytes sent and received"`
	Reset        bool   `json:"reset,omitempty" doc:"reset the counters to 0"`
}

// Apply changes b. Errors: InvalidArgument if no change is given, a part is out of range, or no part is left.
func (c BudgetChange) Apply(b *Budget) error {
	if c == (BudgetChange{}) {
		return Errorf(InvalidArgument, "no change is given").WithHint("set cpu_ms, run_ms, network_bytes or reset")
	}
	for _, part := range []struct {
		to, from *int64
		most     int64
	}{{&b.CPUMS, c.CPUMS, mostLimit}, {&b.RunMS, c.RunMS, mostLimit}, {&b.NetworkBytes, c.NetworkBytes, math.MaxInt64}} {
		if part.from != nil {
			*part.to = *part.from
		}
		if *part.to < 0 || *part.to > part.most {
			return Errorf(InvalidArgument, "a budget is negative or too large").WithHint("use 0 to remove that part")
		}
	}
	if b.CPUMS == 0 && b.RunMS == 0 && b.NetworkBytes == 0 {
		return Errorf(InvalidArgument, "a budget needs at least one part").
			WithHint("set cpu_ms, run_ms or network_bytes (--cpu-hours, --run-time, --network-mb); to remove the budget: --remove")
	}
	if c.Reset {
		b.Used, b.CreatedAt = BudgetUse{}, time.Now().UTC()
	}
	b.Exhausted = b.Fullest() >= 1
	return nil
}

// Fullest returns the highest used fraction of the budget's parts; 1 or more means exhausted.
func (b Budget) Fullest() float64 {
	most := 0.0
	for _, part := range []struct{ used, limit int64 }{{b.Used.CPUMS, b.CPUMS}, {b.Used.RunMS, b.RunMS}, {b.Used.NetworkBytes, b.NetworkBytes}} {
		if part.limit > 0 {
			most = max(most, float64(part.used)/float64(part.limit))
		}
	}
	return most
}
