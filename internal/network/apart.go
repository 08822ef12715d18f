package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"holt/internal/engine/jail"
	"holt/internal/engine/machine"
)

// keptDir is the directory of the network's own files, the only one that it may write to, in the machine's directory.
// Earlier versions had these files in the machine's directory itself.
const keptDir = "network"

// hidden are the sockets of a machine that its network must not see.
var hidden = []string{"qmp.sock", "console.sock", machine.Socket(machine.PortControl), machine.Socket(machine.PortFiles)}

// run starts the process. With Apart it runs in a jail, as a user of its own that sees the machine's directory and the
// host's certificates.
func (n *Networks) run(d *machine.Dir, cmd *exec.Cmd) error {
	if err := makeKept(d); err != nil {
		return err
	}
	if !n.opt.Apart {
		return cmd.Start()
	}
	c := jail.Cell{User: jail.User("network " + d.Path), Network: true, Files: []jail.File{{Path: d.Path}, {Path: d.File(keptDir), Write: true}}}
	for _, name := range hidden {
		c.Files = append(c.Files, jail.File{Path: d.File(name), Hide: true})
	}
	for _, name := range trusted {
		for _, path := range filepath.SplitList(os.Getenv(name)) {
			if _, err := os.Stat(path); err == nil && filepath.IsAbs(path) {
				c.Files = append(c.Files, jail.File{Path: path})
			}
		}
	}
	return jail.Thread(func() error {
		if err := c.Start(cmd); err != nil {
			return err
		}
		err := c.Forbid(cmd.Process.Pid)
		if err != nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
		return err
	})
}

func makeKept(d *machine.Dir) error {
	if err := os.Mkdir(d.File(keptDir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory of network: %w", err)
	}
	return nil
}

// keep writes a file of keptDir.
func keep(dir *machine.Dir, name string, v any) error {
	if err := makeKept(dir); err != nil {
		return err
	}
	return replace(dir.File(keptDir), name, v)
}

// readKept reads a file of keptDir.
func readKept(dir *machine.Dir, name string, into any) error {
	err := readJSON(dir, filepath.Join(keptDir, name), into)
	if errors.Is(err, fs.ErrNotExist) {
		err = readJSON(dir, name, into)
	}
	return err
}
