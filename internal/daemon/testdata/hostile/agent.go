package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holt/internal/guest/channel"
)

// impostor ends the agent and sits at its ports, until it is ended itself. A sandbox has the port of the control channel only.
func (h *hostile) impostor() {
	moveOut()
	time.Sleep(time.Second) // for the answer that it has begun
	if _, err := os.Stat(serial); err != nil {
		line := takeLine()
		go h.tell("/dev/stdout")
		h.control(line)
		return
	}
	control, files := endAgent("control"), endAgent("files")
	go h.tell(serial)
	go h.files(files)
	h.control(control)
}

const serial = "/dev/ttyS0" // the console of a virtual machine

// sockets sits at an agent's sockets.
func (h *hostile) sockets(control, files string) {
	var ports []*channel.Port
	for _, path := range []string{control, files} {
		line, err := channel.ListenSocket(path)
		if err != nil {
			panic(err)
		}
		ports = append(ports, channel.NewPort(line))
	}
	go h.tell("/dev/stdout")
	go h.files(ports[1])
	h.control(ports[0])
}

// moveOut leaves the cgroup of the run, which is ended with it.
func moveOut() {
	os.WriteFile("/sys/fs/cgroup/cgroup.procs", []byte(strconv.Itoa(os.Getpid())), 0)
	syscall.Setsid()
}

// endAgent kills the agent's processes until one of its ports is free.
func endAgent(name string) *channel.Port {
	for {
		killAgents()
		if path, err := channel.FindDevice(name); err == nil {
			if d, err := channel.OpenDevice(path); err == nil {
				return channel.NewPort(d)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// agents are the agent's processes, the first of them first.
func agents() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, one := range all {
		b, _ := os.ReadFile(one)
		if pid, err := strconv.Atoi(strings.Split(one, "/")[2]); err == nil && bytes.HasPrefix(b, []byte("@holt-guest")) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// killAgents kills them, and returns how many there were.
func killAgents() int {
	all := agents()
	for _, pid := range all {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	return len(all)
}

// ofAgent opens what the agent's first process has open.
func ofAgent(fd int) (*os.File, error) {
	all := agents()
	if len(all) == 0 {
		return nil, os.ErrNotExist
	}
	return os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", all[0], fd), os.O_RDWR|syscall.O_NONBLOCK, 0)
}

// takeLine takes what the first process of a sandbox's agent has of its host, the line and the console, and kills the agent.
func takeLine() *channel.Port {
	taken := func(fd int) *os.File {
		f, err := ofAgent(fd)
		if err != nil {
			panic(err)
		}
		return f
	}
	line, err := channel.NewPipe(taken(3), taken(4))
	if err == nil {
		err = syscall.Dup2(int(taken(2).Fd()), 1)
	}
	if err != nil {
		panic(err)
	}
	for killAgents() > 0 {
	}
	return channel.NewPort(line)
}

// tell says on the console what was tried.
func (h *hostile) tell(console string) {
	for {
		time.Sleep(time.Second)
		if f, err := os.OpenFile(console, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			fmt.Fprintf(f, "\r\n%s\r\n", h.said())
			f.Close()
		}
	}
}

// sessions has each session of a port be one attack, for a while; then the line is hung up. The others come in an
// order that the seed gives, the first one again after each four of them.
func (h *hostile) sessions(port *channel.Port, first attack, others []attack) {
	h.mu.Lock()
	h.rng.Shuffle(len(others), func(a, b int) { others[a], others[b] = others[b], others[a] })
	h.mu.Unlock()
	for n := 0; ; n++ {
		port.HangUp()
		conn, err := port.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		a := first
		if n%5 != 0 && len(others) > 0 {
			a = others[(n-n/5-1)%len(others)]
		}
		done := time.AfterFunc(a.length, func() { conn.Close() })
		h.did("sessions: "+a.name, 1)
		a.do(conn)
		done.Stop()
		conn.Close()
	}
}

// attack is what is done with one session.
type attack struct {
	name   string
	length time.Duration
	do     func(net.Conn)
}

// drain takes what the host sends, to no end.
func drain(c net.Conn) {
	b := make([]byte, 64<<10)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}
