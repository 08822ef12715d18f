package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holt"
)

// manStatuses are the exit statuses as manual pages list them; see exitHelp.
var manStatuses = [][2]string{
	{"0", "Done."},
	{"1", "Failure."},
	{"2", "Usage, or an invalid argument."},
	{"3", "Not found."},
	{"4", "Already exists, or conflict."},
	{"5", "Unavailable, timeout, or too many."},
	{"6", "Out of space."},
	{"7", "Not authenticated, or not allowed."},
	{"8", "Not supported here."},
	{"125", "For computer run, run follow, job run and terminal attach: holt itself failed. Any other status is the command's."},
	{"130", "Interrupted."},
}

// manEnvironment is what the command takes from its environment.
var manEnvironment = [][2]string{
	{holt.EnvServer, "The server to call: unix:/PATH of a socket, HOST:PORT, or a URL. It takes precedence over the current context; --context, --data-dir and " + holt.EnvContext + " take precedence over it."},
	{holt.EnvToken, "The token for " + holt.EnvServer + "."},
	{holt.EnvCAFile, "PEM file with additional root certificates for an https server."},
	{holt.EnvContext, "The context to use, see holt-context(1)."},
	{holt.EnvTenant, "The tenant that an admin acts for, as --tenant."},
	{holt.EnvSocket, "The socket of the daemon on this machine."},
	{holt.EnvDataDir, "The daemon's data directory, with its socket."},
	{holt.EnvImageDir, "The directory of built images."},
	{holt.EnvEngine, "What runs computers that name no engine: auto, qemu, gvisor or local."},
	{holt.EnvArchive, "The directory of the daemon's archive."},
	{"XDG_CONFIG_HOME", "The contexts are in holt/contexts.json below it (default: ~/.config)."},
	{"NO_COLOR", "If it is set, output has no colours; neither has it if TERM is dumb or the output is not a terminal."},
}

// manCommand writes the manual pages, for packages.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the manual pages of all commands into a directory", Args: exactly(1), Hidden: true,
		Long: "Writes a page in section 1 for each command. Their date is $SOURCE_DATE_EPOCH.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return here(err, args[0])
			}
			for _, one := range visibleCommands(cmd.Root()) {
				path := filepath.Join(args[0], manName(one)+".1")
				if err := os.WriteFile(path, manPage(one, a.local.Version, manDate(a.getenv)), 0o644); err != nil {
					return here(err, path)
				}
			}
			return nil
		},
	}
}

// visibleCommands are a command and all below it that its help shows.
func visibleCommands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			all = append(all, visibleCommands(child)...)
		}
	}
	return all
}

func manDate(getenv func(string) string) string {
	epoch, err := strconv.ParseInt(getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return ""
	}
	return time.Unix(epoch, 0).UTC().Format("2006-01-02")
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the page of one command, in the macros of man(7).
func manPage(cmd *cobra.Command, version, date string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH \"%s\" 1 \"%s\" \"holt %s\" \"Holt\"\n", strings.ToUpper(roff(manName(cmd))), date, roff(version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n%s\n", roff(cmd.CommandPath()), roff(synopsis(cmd)))
	b.WriteString(".SH DESCRIPTION\n")
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	paragraphs(&b, long)
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, ".PP\nAlso: %s.\n", roff(strings.Join(cmd.Aliases, ", ")))
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() {
				fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(manName(child)), roff(child.Short))
			}
		}
	}
	manFlags(&b, "OPTIONS", cmd.NonInheritedFlags())
	manFlags(&b, "GLOBAL OPTIONS", cmd.InheritedFlags())
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roffLines(strings.Trim(cmd.Example, "\n")))
	}
	pairs(&b, "EXIT STATUS", manStatuses)
	pairs(&b, "ENVIRONMENT", manEnvironment)
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(manName(cmd.Parent())))
	}
	return b.Bytes()
}

// synopsis is what follows the command's own words.
func synopsis(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath()))
}

func pairs(b *bytes.Buffer, title string, list [][2]string) {
	fmt.Fprintf(b, ".SH \"%s\"\n", title)
	for _, one := range list {
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(one[0]), roff(one[1]))
	}
}

func manFlags(b *bytes.Buffer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH \"%s\"\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := "\\fB" + roff("--"+f.Name) + "\\fR"
		if f.Shorthand != "" {
			name = "\\fB" + roff("-"+f.Shorthand) + "\\fR, " + name
		}
		if kind != "" {
			name += " \\fI" + roff(kind) + "\\fR"
		}
		switch f.DefValue {
		case "", "false", "0", "[]", "0s", "null":
		default:
			usage += " (default: " + f.DefValue + ")"
		}
		fmt.Fprintf(b, ".TP\n%s\n%s\n", name, roff(usage))
	})
}

// paragraphs writes text: an empty line parts paragraphs, and what is indented stays as it is.
func paragraphs(b *bytes.Buffer, text string) {
	for i, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(p, " ") {
			fmt.Fprintf(b, ".nf\n%s\n.fi\n", roffLines(p))
			continue
		}
		for _, line := range strings.Split(p, "\n") {
			if strings.HasPrefix(line, " ") {
				b.WriteString(".br\n")
			}
			b.WriteString(roff(strings.TrimSpace(line)) + "\n")
		}
	}
}

// roffLines is roff of each line.
func roffLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = roff(lines[i])
	}
	return strings.Join(lines, "\n")
}

// roff makes text safe in a page: no line of it is a request, and no character is taken for another.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ", "~", `\(ti`, "^", `\(ha`, "'", `\(aq`, "`", `\(ga`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
