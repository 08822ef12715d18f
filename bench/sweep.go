package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"holt/internal/engine/machine"
)

// sweep ends the machines and the mounts below dir, which only a killed bench
// leaves, and removes it.
func sweep(dir string) error {
	strays, err := machine.FindStrays(dir, func(machine.Process) bool { return true }, machine.Process.Kill)
	if err != nil {
		return fmt.Errorf("look for machines of an earlier bench: %w", err)
	}
	var errs []error
	for _, s := range strays {
		errs = append(errs, s.Kill())
	}
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		errs = append(errs, unix.Unmount(mounts[i], unix.MNT_DETACH))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end what an earlier bench left: %w", err)
	}
	return os.RemoveAll(dir)
}

func mountsBelow(dir string) (out []string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && strings.HasPrefix(unspace(fields[4]), dir+"/") {
			out = append(out, unspace(fields[4]))
		}
	}
	return out, lines.Err()
}

// unspace undoes what mountinfo does to a blank.
func unspace(s string) string { return strings.ReplaceAll(s, `\040`, " ") }
