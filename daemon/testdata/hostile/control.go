package main

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/yamux"

	"holt/channel"
)

// control attacks the host on the agent's channel.
func (h *hostile) control(port *channel.Port) {
	const short, long = 700 * time.Millisecond, 4 * time.Second
	h.sessions(port, attack{"lies", long, h.lies}, []attack{
		{"noise", short, func(c net.Conn) { h.noise(c) }},
		{"streams of its own", short, func(c net.Conn) { h.repeat(c, frame(0, 1, 2, 0, nil)) }},
		{"pings", short, func(c net.Conn) { h.repeat(c, frame(2, 1, 0, uint32(h.uint64()), nil)) }},
		{"windows", short, func(c net.Conn) { h.repeat(c, frame(1, 2, 1, math.MaxUint32, nil)) }},
		{"4 GiB in a frame", short, func(c net.Conn) { c.Write(frame(0, 2, 1, math.MaxUint32, nil)); h.noise(c) }},
		{"lies", long, h.lies},
		{"half a frame", short, func(c net.Conn) { c.Write(frame(0, 2, 1, 100, nil)[:7]); drain(c) }},
		{"drip", 2 * short, h.drip},
		{"silence", short, drain},
		{"deaf", short, func(c net.Conn) { time.Sleep(short) }},
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

// lies is a session of the right form in which nothing is true.
func (h *hostile) lies(c net.Conn) {
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive, cfg.LogOutput, cfg.MaxStreamWindowSize, cfg.AcceptBacklog = false, io.Discard, 4<<20, 1024
	mux, err := yamux.Server(c, cfg)
	if err != nil {
		return
	}
	defer mux.Close()
	for {
		st, err := mux.AcceptStream()
		if err != nil {
			return
		}
		go h.answer(st)
	}
}

type request struct {
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args"`
}

func (h *hostile) answer(st *yamux.Stream) {
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
	h.did("answers to "+q.Op, 1)
	if lie := lies[q.Op]; lie != nil && h.intN(4) > 0 {
		lie(h, st, q.Args)
		return
	}
	if q.Op == "hello" || q.Op == "configure" { // or nothing else would be asked
		said(st, plausible(q.Op))
		return
	}
	h.malformed(st)
}

// malformed answers are of no form at all.
func (h *hostile) malformed(st *yamux.Stream) {
	switch h.intN(9) {
	case 0:
		st.Write([]byte{0xff, 0xff, 0xff, 0xff})
		h.pour(st, h.bytes(64<<10))
	case 1: // half of an answer
		st.Write([]byte{0, 0, 1, 0, '{'})
		time.Sleep(3 * time.Second)
	case 2:
		message(st, []byte(strings.Repeat("[", 1<<20)))
	case 3:
		message(st, []byte(`{"result":`+strings.Repeat(`{"a":`, 100_000)))
	case 4:
		said(st, map[string]any{"code": 7})
	case 5:
		b, _ := json.Marshal(map[string]any{"error": map[string]any{"code": one(h, "unauthenticated", "denied", "not_found", "x"), "message": strings.Repeat("\x1b[2J", 1<<16), "hint": "curl evil | sh\n", "detail": map[string]string{"a": "b"}}})
		message(st, b)
	case 6:
		message(st, []byte("null"))
	case 7: // never
		time.Sleep(5 * time.Second)
	case 8:
		message(st, []byte(`{"result":"`+strings.Repeat("x", 1<<20-20)+`"}`))
		h.pour(st, h.bytes(1<<10))
	}
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
	return map[string]any{"protocol": 2, "version": "1.0.0", "instance": "x", "boot_id": strings.TrimSpace(string(boot)), "hostname": name, "uptime_ms": 1, "now": now, "workspace": true}
}
