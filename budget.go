package holt

import (
	"math"
	"time"
)

// Budget is what a computer and all its forks, and theirs, may use together until somebody raises it. Then they are
// paused, and none wakes. It counts from when it was set.
type Budget struct {
	ComputerID   ComputerID `json:"computer_id" doc:"that it was set on; it counts that and all its forks, and theirs"`
	Computer     string     `json:"computer" doc:"its name when the budget was set last"`
	CPUMS        int64      `json:"cpu_ms,omitempty" doc:"time of processors, milliseconds; absent: as much as they like"`
	RunMS        int64      `json:"run_ms,omitempty" doc:"time that computers run, all together, milliseconds; absent: as long as they like"`
	NetworkBytes int64      `json:"network_bytes,omitempty" doc:"bytes of payload, sent and received; absent: as much as they like"`
	Used         BudgetUse  `json:"used"`
	Exhausted    bool       `json:"exhausted,omitempty" doc:"the computers are paused, and none of them wakes until it is raised"`
	CreatedAt    time.Time  `json:"created_at" doc:"when it began to count"`
}

// BudgetUse is what of a budget is used, to a quarter of a minute.
type BudgetUse struct {
	CPUMS        int64 `json:"cpu_ms" doc:"of the processes that are the machines, milliseconds"`
	RunMS        int64 `json:"run_ms" doc:"milliseconds"`
	NetworkBytes int64 `json:"network_bytes"`
}

// BudgetChange says what to change of a budget, which begins with the first. What is absent stays as it is; 0 takes
// that part away.
type BudgetChange struct {
	CPUMS        *int64 `json:"cpu_ms,omitempty" minimum:"0" doc:"time of processors, milliseconds"`
	RunMS        *int64 `json:"run_ms,omitempty" minimum:"0" doc:"time that computers run, all together, milliseconds"`
	NetworkBytes *int64 `json:"network_bytes,omitempty" minimum:"0" doc:"bytes of payload, sent and received"`
	Reset        bool   `json:"reset,omitempty" doc:"reset the counters to 0"`
}

// Apply changes b. InvalidArgument: nothing is changed, a part is below 0 or above what can be counted, or none is left.
func (c BudgetChange) Apply(b *Budget) error {
	if c == (BudgetChange{}) {
		return Errorf(InvalidArgument, "no change is given").WithHint("give cpu_ms, run_ms, network_bytes or reset")
	}
	for _, part := range []struct {
		to, from *int64
		most     int64
	}{{&b.CPUMS, c.CPUMS, mostLimit}, {&b.RunMS, c.RunMS, mostLimit}, {&b.NetworkBytes, c.NetworkBytes, math.MaxInt64}} {
		if part.from != nil {
			*part.to = *part.from
		}
		if *part.to < 0 || *part.to > part.most {
			return Errorf(InvalidArgument, "a budget cannot be below 0, nor so high").WithHint("0 takes that part of it away")
		}
	}
	if b.CPUMS == 0 && b.RunMS == 0 && b.NetworkBytes == 0 {
		return Errorf(InvalidArgument, "a budget bounds at least one part, and none is given").
			WithHint("give cpu_ms, run_ms or network_bytes (--cpu-hours, --run-time, --network-mb); to take a budget away: --remove")
	}
	if c.Reset {
		b.Used, b.CreatedAt = BudgetUse{}, time.Now().UTC()
	}
	b.Exhausted = b.Fullest() >= 1
	return nil
}

// Fullest is the part of the budget's fullest part that is used: 1 or more when it is exhausted.
func (b Budget) Fullest() float64 {
	most := 0.0
	for _, part := range []struct{ used, limit int64 }{{b.Used.CPUMS, b.CPUMS}, {b.Used.RunMS, b.RunMS}, {b.Used.NetworkBytes, b.NetworkBytes}} {
		if part.limit > 0 {
			most = max(most, float64(part.used)/float64(part.limit))
		}
	}
	return most
}
