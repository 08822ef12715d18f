package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"holt"
)

// Limits of an inventory, on both sides.
const (
	maxDpkgStatus  = 64 << 20 // maximum size of /var/lib/dpkg/status
	maxCommand     = 512      // bytes of a process's arguments
	mostInventory  = 32 << 20 // encoded size of the list
	kernelThreads  = 2        // pid of their common parent
	tcpListen      = "0A"     // include/net/tcp_states.h
	udpUnconnected = "07"
	mostFDs        = 100_000 // descriptors inspected to find listeners
)

// item is one entry of an inventory.
type item struct {
	Package *holt.Package `json:"package,omitempty"`
	Process *holt.Process `json:"process,omitempty"`
	Port    *holt.Port    `json:"port,omitempty"`
	File    *rootFile     `json:"file,omitempty"`
	NoFiles string        `json:"no_files,omitempty"` // why files of the root disk are not listed
}

// listInventory sends the installed packages, the processes, and the files of the root disk.
func (s *Server) listInventory(ctx context.Context, st *serverStream) error {
	packages, err := installed("/var/lib/dpkg/status")
	if err != nil {
		return err
	}
	processes, err := processes()
	if err != nil {
		return err
	}
	ports := listeners(processes)
	var items []item
	for _, p := range packages {
		items = append(items, item{Package: &p})
	}
	for _, p := range processes {
		items = append(items, item{Process: &p})
	}
	for _, p := range ports {
		items = append(items, item{Port: &p})
	}
	files, err := s.ownFiles(ctx)
	if err != nil {
		items = append(items, item{NoFiles: err.Error()})
	}
	for i := range files {
		items = append(items, item{File: &files[i]})
	}
	if err := st.agree(nil); err != nil {
		return err
	}
	return sendItems(st, items)
}

// ownFiles lists the files of the machine's root disk.
func (s *Server) ownFiles(ctx context.Context) ([]rootFile, error) {
	if !s.opt.Machine {
		return nil, errors.New("it has no root disk of its own")
	}
	mounts, err := mountPoints()
	if err != nil {
		return nil, err
	}
	return s.rootFiles(ctx, "/", mounts)
}

// installed returns the packages of a dpkg status file (dpkg(1)); none if it does not exist.
func installed(path string) (all []holt.Package, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseStatus(io.LimitReader(f, maxDpkgStatus))
}

// parseStatus reads paragraphs of fields; a line that begins with a space continues the field.
func parseStatus(r io.Reader) (all []holt.Package, err error) {
	var p holt.Package
	there := false
	end := func() {
		if there && p.Name != "" {
			all = append(all, p)
		}
		p, there = holt.Package{}, false
	}
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		whole := !errors.Is(err, bufio.ErrBufferFull)
		key, value, _ := strings.Cut(strings.TrimRight(string(line[:min(len(line), 1024)]), "\r\n"), ": ")
		switch {
		case key == "" && whole:
			end()
		case key == "Package":
			p.Name = value
		case key == "Version":
			p.Version = value
		case key == "Architecture":
			p.Arch = value
		case key == "Status":
			there = strings.HasSuffix(value, " installed")
		}
		for !whole { // no field of interest is that long
			_, err = in.ReadSlice('\n')
			whole = !errors.Is(err, bufio.ErrBufferFull)
		}
		if err == io.EOF {
			end()
			return all, nil
		} else if err != nil {
			return nil, err
		}
	}
}

// processes lists the processes that are not kernel threads.
func processes() ([]holt.Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	users := map[string]string{}
	if err := eachEntry("/etc/passwd", 7, func(f []string) bool { users[f[2]] = f[0]; return true }); err != nil {
		return nil, err
	}
	var all []holt.Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := process(pid, users); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// process describes a process; ok is false if it has ended.
func process(pid int, users map[string]string) (p holt.Process, ok bool) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return p, false
	}
	// pid (name) state ppid … starttime is the 22nd; the name may contain anything
	open, shut := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || shut < open {
		return p, false
	}
	f := strings.Fields(string(stat[shut+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return p, false
	}
	p.PID = pid
	p.PPID, _ = strconv.Atoi(f[1])
	p.Start, _ = strconv.ParseInt(f[19], 10, 64)
	if pid == kernelThreads || p.PPID == kernelThreads {
		return p, false
	}
	status, _ := os.ReadFile(dir + "status")
	if _, rest, found := strings.Cut(string(status), "\nUid:\t"); found {
		uid, _, _ := strings.Cut(rest, "\t")
		if p.User = users[uid]; p.User == "" {
			p.User = uid
		}
	}
	p.Command = holt.OSString("[" + string(stat[open+1:shut]) + "]")
	if c, err := os.Open(dir + "cmdline"); err == nil {
		b, _ := io.ReadAll(io.LimitReader(c, maxCommand))
		c.Close()
		if b = bytes.TrimRight(b, "\x00"); len(b) > 0 {
			p.Command = holt.OSString(bytes.ReplaceAll(b, []byte{0}, []byte(" ")))
		}
	}
	return p, true
}

// listeners lists listening ports and their processes.
func listeners(all []holt.Process) []holt.Port {
	ports, inodes := sockets()
	looked := 0
	for _, p := range all {
		dir := fmt.Sprintf("/proc/%d/", p.PID)
		fds, _ := os.ReadDir(dir + "fd")
		for _, fd := range fds {
			if looked++; looked > mostFDs || len(inodes) == 0 {
				return ports
			}
			to, _ := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
			inode, ok := strings.CutPrefix(strings.TrimSuffix(to, "]"), "socket:[")
			if !ok || inodes[inode] == nil {
				continue
			}
			name, _ := os.ReadFile(dir + "comm")
			for _, i := range inodes[inode] {
				ports[i].PID, ports[i].Process = p.PID, strings.TrimSpace(string(name))
			}
			delete(inodes, inode)
		}
	}
	return ports
}

// sockets lists listening ports, and by the inode of a socket the indexes of its ports.
func sockets() (ports []holt.Port, inodes map[string][]int) {
	inodes = map[string][]int{}
	for _, table := range []struct{ file, protocol, state string }{
		{"tcp", "tcp", tcpListen}, {"tcp6", "tcp", tcpListen}, {"udp", "udp", udpUnconnected}, {"udp6", "udp", udpUnconnected},
	} {
		f, err := os.Open("/proc/net/" + table.file)
		if err != nil {
			continue // missing without IPv6
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			w := strings.Fields(sc.Text()) // sl local_address rem_address st … inode is the 10th
			if len(w) < 10 || w[3] != table.state {
				continue
			}
			if at, ok := socketAddress(w[1]); ok {
				inodes[w[9]] = append(inodes[w[9]], len(ports))
				ports = append(ports, holt.Port{Protocol: table.protocol, Address: at.Addr().String(), Port: int(at.Port())})
			}
		}
		f.Close()
	}
	return ports, inodes
}

// socketAddress parses an address of /proc/net/tcp and similar files:
// hexadecimal words in the machine's byte order, a colon, and the port.
func socketAddress(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || err2 != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	addr, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(addr, uint16(n)), ok
}

// Inventory lists the guest's packages, processes and listeners, and the files
// of its root disk. Entries beyond [holt.MostListed] of a kind are only
// counted.
func (c *Client) Inventory(ctx context.Context) (holt.Inventory, error) {
	inv := told{Inventory: holt.Inventory{At: time.Now().UTC()}}
	s, err := c.open(ctx, opInventory, nil, nil)
	if err != nil {
		return inv.Inventory, err
	}
	defer s.Close()
	err = readList(s, mostInventory, inv.add)
	return inv.Inventory, describe(ctx, opInventory, err)
}

// told is the inventory received so far.
type told struct {
	holt.Inventory
	names int // bytes of paths and targets
}

// add adds one entry, sanitised: its text is shown, and stored with each snapshot.
func (inv *told) add(x item) error {
	if x.File != nil {
		inv.names += len(x.File.Path) + len(x.File.Target)
	}
	switch {
	case x.Package != nil && len(inv.Packages) < holt.MostListed:
		p := *x.Package
		inv.Packages = append(inv.Packages, holt.Package{Name: plain(p.Name, maxWord), Arch: plain(p.Arch, maxWord), Version: plain(p.Version, maxWord)})
	case x.Process != nil && len(inv.Processes) < holt.MostListed:
		p := *x.Process
		p.PID, p.PPID, p.Start, p.User = max(0, p.PID), max(0, p.PPID), max(0, p.Start), plain(p.User, maxWord)
		p.Command = p.Command[:min(len(p.Command), maxCommand)]
		inv.Processes = append(inv.Processes, p)
	case x.Port != nil && len(inv.Ports) < holt.MostListed:
		p := *x.Port
		p.Protocol, p.Address, p.Process = plain(p.Protocol, maxWord), plain(p.Address, maxWord), plain(p.Process, maxWord)
		p.Port, p.PID = min(max(0, p.Port), 1<<16-1), max(0, p.PID)
		inv.Ports = append(inv.Ports, p)
	case x.File != nil && len(inv.RootFiles) < holt.MostListed && inv.names <= mostNames:
		f, ok := x.File.vet()
		if !ok {
			inv.Omitted++
			break
		}
		inv.RootFiles = append(inv.RootFiles, f)
		if x.File.Unread {
			inv.Unread = append(inv.Unread, string(f.Path))
		}
	case x.NoFiles != "":
		inv.NoFiles = plain(x.NoFiles, maxSentence)
	case x.Package != nil || x.Process != nil || x.Port != nil || x.File != nil:
		inv.Omitted++
	}
	return nil
}
