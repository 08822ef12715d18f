package agent

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
)

// A command line runs in bash after the start-up files of a login shell, as with `bash -l`, with
// three differences: the files do not read the command's input and write to standard error, so
// that rsync and scp work with a profile that prints; variables from the caller override theirs;
// and if they end the shell, an error says so.
//
// bash reads them through BASH_ENV, from a file in memory: it may be long, and its content does
// not appear in a command line or directory. The same file has a command that is too long for an
// argument.
const (
	startupFD   = 9 // above what scripts use, below the descriptors that bash reserves
	startupFile = "/proc/self/fd/9"

	beforeLogin = `exec 9<&-
unset BASH_ENV
trap 'echo "holt: a start-up file (~/.profile or ~/.bashrc) ended the shell, so the command did not run" >&2' EXIT
_holt_given() {
:
%s}
{
if [ -r /etc/profile ]; then . /etc/profile; fi
_holt_given
if [ -r ~/.bash_profile ]; then . ~/.bash_profile
elif [ -r ~/.bash_login ]; then . ~/.bash_login
elif [ -r ~/.profile ]; then . ~/.profile
fi
%s} </dev/null >&2
_holt_given 2>/dev/null
unset -f _holt_given
trap - EXIT
`
)

// beforeShell is read by /etc/profile.d/zz-holt.sh in a terminal or an SSH
// login, before ~/.profile and ~/.bashrc, which override it. If /etc/profile
// does not read that directory, the descriptor stays open; its content is also
// in the shell's environment.
const beforeShell = "%sexec 9<&-\n"

var (
	shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// ownNames are variables that the shell reserves, or reads before it executes anything.
	ownNames = []string{"BASHOPTS", "BASH_ENV", "BASH_VERSINFO", "EUID", "IFS", "PPID", "SHELLOPTS", "UID", runEnv, terminalEnv}
)

// exports returns shell commands that set the spec's variables to their values
// in the command's environment. Locales that the guest lacks are omitted.
func (c *command) exports(spec holt.RunSpec) string {
	var b strings.Builder
	for _, kv := range slices.Sorted(slices.Values(c.attr.Env)) {
		name, value, _ := strings.Cut(kv, "=")
		_, given := spec.Env[holt.OSString(name)]
		_, secret := spec.Secrets[holt.OSString(name)]
		if (given || secret) && shellName.MatchString(name) && !slices.Contains(ownNames, name) {
			fmt.Fprintf(&b, "export %s=%s\n", name, shellQuote(value))
		}
	}
	return b.String()
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// runLine makes c run the spec's command line: in bash with the start-up files,
// or in sh if there is no bash.
func (c *command) runLine(spec holt.RunSpec) {
	line := string(spec.Command)
	if _, err := os.Stat("/bin/bash"); err != nil {
		if c.argv = []string{"/bin/sh", "-c", line}; len(line) > longestWord() {
			c.argv[2], c.startup = ". "+startupFile, "exec 9<&-; "+line
		}
		return
	}
	own := "" // BASH_ENV and POSIXLY_CORRECT of the caller or /etc/environment
	c.attr.Env = slices.DeleteFunc(c.attr.Env, func(kv string) bool {
		k, v, _ := strings.Cut(kv, "=")
		switch k {
		case "BASH_ENV":
			own += fmt.Sprintf("export BASH_ENV=%s\nif [ -r \"$BASH_ENV\" ]; then . \"$BASH_ENV\"; fi\n", shellQuote(v))
		case "POSIXLY_CORRECT": // with it bash reads no BASH_ENV
			own += "export POSIXLY_CORRECT=" + shellQuote(v) + "\n"
		default:
			return false
		}
		return true
	})
	c.attr.Env = append(c.attr.Env, "BASH_ENV="+startupFile)
	c.argv = []string{"/bin/bash", "--noprofile", "-l", "-c", line}
	c.startup = fmt.Sprintf(beforeLogin, c.exports(spec), own)
	if len(line) > longestWord() {
		c.argv[4] = `eval "${_holt_command:?is lost}"`
		c.startup += "_holt_command=" + shellQuote(line) + "\n"
	}
}

// runShell makes c the login shell of a terminal or an SSH login.
func (c *command) runShell(spec holt.RunSpec) {
	name := filepath.Base(c.path)
	c.argv = []string{"-" + name}
	if given := c.exports(spec); given != "" && slices.Contains([]string{"bash", "sh", "dash", "ksh"}, name) {
		c.startup = fmt.Sprintf(beforeShell, given)
		c.attr.Env = append(c.attr.Env, "HOLT_GIVEN="+startupFile)
	}
}

// giveStartup opens the startup content as the process's descriptor startupFD.
func (c *command) giveStartup() (done func(), err error) {
	if c.startup == "" {
		return func() {}, nil
	}
	fd, err := unix.MemfdCreate("holt", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make the start-up file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "startup")
	if _, err := f.WriteString(c.startup); err != nil {
		f.Close()
		return nil, fmt.Errorf("write the start-up file: %w", err)
	}
	for len(c.attr.Files) < startupFD {
		c.attr.Files = append(c.attr.Files, ^uintptr(0)) // closed
	}
	c.attr.Files = append(c.attr.Files, f.Fd())
	return func() { f.Close() }, nil
}

// longestWord is the maximum length of one argument, or one variable with its
// name and =, bytes: the kernel's MAX_ARG_STRLEN without the final zero.
func longestWord() int { return 32*os.Getpagesize() - 1 }

// checkWords refuses arguments that the kernel cannot pass to a program.
func checkWords(spec holt.RunSpec) error {
	most := longestWord()
	for i, arg := range spec.Argv {
		if len(arg) > most {
			return holt.Errorf(holt.InvalidArgument, "argument %d has %d bytes: the kernel's maximum is %d", i, len(arg), most).
				WithHint("write it to a file, pass it as standard input, or use a shell command line, which may be longer")
		}
	}
	for _, vars := range []map[holt.OSString]holt.OSString{spec.Env, spec.Secrets} {
		for _, k := range slices.Sorted(maps.Keys(vars)) {
			if n := len(k) + 1 + len(vars[k]); n > most {
				return holt.Errorf(holt.InvalidArgument, "variable %s has %d bytes with its name: the kernel's maximum is %d", clip(string(k)), n, most).
					WithHint("write the value to a file and pass the file's name")
			}
		}
	}
	return nil
}
