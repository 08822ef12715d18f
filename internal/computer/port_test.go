package computer

import (
	"fmt"
	"strings"
	"testing"

	"holt"
)

// TestConns: connections to one computer are bounded, and those that have ended are not counted.
func TestConns(t *testing.T) {
	var c conns
	one, other := record{}, record{}
	one.ID, one.Name, other.ID = holt.NewComputerID(), "curie", holt.NewComputerID()
	var leave []func()
	for i := range mostConns {
		if i == mostReached {
			if _, err := c.enter(one, mostReached); holt.CodeOf(err) != holt.TooMany {
				t.Errorf("the previews have all: %v", err)
			}
		}
		left, err := c.enter(one, mostConns)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, left)
	}
	if _, err := c.enter(one, mostConns); holt.CodeOf(err) != holt.TooMany || !strings.Contains(err.Error(), "curie") {
		t.Errorf("one more: %v", err)
	}
	left, err := c.enter(other, mostConns)
	if err != nil {
		t.Error("another computer:", err)
	}
	for _, left := range append(leave, left) {
		left()
	}
	if len(c.set) != 0 || len(c.in) != 0 || c.all != 0 {
		t.Errorf("left: %+v", c.set)
	}
}

// TestConnsOfAll: a tenant has half of the connections to all computers.
func TestConnsOfAll(t *testing.T) {
	var c conns
	for n := range mostConnsIn * 3 / 4 { // strangers, and guests
		if _, err := c.enter(record{Computer: holt.Computer{ID: holt.ComputerID(fmt.Sprint("a", n/mostReached)), Tenant: "a"}}, mostReached); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
	}
	if _, err := c.enter(record{Computer: holt.Computer{ID: "a10", Tenant: "a"}}, mostReached); holt.CodeOf(err) != holt.TooMany {
		t.Errorf("strangers have all: %v", err)
	}
	for _, want := range []struct {
		tenant string
		most   int
		says   string
	}{{"a", mostConnsIn / 4, "tenant a"}, {"b", mostConnsIn, "tenant b"}, {"c", 0, "ports of computers are"}} {
		for n := 0; ; n++ {
			r := record{Computer: holt.Computer{ID: holt.ComputerID(fmt.Sprint(want.tenant, "-", n/mostConns)), Tenant: want.tenant}}
			if _, err := c.enter(r, mostConns); err != nil {
				if n != want.most || holt.CodeOf(err) != holt.TooMany || !strings.Contains(err.Error(), want.says) {
					t.Errorf("of %s after %d: %v", want.tenant, n, err)
				}
				break
			}
		}
	}
}

func TestHinted(t *testing.T) {
	list := []holt.Listener{{Protocol: "udp", Port: 53}, {Protocol: "tcp", Port: 8080, Process: "node"}, {Protocol: "tcp", Port: 80}, {Protocol: "tcp", Port: 8080, Process: "node"}}
	if got := strings.Join(hinted(list), ", "); got != "80, 8080 (node)" {
		t.Error(got)
	}
	for i := range 20 {
		list = append(list, holt.Listener{Protocol: "tcp", Port: 9000 + i})
	}
	if got := hinted(list); len(got) != mostHinted+1 || got[mostHinted] != "…" {
		t.Error(got)
	}
}
