package agent

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
)

// Command is the name of this program in a computer's PATH, where it calls the computer's own API.
const (
	Command    = "holt"
	commandDir = "/usr/local/bin/"

	commandUsage = `holt shows and changes this computer from inside. It cannot reach other computers.

  holt self                             show this computer
  holt checkpoint [LABEL]               take a workspace checkpoint
  holt snapshot [--name NAME]           keep memory, root disk and workspace as they are
  holt fork [--name NAME] [--count N]   create computers that continue from its current state
  holt publish FILE [--name NAME]       publish a file as an artifact, which outlives this computer
  holt pause                            pause it; the next use wakes it

--json prints JSON, as for anything but a terminal. In a fork, holt fork says which one it is.

Exit status:
  0  done                          5  unavailable, timeout or too many
  1  failure                       6  out of space
  2  usage or invalid argument     7  not allowed
  3  not found                     8  not supported here
  4  already exists, or conflict
`
)

// installCommands links this program into the PATH of the machine with its root
// at root, under all its names, unless a file exists there.
func installCommands(root string) error {
	return errors.Join(installCommand(root+commandDir+Command), installCommand(root+commandDir+syncCommand))
}

func installCommand(path string) error {
	if to, err := os.Readlink(path); err == nil && to == GuestPath {
		return nil
	}
	err := os.Symlink(GuestPath, path)
	if errors.Is(err, os.ErrExist) {
		return nil // a file of the user
	}
	return err
}

// selfCommand is one invocation.
type selfCommand struct {
	own      selfAPI
	out, err io.Writer
	json     bool
	name     string
	count    int
	args     []string
}

// runCommand runs the command holt in a computer and returns the exit status.
func runCommand(args []string, address string, stdout, stderr io.Writer) int {
	c := &selfCommand{own: selfAPI{address}, out: stdout, err: stderr}
	err := c.run(args)
	if errors.Is(err, flag.ErrHelp) {
		io.WriteString(stdout, commandUsage)
		return 0
	}
	if err == nil {
		return 0
	}
	c.say(holt.AsError(err))
	return holt.ExitStatus(holt.CodeOf(err))
}

// say prints an error as the host's command does.
func (c *selfCommand) say(e *holt.Error) {
	fmt.Fprintf(c.err, "holt: %s\n", e.Message)
	if e.Hint != "" {
		fmt.Fprintf(c.err, "hint: %s\n", e.Hint)
	}
}

func (c *selfCommand) run(args []string) error {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		return flag.ErrHelp
	}
	verbs := map[string]struct {
		do   func() error
		most int // arguments
	}{"self": {c.self, 0}, "checkpoint": {c.checkpoint, 1}, "snapshot": {c.snapshot, 0}, "fork": {c.fork, 0}, "publish": {c.publish, 1}, "pause": {c.pause, 0}}
	verb, ok := verbs[args[0]]
	if !ok {
		return holt.Errorf(holt.InvalidArgument, "unknown command %q", clip(args[0])).WithHint("run holt help for the list of commands")
	}
	if err := c.parse(args[0], args[1:]); err != nil {
		return err
	}
	if len(c.args) > verb.most {
		return holt.Errorf(holt.InvalidArgument, "holt %s does not take the argument %q", args[0], clip(c.args[verb.most])).WithHint("run holt help for the list of commands")
	}
	return verb.do()
}

// parse parses flags before, between and after arguments.
func (c *selfCommand) parse(verb string, args []string) error {
	flags := flag.NewFlagSet(verb, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&c.json, "json", !isTTY(c.out), "")
	if verb == "fork" || verb == "snapshot" || verb == "publish" {
		flags.StringVar(&c.name, "name", "", "")
	}
	if verb == "fork" {
		flags.IntVar(&c.count, "count", 1, "")
	}
	for {
		if err := flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return err
			}
			return holt.Errorf(holt.InvalidArgument, "%w", err).WithHint("run holt help for the list of commands")
		}
		if args = flags.Args(); len(args) == 0 {
			return nil
		}
		c.args, args = append(c.args, args[0]), args[1:]
	}
}

func isTTY(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// print prints JSON or a line.
func (c *selfCommand) print(v any, format string, args ...any) error {
	if !c.json {
		_, err := fmt.Fprintf(c.out, format+"\n", args...)
		return err
	}
	e := json.NewEncoder(c.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (c *selfCommand) self() error {
	var is holt.Self
	if err := c.own.ask("GET", "", "", nil, &is); err != nil {
		return asUnavailable(err)
	}
	return c.print(is, "%s\t%s\n%s, %d CPUs, %d MiB of memory, workspace %s", is.Name, is.ID, is.Template, is.CPUs, is.MemoryMB, is.Workspace)
}

func (c *selfCommand) checkpoint() error {
	var taken holt.Checkpoint
	_, is, cut, err := c.own.change("/checkpoint", holt.CheckpointSpec{Name: strings.Join(c.args, "")}, &taken, true)
	if err != nil || cut {
		return c.elsewhere(is, err)
	}
	return c.print(taken, "checkpoint %s", taken.Name)
}

func (c *selfCommand) snapshot() error {
	var taken holt.Snapshot
	_, is, cut, err := c.own.change("/snapshot", holt.SnapshotSpec{Name: c.name}, &taken, true)
	if err != nil || cut {
		return c.elsewhere(is, err)
	}
	name := taken.Name
	if name == "" {
		name = string(taken.ID)
	}
	return c.print(taken, "snapshot %s is kept", name)
}

func (c *selfCommand) fork() error {
	var made holt.ForkedComputers
	was, is, cut, err := c.own.change("/fork", holt.ComputerForkSpec{Name: c.name, Count: c.count}, &made, true)
	if err != nil || cut {
		return c.elsewhere(is, err)
	}
	if c.json {
		err = c.print(made, "")
	}
	for _, one := range made.Computers {
		switch {
		case one.Error != nil:
			c.say(holt.Errorf(one.Error.Code, "%s: %s", one.Name, one.Error.Message).WithHint("%s", one.Error.Hint))
			err = holt.Errorf(one.Error.Code, "not all were created")
		case !c.json:
			fmt.Fprintf(c.out, "%s runs, forked from %s\n", one.Name, was.Name)
		}
	}
	return err
}

func (c *selfCommand) publish() error {
	if len(c.args) == 0 {
		return holt.Errorf(holt.InvalidArgument, "holt publish needs a file").WithHint("for example: holt publish report.pdf")
	}
	file, err := filepath.Abs(c.args[0])
	if err != nil {
		return err
	}
	var made holt.Published
	_, is, cut, err := c.own.change("/artifacts", holt.OwnArtifact{Path: holt.OSString(file), Name: c.name}, &made, true)
	if err != nil || cut {
		return c.elsewhere(is, err)
	}
	return c.print(made, "published as %s/%s", made.Bucket, made.Name)
}

func (c *selfCommand) pause() error {
	var paused holt.Self
	was, is, cut, err := c.own.change("/pause", nil, &paused, false)
	switch {
	case err != nil || cut && is.ID != was.ID:
		return c.elsewhere(is, err)
	case cut:
		paused = is
	}
	return c.print(paused, "%s was paused and is resumed", paused.Name)
}

// elsewhere prints that the process now runs in a fork, not in the computer that it asked from.
func (c *selfCommand) elsewhere(is holt.Self, err error) error {
	if err != nil {
		return err
	}
	return c.print(is, "this is %s, a fork", is.Name)
}
