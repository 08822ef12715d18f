package cli

import (
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"holt"
)

// watchFlags are the flags of a daemon by which it is watched: its log and its metrics.
type watchFlags struct {
	metrics, format, level string
}

func (f *watchFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.metrics, "metrics-listen", "", "show metrics for Prometheus, without a token, at http://ADDRESS/metrics; a loopback address, as localhost:4648")
	cmd.Flags().StringVar(&f.format, "log-format", "auto", "of the log: text, json, or auto: text on a terminal")
	cmd.Flags().StringVar(&f.level, "log-level", "info", "least that is logged: debug (every call that only reads, too), info, warn or error")
}

// options checks them.
func (f *watchFlags) options(opt *ServeOptions) error {
	switch f.format {
	case "", "auto", "text", "json":
	default:
		return holt.Errorf(holt.InvalidArgument, "--log-format cannot be %q", f.format).WithHint("give text, json or auto")
	}
	if err := opt.LogLevel.UnmarshalText([]byte(f.level)); err != nil && f.level != "" {
		return holt.Errorf(holt.InvalidArgument, "--log-level cannot be %q", f.level).WithHint("give debug, info, warn or error")
	}
	if f.metrics != "" {
		host, _, err := net.SplitHostPort(f.metrics)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return holt.Errorf(holt.InvalidArgument, "--metrics-listen cannot be %q", f.metrics).
				WithHint("metrics there need no token, so give a loopback address, such as localhost:4648; other machines use /metrics at --listen, with a token")
		}
	}
	opt.MetricsListen, opt.LogFormat = f.metrics, f.format
	return nil
}

// watchArgs are the same for holt serve, as far as they are not the defaults.
func watchArgs(opt ServeOptions) (args []string) {
	if opt.MetricsListen != "" {
		args = append(args, "--metrics-listen", opt.MetricsListen)
	}
	if opt.LogFormat != "" && opt.LogFormat != "auto" {
		args = append(args, "--log-format", opt.LogFormat)
	}
	if opt.LogLevel != slog.LevelInfo {
		args = append(args, "--log-level", opt.LogLevel.String())
	}
	return args
}
