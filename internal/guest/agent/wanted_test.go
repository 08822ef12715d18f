package agent

import (
	"fmt"
	"testing"

	"holt"
)

// Input that waits until it is wanted goes to the process that reads, by any
// system call, and to no other.
func TestInputWhenWanted(t *testing.T) {
	c := startGuest(t).client(t)
	start := func(line string) holt.RunID {
		id := holt.NewRunID()
		if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: holt.OSString(line), Stdin: true}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	const python = `python3 -c '
import asyncio, os, select, sys
def wait_poll(): p = select.poll(); p.register(0, select.POLLIN); p.poll()
def wait_select(): select.select([0], [], [])
def wait_epoll(): p = select.epoll(); p.register(0, select.EPOLLIN); p.poll()
wait_%s()
os.write(1, os.read(0, 100))'`
	for name, line := range map[string]string{
		"cat":          "cat",
		"a later read": "sleep 0.2; read x; echo $x",
		"a child":      "(cat; true); true",
		"moved":        "exec 5<&0 </dev/null; cat <&5",
		"in a pipe":    "cat | cat",
		"a thread":     `python3 -c 'import sys, threading; t = threading.Thread(target=lambda: print(sys.stdin.readline(), end="")); t.start(); t.join()'`,
		"poll":         fmt.Sprintf(python, "poll"), "select": fmt.Sprintf(python, "select"), "epoll": fmt.Sprintf(python, "epoll"),
	} {
		id := start(line)
		in, err := c.RunInput(t.Context(), id, 0, false, true)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		in.Write([]byte("input\n"))
		in.End()
		if r := follow(t, c, id, 0); r.stdout != "input\n" {
			t.Errorf("%s: %q, %q", name, r.stdout, r.stderr)
		}
	}
	for _, line := range []string{
		"echo no; sleep 0.3", "cat </dev/null; true | cat; sleep 0.2", "exec 0<&-; sleep 0.2",
		`python3 -c 'import select; p = select.epoll(); p.register(1, select.EPOLLOUT | select.EPOLLET); p.poll(); p.poll(0.3); select.select([], [], [], 0.2)'`,
	} {
		_, err := c.RunInput(t.Context(), start(line), 0, false, true)
		wantCode(t, line, err, holt.Conflict)
	}
}
