package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) doctorCommand() *cobra.Command {
	var install, yes bool
	var listen string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check this machine's requirements", Args: exactly(0),
		Long: `Checks everything that holt needs on this machine, and says how to fix what is missing.
The exit status is 0 unless a finding is bad.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := a.daemonSettings()
			if err != nil {
				return err
			}
			set.Listen = cmp.Or(listen, set.Listen)
			findings, err := a.examine(cmd.Context(), set)
			if err != nil {
				return err
			}
			if install && !a.remote() {
				if findings, err = a.mend(cmd.Context(), findings, set, yes); err != nil {
					return err
				}
			}
			if a.wantsJSON() {
				err = printJSON(a.Out, findings)
			} else {
				err = a.printFindings(a.Out, findings)
			}
			if err == nil && worst(findings) == holt.VerdictBad {
				return exitStatus(exitFailure)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&install, "install", false, "install missing Debian packages")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "install without asking")
	cmd.Flags().StringVar(&listen, "listen", "", "check that the daemon can listen on this TCP address (default: the one in serve.conf)")
	a.jsonFlag(cmd)
	return cmd
}

// engineSetting is the default engine of a daemon without flags and configuration file.
func (a *app) engineSetting() string { return cmp.Or(a.getenv(holt.EnvEngine), "auto") }

// daemonSettings are those of a daemon on this machine that is started without flags. A file that
// this user may not read counts as none.
func (a *app) daemonSettings() (ServeOptions, error) {
	at, err := a.place()
	if err != nil || a.remote() {
		return ServeOptions{Place: at}, err
	}
	set, err := a.settings(&cobra.Command{}).options(at)
	if holt.CodeOf(err) == holt.Forbidden {
		err = nil
	}
	return set, err
}

// examine asks the doctor of the machine of a daemon with these settings.
func (a *app) examine(ctx context.Context, set ServeOptions) (findings []holt.Finding, err error) {
	err = a.wait("examining", func() error {
		if a.remote() {
			c, err := a.connect()
			if err != nil {
				return err
			}
			findings, err = c.Daemon.Doctor(ctx)
			return err
		}
		findings, err = a.local.Doctor(ctx, set.Place, set.Engine, set.Listen)
		return err
	})
	return findings, err
}

// mend installs the packages that findings ask for, and looks again.
func (a *app) mend(ctx context.Context, findings []holt.Finding, set ServeOptions, yes bool) ([]holt.Finding, error) {
	var missing []string
	for _, f := range findings {
		if f.Verdict != holt.VerdictOK {
			missing = append(missing, f.Install...)
		}
	}
	slices.Sort(missing)
	missing = slices.Compact(missing)
	if len(missing) == 0 {
		return findings, nil
	}
	names := strings.Join(missing, " ")
	if !yes && (!isTerminal(a.In) || !isTerminal(a.Err)) {
		return nil, holt.Errorf(holt.Unsupported, "missing packages: %s", names).
			WithHint("add --yes to install them, or run: apt-get install %s", names)
	}
	if err := a.confirm(yes, "Install "+names+"?"); err != nil {
		return nil, err
	}
	b := a.begin("installing")
	err := a.local.Install(ctx, missing, b.show)
	b.end()
	if err != nil {
		return nil, err
	}
	return a.examine(ctx, set)
}

func worst(findings []holt.Finding) holt.Verdict {
	verdict := holt.VerdictOK
	for _, f := range findings {
		if f.Verdict == holt.VerdictBad || f.Verdict == holt.VerdictWarn && verdict == holt.VerdictOK {
			verdict = f.Verdict
		}
	}
	return verdict
}

func (a *app) printFindings(w io.Writer, findings []holt.Finding) error {
	var table bytes.Buffer
	rows := make([][]string, len(findings))
	for i, f := range findings {
		found := f.Found
		if f.Do != "" {
			found += " → " + f.Do
		}
		rows[i] = []string{string(f.Verdict), f.Name, found}
	}
	if err := printTable(&table, nil, rows); err != nil {
		return err
	}
	colours := map[holt.Verdict]string{holt.VerdictOK: green, holt.VerdictWarn: yellow, holt.VerdictBad: red}
	for i, line := range strings.SplitAfter(table.String(), "\n") {
		if i < len(findings) {
			verdict := string(findings[i].Verdict)
			line = a.paint(w, colours[findings[i].Verdict], verdict) + strings.TrimPrefix(line, verdict)
		}
		if _, err := fmt.Fprint(w, line); err != nil {
			return err
		}
	}
	return nil
}
