package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"holt"
)

const greeting = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian"}, "capabilities": ["oob"]}}` + "\r\n"

// serve simulates QEMU on one end of a pipe: it sends the greeting, accepts the
// capabilities, and lets answer handle each later command.
func serve(t *testing.T, answer func(conn net.Conn, id uint64, command string)) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer theirs.Close()
		if _, err := theirs.Write([]byte(greeting)); err != nil {
			return
		}
		for lines := bufio.NewScanner(theirs); lines.Scan(); {
			var c struct {
				Execute string
				ID      uint64
			}
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				t.Errorf("command %q: %v", lines.Bytes(), err)
			}
			if c.Execute == "qmp_capabilities" {
				fmt.Fprintf(theirs, `{"return": {}, "id": %d}`+"\n", c.ID)
				continue
			}
			answer(theirs, c.ID, c.Execute)
		}
	})
	t.Cleanup(func() {
		ours.Close()
		wg.Wait()
	})
	return ours
}

func session(t *testing.T, answer func(conn net.Conn, id uint64, command string)) *qmp {
	t.Helper()
	q, err := openQMP(t.Context(), serve(t, answer))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.close)
	return q
}

func TestQMPAnswersOutOfOrder(t *testing.T) {
	var held []uint64
	q := session(t, func(conn net.Conn, id uint64, command string) {
		if held = append(held, id); len(held) < 3 {
			return
		}
		for i := range held { // the last asked is answered first
			id := held[len(held)-1-i]
			fmt.Fprintf(conn, `{"event": "NOISE", "data": {}, "timestamp": {"seconds": 1, "microseconds": 2}}`+"\n")
			fmt.Fprintf(conn, `{"return": {"n": %d}, "id": %d}`+"\n", id, id)
		}
	})
	var got [3]struct{ N uint64 }
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			if err := q.do(t.Context(), "any", nil, &got[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if sum := got[0].N + got[1].N + got[2].N; sum != 2+3+4 {
		t.Errorf("answers %v", got)
	}
	for range 3 {
		if e := <-q.events; e.name != "NOISE" {
			t.Errorf("event %q", e.name)
		}
	}
}

func TestQMPRefusal(t *testing.T) {
	q := session(t, func(conn net.Conn, id uint64, command string) {
		fmt.Fprintf(conn, `{"error": {"class": "GenericError", "desc": "no such thing"}, "id": %d}`+"\n", id)
	})
	err := q.do(t.Context(), "blow", map[string]int{"up": 1}, nil)
	if holt.CodeOf(err) != holt.Internal || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("error %v", err)
	}
}

func TestQMPEnds(t *testing.T) {
	for name, last := range map[string]string{
		"eof":      "",
		"garbage":  "}{\n",
		"two":      `{"return": {}, "event": "X"}` + "\n",
		"too long": `{"event": "` + strings.Repeat("x", maxMessage+1) + `"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			q := session(t, func(conn net.Conn, id uint64, command string) {
				conn.Write([]byte(last))
				conn.Close()
			})
			if err := q.do(t.Context(), "any", nil, nil); !errors.Is(err, errMonitorClosed) {
				t.Errorf("command that is never answered: %v", err)
			}
			if err := q.do(t.Context(), "any", nil, nil); !errors.Is(err, errMonitorClosed) {
				t.Errorf("command after the end: %v", err)
			}
			if _, ok := <-q.events; ok {
				t.Error("an event after the end")
			}
		})
	}
}

func TestQMPObeysContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := session(t, func(conn net.Conn, id uint64, command string) {
		if command == "never" {
			cancel()
			return
		}
		fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", id-1) // late, and wanted by nobody
		fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", id)
	})
	if err := q.do(ctx, "never", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled command: %v", err)
	}
	if err := q.do(t.Context(), "now", nil, nil); err != nil {
		t.Errorf("the session is spoilt: %v", err)
	}
	silent, theirs := net.Pipe()
	defer theirs.Close()
	if _, err := openQMP(ctx, silent); !errors.Is(err, context.Canceled) {
		t.Errorf("open a silent session: %v", err)
	}
}

func TestQMPDropsUnreadEvents(t *testing.T) {
	q := session(t, func(conn net.Conn, id uint64, command string) {
		for range maxEvents + 5 {
			fmt.Fprintln(conn, `{"event": "X"}`)
		}
		fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", id)
	})
	if err := q.do(t.Context(), "any", nil, nil); err != nil { // not blocked
		t.Fatal(err)
	}
	if n := len(q.events); n != maxEvents {
		t.Errorf("%d events wait", n)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(greeting))
	f.Add([]byte(`{"return": {}, "id": 1}`))
	f.Add([]byte(`{"error": {"class": "c", "desc": "d"}, "id": null}`))
	f.Add([]byte(`{"event": "X", "data": {"a": [1]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := decodeMessage(line)
		if err == nil && m.Greeting == nil && m.Event == "" && m.Return == nil && m.Error == nil {
			t.Errorf("%q is nothing", line)
		}
	})
}

// FuzzSession sends arbitrary bytes to a session, which must not hang or panic.
func FuzzSession(f *testing.F) {
	f.Add([]byte(greeting + `{"return": {}, "id": 1}` + "\n" + `{"event": "X"}` + "\n" + `{"return": {}, "id": 2}` + "\n"))
	f.Add([]byte(greeting + `{"return": {}, "id": 1}` + "\n" + `{"return": {}, "id": 99}` + "\n"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		ours, theirs := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() {
			theirs.Write(stream)
			theirs.Close()
		})
		wg.Go(func() {
			for buf := make([]byte, 4096); ; {
				if _, err := theirs.Read(buf); err != nil {
					return
				}
			}
		})
		if q, err := openQMP(context.Background(), ours); err == nil {
			q.do(context.Background(), "any", nil, nil)
			for range q.events {
			}
			q.close()
		}
		ours.Close()
		wg.Wait()
	})
}
