package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/network/netstack"
)

// Names of the files in a machine's directory.
const (
	lockFile      = "network.lock"
	controlSocket = "network-control.sock"
	settingsFile  = "network.json"
	trafficFile   = "network-traffic.json"
	logFile       = "network.log"
)

const mostFile = 4 << 20 // maximum size of a file, bytes

// settings is the content of network.json.
type settings struct {
	Policy holt.NetworkPolicy `json:"policy"`
	// Reach are addresses that count as public, even if they are not.
	Reach []netip.AddrPort `json:"reach,omitempty"`
}

// Check returns InvalidArgument for an invalid policy.
func Check(p holt.NetworkPolicy) error {
	_, err := netstack.ParsePolicy(p)
	return err
}

// GrantsInner reports whether a policy grants addresses, or ports of the host, so that more than the internet may be reached.
func GrantsInner(p holt.NetworkPolicy) bool {
	policy, err := netstack.ParsePolicy(p)
	return err != nil || policy.GrantsInner()
}

func readSettings(dir *machine.Dir) (s settings, err error) {
	return s, readJSON(dir, settingsFile, &s)
}

// few is a list that decodes at most mostListed items, since a file of [mostFile] bytes has room for a million small ones.
type few[T any] []T

const mostListed = 4096 // as many names as a stack remembers, and more than its destinations

func (f *few[T]) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if begins, err := d.Token(); err != nil || begins == nil {
		return err
	} else if begins != json.Delim('[') {
		return fmt.Errorf("want a list, got %v", begins)
	}
	var list []T
	for d.More() {
		if len(list) == mostListed {
			return fmt.Errorf("the list has more than %d items", mostListed)
		}
		var one T
		if err := d.Decode(&one); err != nil {
			return err
		}
		list = append(list, one)
	}
	*f = list
	return nil
}

// readJSON reads a file of a machine's directory.
func readJSON(dir *machine.Dir, name string, into any) error {
	// A guest that has taken over the network's process can write anything.
	f, err := os.OpenFile(dir.File(name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("read %s: not a regular file", name), err)
	}
	b, err := io.ReadAll(io.LimitReader(f, mostFile))
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}
