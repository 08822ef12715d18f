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

const mostFile = 4 << 20 // bytes of a file that is read

// settings are what a process goes by.
type settings struct {
	Policy holt.NetworkPolicy `json:"policy"`
	// Reach are addresses that count as the internet's, whatever they look like.
	Reach []netip.AddrPort `json:"reach,omitempty"`
}

// Check returns InvalidArgument for a policy that cannot be obeyed.
func Check(p holt.NetworkPolicy) error {
	_, err := netstack.ParsePolicy(p)
	return err
}

// GrantsInner tells whether a policy grants addresses or ports of the host, so that more than the internet may be reached.
func GrantsInner(p holt.NetworkPolicy) bool {
	policy, err := netstack.ParsePolicy(p)
	return err != nil || policy.GrantsInner()
}

func readSettings(dir *machine.Dir) (s settings, err error) {
	return s, readJSON(dir, settingsFile, &s)
}

// few is a list of which no more than mostListed items are decoded: in [mostFile] there is room for a million small ones.
type few[T any] []T

const mostListed = 4096 // as many names as a stack remembers, and more than its destinations

func (f *few[T]) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if begins, err := d.Token(); err != nil || begins == nil {
		return err
	} else if begins != json.Delim('[') {
		return fmt.Errorf("a list that begins with %v", begins)
	}
	var list []T
	for d.More() {
		if len(list) == mostListed {
			return fmt.Errorf("a list of more than %d items", mostListed)
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
	// What the process of a network has written may be anything, if a guest has taken it over.
	f, err := os.OpenFile(dir.File(name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("read %s: it is no file", name), err)
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
