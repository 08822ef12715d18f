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

// A command line runs in a bash that has executed the start-up files of a login shell first, as
// `bash -l` does, with three differences: they read nothing of the command's input and write to
// standard error, so that rsync and scp work beside a profile that prints; the variables that the
// caller gave count more than theirs; and where they end the shell, that is said.
//
// bash takes it as BASH_ENV, from a file in memory: it can be long, and neither a command line nor
// a directory shows what is in it. The same file brings a command that is too long for an argument.
const (
	startupFD   = 9 // above what scripts use by hand, below what bash moves its own to
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

// beforeShell is read by /etc/profile.d/zz-holt.sh in a terminal or an SSH login, whose
// ~/.profile and ~/.bashrc come later and count more. Where /etc/profile does not read that directory, the descriptor
// stays open; what is in it is in the shell's environment too.
const beforeShell = "%sexec 9<&-\n"

var (
	shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// ownNames are variables that the shell keeps for itself, or reads before it has executed anything.
	ownNames = []string{"BASHOPTS", "BASH_ENV", "BASH_VERSINFO", "EUID", "IFS", "PPID", "SHELLOPTS", "UID", runEnv, terminalEnv}
)

// exports are shell commands that give the variables of the spec the values that they have in the
// command's environment. A locale that the guest lacks is not there.
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

// runLine makes c run the spec's command line: in bash with the start-up files, or in sh where there is no bash.
func (c *command) runLine(spec holt.RunSpec) {
	line := string(spec.Command)
	if _, err := os.Stat("/bin/bash"); err != nil {
		if c.argv = []string{"/bin/sh", "-c", line}; len(line) > longestWord() {
			c.argv[2], c.startup = ". "+startupFile, "exec 9<&-; "+line
		}
		return
	}
	own := "" // what the caller, or /etc/environment, has as BASH_ENV and POSIXLY_CORRECT
	c.attr.Env = slices.DeleteFunc(c.attr.Env, func(kv string) bool {
		k, v, _ := strings.Cut(kv, "=")
		switch k {
		case "BASH_ENV":
			own += fmt.Sprintf("export BASH_ENV=%s\nif [ -r \"$BASH_ENV\" ]; then . \"$BASH_ENV\"; fi\n", shellQuote(v))
		case "POSIXLY_CORRECT": // with it bash reads neither
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

// runShell makes c the login shell that a terminal or an SSH login has.
func (c *command) runShell(spec holt.RunSpec) {
	name := filepath.Base(c.path)
	c.argv = []string{"-" + name}
	if given := c.exports(spec); given != "" && slices.Contains([]string{"bash", "sh", "dash", "ksh"}, name) {
		c.startup = fmt.Sprintf(beforeShell, given)
		c.attr.Env = append(c.attr.Env, "HOLT_GIVEN="+startupFile)
	}
}

// giveStartup opens what the shell reads first as the process's descriptor startupFD.
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

// longestWord is how long one argument, or one variable with its name and =, may be, bytes: the
// kernel's MAX_ARG_STRLEN without the zero at its end.
func longestWord() int { return 32*os.Getpagesize() - 1 }

// checkWords refuses what no program could be started with.
func checkWords(spec holt.RunSpec) error {
	most := longestWord()
	for i, arg := range spec.Argv {
		if len(arg) > most {
			return holt.Errorf(holt.InvalidArgument, "argument %d has %d bytes; the kernel takes at most %d", i, len(arg), most).
				WithHint("write it to a file, pass it as standard input, or give a shell command line, which may be longer")
		}
	}
	for _, vars := range []map[holt.OSString]holt.OSString{spec.Env, spec.Secrets} {
		for _, k := range slices.Sorted(maps.Keys(vars)) {
			if n := len(k) + 1 + len(vars[k]); n > most {
				return holt.Errorf(holt.InvalidArgument, "variable %s has %d bytes with its name; the kernel takes at most %d", clip(string(k)), n, most).
					WithHint("write the value to a file and give the file's name")
			}
		}
	}
	return nil
}
