package main

import (
	"encoding/binary"
	"math"
	"net"
	"strings"

	"holt/internal/guest/channel"
)

// files attacks the host on the channel of the workspace.
func (h *hostile) files(port *channel.Port) {
	short := h.short
	h.sessions(port, attack{"requests", 4 * short, func(c net.Conn) { h.kernel(c, true, false) }}, []attack{
		{"noise for files", short, func(c net.Conn) { h.noise(c) }},
		{"requests, replies unread", 4 * short, func(c net.Conn) { h.kernel(c, false, false) }},
		{"hellos", short, h.hellos},
		{"half a request", short, func(c net.Conn) { c.Write([]byte{0xff, 0xff, 0x0f, 0, 2}); drain(c) }},
		{"4 GiB in a request", short, func(c net.Conn) { c.Write([]byte{0xff, 0xff, 0xff, 0xff, 2}); h.noise(c) }},
		{"broken requests", short, func(c net.Conn) { h.kernel(c, true, true) }},
		{"broken requests", short, func(c net.Conn) { h.kernel(c, true, true) }},
		{"broken requests", short, func(c net.Conn) { h.kernel(c, true, true) }},
		{"silence for files", short, drain},
	})
}

func (h *hostile) hellos(c net.Conn) {
	go drain(c)
	frames := channel.NewFrameWriter(c)
	for range 100 {
		hello := channel.Hello{Version: one[uint16](h, channel.FrameVersion, channel.FrameVersion, 9), Mount: [16]byte(h.bytes(16))}
		if frames.Write(channel.FrameHello, hello.Append(nil)) != nil {
			return
		}
		h.did("hellos", 1)
	}
	frames.Write(channel.FrameTaken, []byte{0xff, 0xff, 0xff, 0xff})
}

// kernel is a mount of its own, with a kernel that no kernel is like.
type kernel struct {
	*hostile
	frames *channel.FrameWriter
	unique uint64
}

// kernel mounts the workspace anew and asks for what cannot be; broken: what ends the session
// at once is among it.
func (h *hostile) kernel(c net.Conn, reads, broken bool) {
	k := &kernel{hostile: h, frames: channel.NewFrameWriter(c)}
	hello := channel.Hello{Version: channel.FrameVersion, Mount: [16]byte(h.bytes(16)), Fresh: true}
	k.frames.Write(channel.FrameHello, hello.Append(nil))
	init := make([]byte, 64)
	binary.LittleEndian.PutUint32(init, 7)
	binary.LittleEndian.PutUint32(init[4:], 38)
	binary.LittleEndian.PutUint32(init[8:], 1<<20)
	binary.LittleEndian.PutUint32(init[12:], 0x7fffffff&^(1<<30))
	if k.send(26, 0, init) != nil {
		return
	}
	if reads {
		go k.replies(c)
	}
	for k.err(broken) == nil {
	}
}

// replies takes what the host answers, and looks what it is.
func (k *kernel) replies(c net.Conn) {
	in := channel.NewFrameReader(c)
	buf := make([]byte, channel.MaxFrame)
	for {
		kind, b, err := in.Next(buf)
		if err != nil {
			return
		}
		k.saw(b)
		if kind == channel.FrameReply {
			k.did("replies to requests", 1)
		}
	}
}

func (k *kernel) send(op uint32, node uint64, parts ...[]byte) error {
	k.unique++
	m := make([]byte, 40)
	for _, p := range parts {
		m = append(m, p...)
	}
	binary.LittleEndian.PutUint32(m, uint32(len(m)))
	binary.LittleEndian.PutUint32(m[4:], op)
	binary.LittleEndian.PutUint64(m[8:], k.unique)
	binary.LittleEndian.PutUint64(m[16:], node)
	return k.raw(m)
}

func (k *kernel) raw(m []byte) error {
	tag := one(k.hostile, "", "run/run_"+strings.Repeat("a", 16), "for/1", "container/"+string(k.bytes(60)), string(k.bytes(120)))
	k.did("requests", 1)
	time := u64(one[uint64](k.hostile, 0, 1, math.MaxInt64, 1<<63, k.uint64()))
	return k.frames.Write(channel.FrameRequest, time, append([]byte{byte(len(tag))}, tag...), m)
}

func u32(all ...uint32) (b []byte) {
	for _, n := range all {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

func u64(all ...uint64) (b []byte) {
	for _, n := range all {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func zero(s string) []byte { return append([]byte(s), 0) }

func (k *kernel) node() uint64 {
	return one[uint64](k.hostile, 1, 1, 1, 2, 3, 100, 1<<40, math.MaxInt64, 1<<62, 1<<62|1<<32|2, k.uint64()>>1)
}

func (k *kernel) at() uint64 {
	return one[uint64](k.hostile, 0, 1, 4096, 1<<40, 1<<62, math.MaxInt64-1<<20, k.uint64()>>1)
}

// entry is a name that a directory may have.
func (k *kernel) entry() string {
	return one(k.hostile, "ill", "a", "b", "\x1b[2J", "\xff", ".holt", strings.Repeat("n", 255), strings.Repeat("n", 300), ".go-fuse-epoll-hack", "checkpoints")
}

// err sends one request.
func (k *kernel) err(broken bool) error {
	if broken && k.intN(20) == 0 {
		return k.broken()
	}
	node := k.node()
	switch k.intN(16) {
	case 0:
		return k.send(1, node, zero(k.entry()))
	case 1:
		return k.send(6, node, zero(k.entry()), zero(one(k.hostile, k.canary, "/etc/shadow", strings.Repeat("../", 1000))))
	case 2:
		return k.send(9, node, u32(0o40777, 0), zero(k.entry()))
	case 3:
		return k.send(35, node, u32(uint32(k.uint64()), 0o100777, 0, 0), zero(k.entry()))
	case 4:
		return k.send(8, node, u32(one[uint32](k.hostile, 0o20666, 0o60666, 0o10666, 0o100777), 1<<8|1, 0, 0), zero(k.entry()))
	case 5:
		data := k.bytes(one(k.hostile, 0, 1, 4096, 64<<10))
		return k.send(16, node, u64(k.uint64(), k.at()), u32(uint32(len(data)), uint32(k.uint64()&7)), u64(0, 0), data)
	case 6:
		return k.send(15, node, u64(k.uint64(), k.at()), u32(one[uint32](k.hostile, 0, 1, 4096, 128<<10), 0), u64(0, 0))
	case 7:
		return k.send(one[uint32](k.hostile, 28, 44), node, u64(k.uint64(), one[uint64](k.hostile, 0, 1, math.MaxUint64, k.uint64())), u32(4096, 0), u64(0, 0))
	case 8:
		return k.send(45, node, u64(k.node()), u32(one[uint32](k.hostile, 0, 1, 2, 4), 0), zero(k.entry()), zero(k.entry()))
	case 9:
		return k.send(13, node, u64(k.node()), zero(k.entry()))
	case 10:
		value := make([]byte, one(k.hostile, 0, 1, 64<<10))
		return k.send(21, node, u32(uint32(len(value)), uint32(k.intN(4))), zero("user."+k.entry()), value)
	case 11:
		return k.send(2, node, u64(one[uint64](k.hostile, 1, math.MaxUint64)))
	case 12:
		return k.send(one[uint32](k.hostile, 10, 11), node, zero(k.entry()))
	case 13:
		set := make([]byte, 88)
		binary.LittleEndian.PutUint32(set, 1<<3)
		binary.LittleEndian.PutUint64(set[16:], k.at())
		return k.send(4, node, set)
	case 14:
		return k.send(43, node, u64(k.uint64(), k.at(), 1<<20), u32(one[uint32](k.hostile, 0, 1, 3, 16), 0))
	}
	return k.frames.Write(channel.FrameAck, u64(k.uint64()))
}

// broken sends what no kernel sends.
func (k *kernel) broken() error {
	k.did("broken requests", 1)
	m := make([]byte, 40+k.intN(200))
	copy(m, k.bytes(len(m)))
	binary.LittleEndian.PutUint32(m, uint32(len(m)))
	switch k.intN(8) {
	case 0:
		return k.send(1, 1, zero(one(k.hostile, "..", "../x", "a/b", ".", "")))
	case 1:
		return k.send(15, 1, u64(0, math.MaxUint64), u32(math.MaxUint32, 0), u64(0, 0))
	case 2:
		return k.send(26, 0, make([]byte, 64))
	case 3:
		return k.send(42, 0, u32(math.MaxUint32, 0), u64(1, 1))
	case 4:
		binary.LittleEndian.PutUint32(m, math.MaxUint32)
		return k.raw(m)
	case 5:
		return k.send(6, 1, zero("link"), []byte(k.canary+"\x00/etc/shadow\x00"))
	case 6:
		return k.frames.Write(channel.FrameKind(k.intN(256)), m)
	}
	binary.LittleEndian.PutUint32(m[4:], uint32(k.intN(64)))
	return k.raw(m)
}
