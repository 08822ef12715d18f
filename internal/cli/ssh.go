package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"holt"
)

// sshSuffix ends the host names by which computers are known to ssh.
const sshSuffix = ".holt"

func (a *app) computerSSH() *cobra.Command {
	var user string
	var forwardAgent bool
	var options []string
	cmd := &cobra.Command{
		Use: "ssh NAME [-- COMMAND...]", Short: "Start ssh to a computer",
		Long: `Starts this machine's ssh client, with a connection through holt: it needs no key, password or port.
A paused or stopped computer is woken.

As with any ssh, the remote program ends with the connection; for a shell that continues, use holt
terminal attach. The exit status is that of ssh: the command's, or 255 if the connection breaks. Pass
other options of ssh with -o, such as -o 'LocalForward 8080 localhost:3000'. For scp, sftp, rsync and
VS Code: holt ssh-config.`,
		Example: `  holt computer ssh einstein
  holt computer ssh einstein --user root -- systemctl status`,
		Args:              cobra.MinimumNArgs(1),
		Annotations:       map[string]string{ownSignals: "yes"},
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := holt.ParseName(args[0]); err != nil {
				if _, wrong := holt.ParseComputerID(args[0]); wrong != nil {
					return err
				}
			}
			argv := []string{"ssh"}
			settings, err := a.sshSettings(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, s := range settings {
				argv = append(argv, "-o", s.name+"="+s.value)
			}
			for _, o := range options {
				argv = append(argv, "-o", o)
			}
			if forwardAgent {
				argv = append(argv, "-A")
			}
			argv = append(argv, "-l", user, "--", args[0]+sshSuffix)
			return become(append(argv, args[1:]...))
		},
	}
	cmd.Flags().StringVarP(&user, "user", "u", "agent", "Linux user")
	cmd.Flags().BoolVarP(&forwardAgent, "forward-agent", "A", false, "forward this machine's SSH agent; root in the computer can use it while you are connected")
	cmd.Flags().StringArrayVarP(&options, "option", "o", nil, "an option of ssh, as in ssh_config (repeatable)")
	return cmd
}

// become replaces this program by another one.
func become(argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return holt.Errorf(holt.Unavailable, "%s is not installed", argv[0]).WithHint("install it: apt install openssh-client")
	}
	return holt.Errorf(holt.Unavailable, "cannot start %s: %w", path, syscall.Exec(path, argv, os.Environ())).WithHint("check that it runs by itself")
}

// sshSetting is a line of ssh_config.
type sshSetting struct{ name, value string }

// sshSettings are the options by which ssh reaches computers; which one, is a name or %h. It sees to it that the host's key is known.
func (a *app) sshSettings(ctx context.Context, computer string) ([]sshSetting, error) {
	c, err := a.connect()
	if err != nil {
		return nil, err
	}
	h, err := c.SSH.Get(ctx)
	if err != nil {
		return nil, err
	}
	known, err := rememberHost(h)
	if err != nil {
		return nil, err
	}
	proxy, err := a.proxyCommand(computer)
	if err != nil {
		return nil, err
	}
	return []sshSetting{
		{"ProxyCommand", proxy}, {"HostKeyAlias", hostAlias(h)}, {"UserKnownHostsFile", sshQuote(known)}, {"GlobalKnownHostsFile", "none"},
		{"StrictHostKeyChecking", "yes"}, {"UpdateHostKeys", "no"}, {"PreferredAuthentications", "none"},
	}, nil
}

// hostAlias is the name by which a host's key is known: it is the key's own, so that several hosts do not meet.
func hostAlias(h holt.SSHHost) string {
	name := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.TrimPrefix(h.Fingerprint, "SHA256:"))
	return "holt-" + strings.ToLower(name[:min(len(name), 16)])
}

// knownHost is the line of known_hosts for who comes by the port.
func knownHost(h holt.SSHHost) string {
	name := hostAlias(h)
	if host, port, err := net.SplitHostPort(h.Address); err == nil {
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			host = "localhost"
		}
		name = "[" + host + "]:" + port
	}
	return name + " " + h.Key
}

// rememberHost puts a host's key into the file of known ones that holt keeps, unless it is there, and returns its path.
func rememberHost(h holt.SSHHost) (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", holt.Errorf(holt.InvalidArgument, "no directory for the host's key: %w", err).WithHint("set HOME")
	}
	path := filepath.Join(dir, "holt", "known_hosts")
	line := hostAlias(h) + " " + h.Key
	if strings.ContainsAny(line, "\n\r") {
		return "", holt.Errorf(holt.Corrupt, "the daemon's host key is invalid").WithHint("see it with: holt ssh-key host")
	}
	if b, err := os.ReadFile(path); err == nil && strings.Contains("\n"+string(b), "\n"+line+"\n") {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", notKept(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line + "\n")
		err = cmp.Or(err, f.Close())
	}
	if err != nil {
		return "", notKept(err)
	}
	return path, nil
}

func notKept(err error) error {
	return holt.Errorf(holt.Forbidden, "store the host's key: %w", err).WithHint("the key is stored below $XDG_CONFIG_HOME, or .config in $HOME")
}

// proxyCommand is the command by which ssh reaches a computer: this program, and the daemon it would speak to.
func (a *app) proxyCommand(computer string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", holt.Errorf(holt.Internal, "find this program: %w", err).WithHint("start holt with its full path")
	}
	t, err := a.target()
	if err != nil {
		return "", err
	}
	var words []string
	switch at, err := a.place(); {
	case t.name != "" && t.name != localContext:
		words = []string{self, "--context", t.name}
	case err == nil && t.socket == filepath.Join(at.DataDir, "holt.sock"):
		words = []string{self, "--data-dir", at.DataDir}
	default: // wherever ssh is called
		is := t.Server
		if !t.remote() {
			if is, err = filepath.Abs(t.socket); err != nil {
				return "", here(err, t.socket)
			}
			is = "unix:" + is
		}
		words = []string{"env", holt.EnvContext + "=", holt.EnvServer + "=" + is, self}
	}
	if tenant := cmp.Or(a.tenant, a.getenv(holt.EnvTenant)); tenant != "" { // which ssh does not hand on, nor a file that this is written to
		words = append(words, "--tenant", tenant)
	}
	for i, w := range words {
		words[i] = strings.ReplaceAll(shellQuote(w), "%", "%%")
	}
	return strings.Join(append(words, "computer", "ssh-proxy", computer), " "), nil
}

// shellQuote makes a word of a shell's command line.
func shellQuote(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("/._-=:+,@%", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// sshQuote makes a word of ssh_config of a path.
func sshQuote(s string) string {
	s = strings.ReplaceAll(s, "%", "%%")
	if strings.ContainsAny(s, " \t") {
		return `"` + s + `"`
	}
	return s
}

func (a *app) sshConfig() *cobra.Command {
	return &cobra.Command{
		Use: "ssh-config", Short: "Print an ssh configuration that reaches computers as NAME" + sshSuffix, Args: exactly(0),
		Long: `Prints a block for ~/.ssh/config. With it, ssh, scp, sftp, rsync, git and VS Code Remote reach computers as
NAME` + sshSuffix + `, without a key: ssh einstein` + sshSuffix + `, or as another Linux user ssh root@einstein` + sshSuffix + `. The connection uses this command and the
daemon that is selected now: its socket, a context (holt context), or the server in $` + holt.EnvServer + `. For the last, set $` + holt.EnvToken + ` whenever you use ssh; it is not stored.`,
		Example: `  holt ssh-config >> ~/.ssh/config
  scp report.pdf einstein` + sshSuffix + `:`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := a.sshSettings(cmd.Context(), "%h")
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "Host *%s\n  User agent\n", sshSuffix)
			for _, s := range settings {
				fmt.Fprintf(a.Out, "  %s %s\n", s.name, s.value)
			}
			return nil
		},
	}
}

func (a *app) computerSSHProxy() *cobra.Command {
	return &cobra.Command{
		Use: "ssh-proxy NAME", Short: "Connect to a computer through the SSH gateway, for ssh's ProxyCommand", Args: exactly(1),
		ValidArgsFunction: a.complete(a.computerNames),
		Long:              `For ssh's ProxyCommand; see holt ssh-config. NAME may end with ` + sshSuffix + `.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			far, err := c.SSH.Connect(ctx, strings.TrimSuffix(args[0], sshSuffix))
			if err != nil {
				return err
			}
			return joinStreams(ctx, a.In, a.Out, far)
		},
	}
}
