package computer

import (
	"fmt"
	"testing"

	"holt"
)

// A guest that tells of other terminals each time it is asked, and has forgotten those it told of
// before, leaves no more of them on record, and in memory, than are kept of a computer.
func TestTerminalsOfHostileGuest(t *testing.T) {
	_, d := openKeys(t)
	table := terminalTable{d}
	l := &live{id: holt.NewComputerID(), ctx: t.Context()}
	s := newTerminalSet(l, table)
	neighbour := holt.Terminal{ID: holt.NewTerminalID(), ComputerID: holt.NewComputerID(), Name: "main", State: holt.TerminalRunning}
	if err := table.insert(t.Context(), neighbour, nil); err != nil {
		t.Fatal(err)
	}
	if err := table.loseAll(t.Context(), neighbour.ComputerID); err != nil {
		t.Fatal(err)
	}
	for round := range 4 {
		var told []holt.Terminal
		for i := range 192 {
			told = append(told, holt.Terminal{ID: holt.NewTerminalID(), Name: fmt.Sprint("t", round, "-", i), State: holt.TerminalRunning})
		}
		asked := s.launches.ask()
		_, err := s.compare(t.Context(), asked, told, round%2 == 0)
		if asked.done(); err != nil {
			t.Fatal(err)
		}
		for _, one := range told {
			if _, ok := s.known(one.ID); !ok && round == 0 {
				t.Fatalf("%s is not on record", one.Name)
			}
		}
	}
	all, err := table.list(t.Context(), `WHERE computer = ?`, l.id)
	if err != nil {
		t.Fatal(err)
	}
	running := 0
	for _, one := range all {
		if one.State == holt.TerminalRunning {
			running++
		}
	}
	if running > openTerminals || len(all)-running != keptTerminals || len(s.here) > keptTerminals+openTerminals {
		t.Errorf("%d run, %d have ended, %d are known", running, len(all)-running, len(s.here))
	}
	if savedInventory, err := table.of(t.Context(), neighbour.ComputerID); err != nil || len(savedInventory) != 1 || savedInventory[0].State != holt.TerminalLost {
		t.Errorf("another computer has %+v (%v)", savedInventory, err)
	}
}
