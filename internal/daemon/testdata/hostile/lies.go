package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
)

type lie func(h *hostile, st *yamux.Stream, args json.RawMessage)

// lies are of the right form, by operation.
var lies = map[string]lie{
	"hello":           lieHello,
	"configure":       func(h *hostile, st *yamux.Stream, _ json.RawMessage) { said(st, spoiled(h, plausible("configure"))) },
	"file.stat":       func(h *hostile, st *yamux.Stream, _ json.RawMessage) { said(st, h.file()) },
	"file.list":       lieList(func(h *hostile, n int) any { return h.file() }),
	"run.list":        lieList(func(h *hostile, n int) any { return h.run() }),
	"port.list":       lieList(func(h *hostile, n int) any { return h.port() }),
	"service.list":    lieList(func(h *hostile, n int) any { return h.service() }),
	"terminal.list":   lieList(func(h *hostile, n int) any { return h.terminal() }),
	"inventory":       lieInventory,
	"file.watch":      lieList(func(h *hostile, n int) any { return map[string]any{"kind": "create", "path": h.name()} }),
	"file.read":       lieChunks,
	"service.log":     lieChunks,
	"dial":            lieChunks,
	"run.start":       func(h *hostile, st *yamux.Stream, a json.RawMessage) { said(st, h.same(a, h.run())) },
	"run.get":         func(h *hostile, st *yamux.Stream, a json.RawMessage) { said(st, h.same(a, h.run())) },
	"run.follow":      lieEvents,
	"run.output":      lieEvents,
	"terminal.open":   func(h *hostile, st *yamux.Stream, a json.RawMessage) { said(st, h.same(a, h.terminal())) },
	"terminal.close":  func(h *hostile, st *yamux.Stream, a json.RawMessage) { said(st, h.same(a, h.terminal())) },
	"terminal.attach": lieAttach,
	"activity":        func(h *hostile, st *yamux.Stream, _ json.RawMessage) { said(st, h.activity()) },
	"ready": func(h *hostile, st *yamux.Stream, _ json.RawMessage) {
		said(st, map[string]any{"state": strings.Repeat("\x1b", 1<<19)})
	},
	"shutdown":        lieDone, // and stays
	"file.mkdir":      lieDone,
	"file.symlink":    lieDone,
	"file.remove":     lieDone,
	"file.rename":     lieDone,
	"file.write":      lieDone,
	"run.signal":      lieDone,
	"terminal.signal": lieDone,
	"sync":            lieDone,
	"trim":            lieDone,
	"measure":         lieChunks,
	"service.put":     func(h *hostile, st *yamux.Stream, _ json.RawMessage) { said(st, h.service()) },
	"service.do":      func(h *hostile, st *yamux.Stream, _ json.RawMessage) { said(st, h.service()) },
	"grow": func(h *hostile, st *yamux.Stream, _ json.RawMessage) {
		said(st, map[string]any{"cpus": h.number(), "memory_mb": h.number(), "disk_size_mb": h.number(), "fault": strings.Repeat("\x1b", h.intN(1<<19))})
	},
	"session": func(h *hostile, st *yamux.Stream, _ json.RawMessage) {
		said(st, nil)
		h.events(st, 0, map[string]any{"exit_code": h.number(), "signal": strings.Repeat("\x1b", h.intN(1<<10))})
	},
	"session.do": lieDone,
	"listen":     lieListen,
	"accept":     lieChunks,
	"run.input":  func(h *hostile, st *yamux.Stream, _ json.RawMessage) { said(st, map[string]any{"taken": h.number()}) },
}

// lieListen tells of connections that nobody makes, some of them without a number, for as long as it is heard.
func lieListen(h *hostile, st *yamux.Stream, _ json.RawMessage) {
	said(st, map[string]any{"id": h.number(), "port": h.number(), "path": one(h, "/"+h.name(), h.name(), "")})
	for range one(h, 1, 100, 1_000_000) {
		b, _ := json.Marshal(map[string]any{"number": one[any](h, 0, h.number(), "x"), "from": h.name()})
		if message(st, b) != nil {
			return
		}
	}
}

// lieDone says that it is done, at once, and sometimes more than that.
func lieDone(h *hostile, st *yamux.Stream, _ json.RawMessage) {
	said(st, one[any](h, nil, nil, h.name(), h.number(), []any{}))
}

func lieHello(h *hostile, st *yamux.Stream, _ json.RawMessage) {
	is := plausible("hello")
	switch h.intN(6) {
	case 0:
		is["boot_id"] = fmt.Sprint(h.uint64())
	case 1:
		is["now"] = one(h, "9999-12-31T23:59:59Z", "0001-01-01T00:00:01Z", "1969-12-31T23:59:59Z", "yesterday")
	case 2:
		is["hostname"] = strings.Repeat("\x1b]0;x\x07", 1<<16)
	case 3:
		is["runs"], is["uptime_ms"] = math.MinInt64, math.MaxInt64
	}
	said(st, is)
}

// spoiled changes one thing.
func spoiled(h *hostile, m map[string]any) map[string]any {
	key := one(h, "hostname", "now", "machine_id", "drawn", "host_keys", "ended")
	m[key] = one[any](h, nil, -1, strings.Repeat("x", 1<<18), []string{"SHA256:x"}, "2020-01-01T00:00:00Z")
	return m
}

// name is one that leads out of where it is said to be.
func (h *hostile) name() string {
	return one(h, "..", ".", "", "/", "../../../etc/shadow", "a/../../b", h.canary, "a\x00b", "\x00", strings.Repeat("x", 5000), "\x1b[2J", "-rf", "ok", fmt.Sprint(h.uint64()))
}

func (h *hostile) time() string {
	return one(h, "9999-12-31T23:59:59.999999999Z", "0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-01-01T00:00:00Z")
}

func (h *hostile) number() int64 {
	return one[int64](h, 0, 1, -1, math.MaxInt64, math.MinInt64, 1<<31, 1<<32, int64(h.uint64()))
}

func (h *hostile) file() any {
	name := h.name()
	return map[string]any{
		"path": name, "name": name, "kind": one(h, "file", "dir", "symlink", "symlink", "char", "door"), "size": h.number(), "mode": h.uint64() % 0o20000,
		"uid": 0, "gid": 0, "mtime": h.time(), "target": one(h, h.canary, "/etc/shadow", strings.Repeat("../", 2000)), "after": h.number(),
	}
}

// letters are some that names of runs may have.
func (h *hostile) letters(n int) string {
	b := h.bytes(n)
	for i := range b {
		b[i] = 'a' + b[i]%26
	}
	return string(b)
}

func (h *hostile) run() map[string]any {
	return map[string]any{
		"id": one(h, "run_"+strings.Repeat("a", 12)+h.letters(4), "run_"+strings.Repeat("a", 12)+h.letters(4), "run_../../x"), "state": one(h, "running", "exited", "exited", "lost", "\x1b"), "exit_code": h.number(),
		"signal": one(h, "", "SIGKILL", "rm -rf"), "background": h.number(), "spec": map[string]any{"command": strings.Repeat("c", h.intN(1<<12))},
		"started_at": h.time(), "ended_at": h.time(), "timed_out": true,
	}
}

func (h *hostile) terminal() map[string]any {
	return map[string]any{
		"id": "term_" + strings.Repeat("a", 16), "name": one(h, "main", "../x", strings.Repeat("n", 70000), ""), "state": one(h, "running", "exited", "?"),
		"size": map[string]any{"rows": 65535, "cols": 0}, "attached": h.number(), "exit_code": h.number(), "created_at": h.time(), "ended_at": h.time(),
		"spec": map[string]any{"command": strings.Repeat("t", h.intN(1<<14)), "argv": strings.Fields(strings.Repeat("x ", 1000))},
	}
}

func (h *hostile) port() any {
	return map[string]any{"protocol": one(h, "tcp", "\x1b[2J"), "address": one(h, "127.0.0.1", "169.254.169.254", strings.Repeat("9", 1000)), "port": h.number() % (1 << 40),
		"pid": 1, "process": strings.Repeat("\x07", 300), "user": h.name(), "run": "run_" + strings.Repeat("z", 16), "service": h.name()}
}

func (h *hostile) service() any {
	return map[string]any{"name": one(h, "web", "../web", h.name()), "state": one(h, "running", "failed", "odd"), "template": h.intN(2) == 0, "since": h.time(), "pid": h.number() % (1 << 40),
		"spec": map[string]any{"name": "web", "command": strings.Repeat("s", 1<<14), "cwd": h.canary, "ready": map[string]any{"port": 99999, "seconds": -1}}}
}

func (h *hostile) item(n int) any {
	switch n % 4 {
	case 0:
		return map[string]any{"package": map[string]any{"name": h.name(), "version": strings.Repeat("v", 1<<10)}}
	case 1:
		return map[string]any{"process": map[string]any{"pid": h.number() % (1 << 40), "command": strings.Repeat("p", 1<<10), "user": h.name()}}
	case 2:
		return map[string]any{"port": h.port()}
	}
	return map[string]any{"file": map[string]any{"path": h.name(), "size": h.number(), "mode": 0o777, "target": h.canary}}
}

func (h *hostile) activity() any {
	var terms []any
	for range h.intN(5000) {
		terms = append(terms, map[string]any{"id": "term_" + strings.Repeat("a", 16), "cpu_ms": h.number()})
	}
	return map[string]any{"cpu_ms": h.number(), "network_bytes": h.number(), "terminals": terms, "left": terms, "top": terms}
}

// same gives what is said of a thing the id that was asked for, mostly.
func (h *hostile) same(args json.RawMessage, of map[string]any) map[string]any {
	var asked struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(args, &asked); h.intN(4) > 0 {
		of["id"] = asked.ID
	}
	return of
}

// lieList sends items, sometimes without end; most begin with good ones.
func lieList(item func(h *hostile, n int) any) lie {
	return func(h *hostile, st *yamux.Stream, _ json.RawMessage) {
		said(st, nil)
		most := one(h, 3, 100, 10_000, 2_000_000)
		for n := 0; n < most; {
			size := one(h, 1, 100, 1024)
			batch := make([]any, size)
			for i := range batch {
				batch[i] = item(h, n+i)
			}
			if said(st, batch) != nil {
				return
			}
			h.did("items of lists", size)
			n += size
		}
		said(st, []any{})
	}
}

// lieChunks sends bytes without end, or lengths without bytes.
func lieChunks(h *hostile, st *yamux.Stream, _ json.RawMessage) {
	said(st, nil)
	chunk := append(binary.BigEndian.AppendUint32(nil, 64<<10), make([]byte, 64<<10)...)
	switch h.intN(4) {
	case 0:
		h.pour(st, chunk)
	case 1:
		st.Write([]byte{0xff, 0xff, 0xff, 0xff})
	case 2: // an end, and then more
		st.Write([]byte{0, 0, 0, 3, 'a', 'b', 'c', 0, 0, 0, 0})
		h.pour(st, chunk)
	case 3:
		for range 50 {
			if _, err := st.Write([]byte{0, 0, 0, 1, 'd'}); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func event(kind byte, offset int64, data []byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{kind}, uint64(offset))
	return append(binary.BigEndian.AppendUint32(b, uint32(len(data))), data...)
}

// lieEvents sends output without end, gaps beyond all numbers, and ends of what goes on.
func lieEvents(h *hostile, st *yamux.Stream, args json.RawMessage) {
	var asked struct {
		Offset int64 `json:"offset"`
	}
	json.Unmarshal(args, &asked)
	said(st, nil)
	h.events(st, asked.Offset, h.same(args, h.run()))
}

func (h *hostile) events(st *yamux.Stream, at int64, end map[string]any) {
	exit, _ := json.Marshal(end)
	switch h.intN(6) {
	case 0:
		data := make([]byte, 64<<10)
		for n := 0; n < 512; n++ {
			if _, err := st.Write(event(1, at, data)); err != nil {
				return
			}
			h.did("bytes of endless output", len(data))
			at += int64(len(data))
		}
	case 1:
		st.Write(event(3, at, binary.BigEndian.AppendUint64(nil, math.MaxInt64)))
		st.Write(event(1, math.MaxInt64, []byte("x")))
	case 2:
		st.Write(event(3, at, binary.BigEndian.AppendUint64(nil, 1<<62)))
		st.Write(event(4, at+1<<62, exit))
	case 3:
		st.Write(event(byte(h.intN(256)), h.number(), h.bytes(100)))
	case 4:
		for range 5000 {
			if _, err := st.Write(event(2, at, []byte("x"))); err != nil {
				return
			}
			at++
		}
		st.Write(event(4, at, exit))
	case 5:
		st.Write(event(4, at, exit))
	}
}

func lieAttach(h *hostile, st *yamux.Stream, args json.RawMessage) {
	at := one[int64](h, 0, h.number())
	said(st, map[string]any{"terminal": h.same(args, h.terminal()), "offset": at, "end": one(h, at, h.number()), "taken": one[int64](h, 0, h.number()), "written": one[int64](h, 0, h.number())})
	h.events(st, at, h.same(args, h.terminal()))
}
