package agent

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"holt"
)

const (
	defaultUser = "agent"
	defaultID   = 1000 // uid and gid of the default user without an entry
	maxDatabase = 8 << 20
)

// account is a user of the guest.
type account struct {
	Name, Home, Shell string
	UID, GID          uint32
	Groups            []uint32 // supplementary
}

// findAccount looks up a user by name or number ("": agent). It parses
// /etc/passwd and /etc/group itself, because a static program has no NSS.
func findAccount(name string) (account, error) {
	if name == "" {
		name = defaultUser
	}
	var a account
	found := false
	err := eachEntry("/etc/passwd", 7, func(f []string) bool {
		if f[0] != name && f[2] != name {
			return true
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil {
			return true
		}
		a = account{Name: f[0], Home: f[5], Shell: f[6], UID: uint32(uid), GID: uint32(gid)}
		found = true
		return false
	})
	if err != nil {
		return a, err
	}
	if !found {
		return strangerAccount(name)
	}
	if a.Home == "" {
		a.Home = "/"
	}
	if a.Shell == "" {
		a.Shell = "/bin/sh"
	}
	err = eachEntry("/etc/group", 4, func(f []string) bool {
		gid, err := strconv.ParseUint(f[2], 10, 32)
		if err == nil && uint32(gid) != a.GID && slices.Contains(strings.Split(f[3], ","), a.Name) {
			a.Groups = append(a.Groups, uint32(gid))
		}
		return true
	})
	return a, err
}

// strangerAccount returns the account of a user without an entry: the default user, or a number.
func strangerAccount(name string) (account, error) {
	if name == defaultUser {
		return account{Name: name, Home: "/home/agent", Shell: "/bin/sh", UID: defaultID, GID: defaultID}, nil
	}
	if id, err := strconv.ParseUint(name, 10, 32); err == nil && id != 1<<32-1 {
		return account{Name: name, Home: "/", Shell: "/bin/sh", UID: uint32(id), GID: uint32(id)}, nil
	}
	return account{}, holt.Errorf(holt.NotFound, "no user %q in this computer", clip(name)).
		WithHint("in the computer, list users with getent passwd, create one with useradd")
}

// eachEntry calls entry with the fields of each well-formed line until it
// returns false. A missing file has no lines.
func eachEntry(path string, fields int, entry func([]string) bool) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	sc := bufio.NewScanner(io.LimitReader(f, maxDatabase))
	sc.Buffer(nil, 1<<20) // groups can have many members
	for sc.Scan() {
		line := sc.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if parts := strings.Split(line, ":"); len(parts) >= fields && !entry(parts) {
			return nil
		}
	}
	return sc.Err()
}
