package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holt"
)

// homeGuest is a guest with the start-up files of an image and a new workspace,
// and an /etc/environment.
func homeGuest(t *testing.T) *Client {
	t.Helper()
	c := startGuest(t).client(t)
	ground, err := filepath.Abs("../../image/ground/etc")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "environment")
	if err := os.WriteFile(file, []byte("NODE_ENV=production\nLANG=C.UTF-8\nOF_IMAGE=yes\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	sh(t, c, fmt.Sprintf(`set -e; mount --bind %s/profile.d /etc/profile.d; cp %[1]s/skel/.??* /home/agent; chown 1000:1000 /home/agent/.??*
		touch /etc/environment; mount --bind %s /etc/environment`, ground, file))
	return c
}

// asAgent runs a line as the user agent.
func asAgent(t *testing.T, c *Client, line string) string {
	t.Helper()
	r := runToEnd(t, c, holt.RunSpec{Command: holt.OSString(line)})
	if r.ExitCode != 0 {
		t.Errorf("%s: exit code %d, %s", line, r.ExitCode, r.stderr)
	}
	return r.stdout
}

// given are a caller's variables that /etc/profile, /etc/environment and ~/.bashrc also set.
var given = map[holt.OSString]holt.OSString{"PATH": "/mine:/usr/bin:/bin", "LANG": "POSIX", "NODE_ENV": "it's\n$(x) `y`", "a.b": "odd"}

const (
	showsGiven = `printf '%s|' "$PATH" "$LANG" "$NODE_ENV" "$OF_IMAGE"`
	isGiven    = "/mine:/usr/bin:/bin|POSIX|it's\n$(x) `y`|yes|"
)

// What an installer appends to ~/.bashrc applies to runs and logins: functions, variables, PATH.
func TestStartupFiles(t *testing.T) {
	c := homeGuest(t)
	asAgent(t, c, `mkdir -p ~/.local/bin ~/.tool/bin; printf '#!/bin/sh\necho tool' >~/.tool/bin/tool; chmod +x ~/.tool/bin/tool
		printf '%s\n' 'export PATH="$HOME/.tool/bin:$PATH"' 'nvm() { echo "nvm $1"; }' >>~/.bashrc`)
	const want = "tool\nnvm use\n/home/agent/.tool/bin:/home/agent/.local/bin:"
	const line = `tool; nvm use; echo "$PATH"`
	if got := asAgent(t, c, line); !strings.HasPrefix(got, want) || strings.Count(got, ".local/bin") != 1 {
		t.Errorf("a run: %q", got)
	}
	if out, _, _ := inSession(t, c, holt.SessionSpec{Command: line}, strings.NewReader("")); !strings.HasPrefix(out, want) {
		t.Errorf("a command over SSH: %q", out)
	}
	if out, _, _ := inSession(t, c, holt.SessionSpec{}, strings.NewReader(line)); !strings.HasPrefix(out, want) {
		t.Errorf("a login over SSH: %q", out)
	}
	info := openTerm(t, c, holt.TerminalSpec{Env: given})
	s := watch(t, c, info.ID, holt.AttachSpec{Offset: -1})
	s.typeIn(t, line+"; alias ll; "+showsGiven+"; env | grep -c GIVEN; ls -l /proc/self/fd/9\n")
	s.shows(t, "tool\r\nnvm use\r\n/home/agent/.tool/bin:/home/agent/.local/bin:/mine:/usr/bin:/bin\r\nalias ll='ls -alF'\r\n")
	s.shows(t, ":/mine:/usr/bin:/bin|POSIX|it's\r\n$(x) `y`|yes|0\r\nls: cannot access '/proc/self/fd/9'")
	s.typeIn(t, "exit\n")
	s.ends(t)
}

// Variables of the caller override every file of the computer, and nothing else
// is left in the environment.
func TestCallersVariablesOverride(t *testing.T) {
	c := homeGuest(t)
	asAgent(t, c, `echo 'export NODE_ENV=test PATH=/x:$PATH LANG=C' >>~/.bashrc`)
	for name, spec := range map[string]holt.RunSpec{
		"run":     {Command: showsGiven, Env: given},
		"secrets": {Command: showsGiven, Secrets: holt.Secrets(given)},
		"argv":    {Argv: holt.OSStrings{"sh", "-c", showsGiven}, Env: given},
		"root":    {Command: showsGiven, Env: given, User: "root"},
	} {
		r := runToEnd(t, c, spec)
		want := isGiven
		if name == "secrets" {
			want = "***"
		}
		if !strings.HasPrefix(r.stdout, want) || r.stderr != "" {
			t.Errorf("%s: %q, %q", name, r.stdout, r.stderr)
		}
	}
	for _, spec := range []holt.SessionSpec{{Command: showsGiven, Env: given}, {Env: given}} {
		want := isGiven
		if spec.Command == "" { // as on any system, a login's own files come last
			want = "/x:/mine:/usr/bin:/bin|C|test|yes|"
		}
		if out, errs, _ := inSession(t, c, spec, strings.NewReader(showsGiven)); out != want || errs != "" {
			t.Errorf("over SSH: %q, %q", out, errs)
		}
	}
	r := runToEnd(t, c, holt.RunSpec{Env: given, Command: `env | grep -c -e HOLT_GIVEN -e BASH_ENV; declare -F; ls /proc/self/fd; echo "$0 $- $#"; trap -p; tr '\0' ' ' </proc/$$/cmdline | grep -c 'min[e]'`})
	if r.stdout != "0\n0\n1\n2\n3\n/bin/bash hBc 0\n0\n" {
		t.Errorf("left behind: %q", r.stdout)
	}
	absent := map[holt.OSString]holt.OSString{"LC_ALL": "xx_XX.UTF-8"}
	if r := runToEnd(t, c, holt.RunSpec{Env: absent, Command: `echo "[$LC_ALL]"`}); r.stdout != "[]\n" || r.stderr != "" {
		t.Errorf("a locale that is not there: %q, %q", r.stdout, r.stderr)
	}
	own := map[holt.OSString]holt.OSString{"BASH_ENV": "/home/agent/own", "POSIXLY_CORRECT": "1", "UID": "7", "IFS": "x", "HOME": "/home/agent"}
	asAgent(t, c, `echo 'echo "of BASH_ENV"; F=1' >~/own`)
	if r := runToEnd(t, c, holt.RunSpec{Env: own, Command: `echo $F $UID $BASH_ENV "$POSIXLY_CORRECT"; printf %s "$IFS" | wc -c`}); r.stdout != "1 7 /home/agent/own 1\n3\n" || r.stderr != "of BASH_ENV\n" {
		t.Errorf("variables of bash: %q, %q", r.stdout, r.stderr)
	}
}

// Start-up files that print, read or fail neither change a command's streams nor hang it.
func TestMisbehavingStartupFiles(t *testing.T) {
	c := homeGuest(t)
	rude := func(line string, run func()) {
		t.Helper()
		asAgent(t, c, `cp ~/.bashrc ~/kept; printf '%s\n' `+shellQuote(line)+` >>~/.bashrc`)
		run()
		sh(t, c, "cat /home/agent/kept >/home/agent/.bashrc")
	}
	for _, line := range []string{"echo hello; cat; read x; read -n 1 y", "exec 3>&1; echo hello >&3", "trap 'echo bye' EXIT; echo hello"} {
		rude(line, func() {
			out, errs, end := inSession(t, c, holt.SessionSpec{Command: "cat; exit 3"}, strings.NewReader("input\n"))
			if out != "input\n" || errs != "hello\n" || end.ExitCode != 3 {
				t.Errorf("beside %q: %q, %q, %+v", line, out, errs, end)
			}
		})
	}
	rude("exit 7", func() {
		r := runToEnd(t, c, holt.RunSpec{Command: "echo command"})
		if r.ExitCode != 7 || r.stdout != "" || !strings.Contains(r.stderr, "ended the shell, so the command did not run") {
			t.Errorf("a profile that exits: %+v", r)
		}
	})
	rude("if then", func() {
		if r := runToEnd(t, c, holt.RunSpec{Command: "echo command"}); r.stdout != "command\n" || !strings.Contains(r.stderr, "syntax error") {
			t.Errorf("a profile that is no program: %+v", r)
		}
	})
	if _, errs, _ := inSession(t, c, holt.SessionSpec{SFTP: true}, strings.NewReader("")); errs != "" {
		t.Errorf("sftp: %q", errs)
	}
}

// A command line may have any length; arguments and variables that are too long
// for the kernel are refused by name.
func TestLongCommand(t *testing.T) {
	c := homeGuest(t)
	long := strings.Repeat("# it's a comment\n", 12000) // 200 KiB
	for _, after := range []string{`echo "$0 $#" it\'s; cat <<'E'` + "\nit's\nE\nexit 4", `f() { return 4; }; echo "$0 $#" it\'s; echo "it's"; f`} {
		r := runToEnd(t, c, holt.RunSpec{Command: holt.OSString(long + after), Env: given})
		if r.stdout != "/bin/bash 0 it's\nit's\n" || r.stderr != "" || r.ExitCode != 4 {
			t.Errorf("a long command: %q, %q, %d", r.stdout, r.stderr, r.ExitCode)
		}
	}
	sh(t, c, `mkdir /tmp/few; cp /bin/dash /tmp/few/sh; cp /bin/ls /tmp/few; mount --bind /tmp/few "$(realpath /bin)"`)
	if r := runToEnd(t, c, holt.RunSpec{Command: holt.OSString(long + "ls /proc/self/fd")}); r.stdout != "0\n1\n2\n3\n" || r.stderr != "" {
		t.Errorf("a long command where there is no bash: %q, %q", r.stdout, r.stderr)
	}
	word := holt.OSString(strings.Repeat("x", longestWord()))
	if r := runToEnd(t, c, holt.RunSpec{Argv: holt.OSStrings{"sh", "-c", "echo ${#1} ${#A}", "sh", string(word)}, Env: map[holt.OSString]holt.OSString{"A": word[2:]}}); r.stdout != "131071 131069\n" {
		t.Errorf("the longest words: %q, %q", r.stdout, r.stderr)
	}
	for want, spec := range map[string]holt.RunSpec{
		"argument 1 has 131072 bytes: the kernel's maximum is 131071":                   {Argv: holt.OSStrings{"true", string(word + "x")}},
		"variable TOKEN has 131077 bytes with its name: the kernel's maximum is 131071": {Command: "true", Secrets: holt.Secrets{"TOKEN": word}},
	} {
		_, err := c.StartRun(t.Context(), holt.NewRunID(), spec)
		wantCode(t, want, err, holt.InvalidArgument)
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
