package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holt"
)

// settingsFile is the daemon's configuration in its data directory; --config names another.
const settingsFile = "serve.conf"

// settings are the daemon's flags. Each is also a setting of its configuration file, a line NAME = VALUE.
type settings struct {
	ServeOptions
	flags *pflag.FlagSet
	path  string // --config
}

// setting is a flag that checks its value when it is set.
type setting struct {
	text string // for help
	kind string
	set  func(text string) error
}

func (s *setting) String() string { return s.text }
func (s *setting) Type() string   { return s.kind }

func (s *setting) Set(text string) error {
	s.text = text
	return s.set(text)
}

// settings adds the daemon's flags to a command.
func (a *app) settings(cmd *cobra.Command) *settings {
	s := &settings{flags: pflag.NewFlagSet("", pflag.ContinueOnError)}
	f := s.flags
	f.Var(s.oneOf(&s.Engine, a.engineSetting(), "auto", "qemu", "gvisor", "local"), "engine", "what runs computers that name no engine: qemu, gvisor, auto (qemu with KVM, else gvisor if it works here, else qemu in software emulation) or local (no isolation; for tests)")
	f.StringVar(&s.Listen, "listen", "", "serve the API on this TCP address too, such as localhost:4646 (127.0.0.1 and ::1); every caller needs a token")
	f.StringVar(&s.SSHListen, "ssh-listen", "", "serve SSH on this TCP address, such as 0.0.0.0:2222, or off; every client needs a key or a token (default: localhost:2222 if that port is free)")
	f.StringVar(&s.S3Listen, "s3-listen", "", "serve S3 on this TCP address, such as 0.0.0.0:4649, or off; every client needs a key (default: localhost:4649 if that port is free)")
	f.Var(list(&s.S3Hosts, func(string) error { return nil }), "s3-host", "a host name of --s3-listen, such as s3.example.com, below which buckets are host names: BUCKET.s3.example.com")
	f.BoolVar(&s.Insecure, "insecure-listen", false, "allow --listen, --preview-listen and --s3-listen on addresses that other machines reach, without TLS; everything sent there, tokens included, is unencrypted")
	f.Var(number(&s.CallRate, 2000, 0, 1e9), "token-rate", "calls per second that one token may make over TCP, on average; bursts may be twice that, and a tenant has 10 times as many; 0: no limit")
	f.Var(number(&s.FailureRate, 60, 0, 1e9), "failure-rate", "calls per minute without a valid token that one address may make over TCP; 0: no limit")
	f.Var(list(&s.Hosts, func(string) error { return nil }), "host", "a host name under which TCP callers reach the daemon, such as holt.example.com; calls to other names are refused, except IP addresses and localhost")
	f.Var(number(&s.KeepLast, 200, 2, 1e9), "keep-checkpoints", "number of newest automatic checkpoints to keep in a workspace, and again as many of terminal sessions; older runs cannot be undone")
	f.Var(number(&s.KeepDays, 30, 0, 1e9), "keep-days", "for older ones, keep the newest of each day for this many days")
	f.Var(file(&s.Archive, a.getenv(holt.EnvArchive)), "archive", "directory for the archive's packs, for example on a larger disk (default: in the data directory)")
	f.Var(byteSize(&s.ArchiveCache, "10G", -1), "archive-cache", "with --archive: size of the local cache in front of it; 0 or none: every read goes to the directory")
	f.Var(byteSize(&s.SnapshotCache, "", 1), "snapshots-cache", "disk space for the memory of automatic snapshots (of forks and pauses) and of archived ones (default: an eighth of the disk)")
	s.Previews.flags(f)
	f.Var(number(&s.Overcommit, 1, 1, 100), "memory-overcommit", "computers may reserve this many times the machine's free memory; above 1 more computers run, and the kernel kills some if memory runs out")
	f.Var(&setting{kind: "string", set: s.metricsAt}, "metrics-listen", "serve Prometheus metrics without a token at http://ADDRESS/metrics; a loopback address, such as localhost:4648")
	f.Var(s.oneOf(&s.LogFormat, "auto", "auto", "text", "json"), "log-format", "format of the log: text, json, or auto (text on a terminal, else json)")
	f.Var(&setting{text: "info", kind: "string", set: s.level}, "log-level", "lowest level that is logged: debug (includes calls that only read), info, warn or error")
	f.DurationVar(&s.Renew, "renew-after", time.Minute, "time from the daemon's start until it boots, in the background and one at a time, templates without a usable boot snapshot (new, or for another version of holt or of the engine); 0: never")
	cmd.Flags().AddFlagSet(f)
	cmd.Flags().Var(file(&s.path, ""), "config", "the daemon's configuration file: lines NAME = VALUE, where NAME is a flag without dashes; a flag overrides its line (default: "+settingsFile+" in the data directory, if it exists)")
	return s
}

// oneOf is a setting with a few values.
func (s *settings) oneOf(to *string, start string, values ...string) *setting {
	*to = start
	return &setting{text: start, kind: "string", set: func(text string) error {
		if !slices.Contains(values, text) {
			last := len(values) - 1
			return holt.Errorf(holt.InvalidArgument, "invalid value %q", text).WithHint("use %s or %s", strings.Join(values[:last], ", "), values[last])
		}
		*to = text
		return nil
	}}
}

// number is a setting between two bounds.
func number[T int | float64](to *T, start, least, most T) *setting {
	kind := strings.TrimSuffix(fmt.Sprintf("%T", start), "64")
	*to = start
	return &setting{text: fmt.Sprint(start), kind: kind, set: func(text string) error {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || T(v) < least || T(v) > most || float64(T(v)) != v {
			return holt.Errorf(holt.InvalidArgument, "invalid value %q", text).WithHint("use a number from %v to %v", least, most)
		}
		*to = T(v)
		return nil
	}}
}

// byteSize is a number of bytes. In ServeOptions 0 is the default; none stands for a size of 0.
func byteSize(to *int64, start string, none int64) *setting {
	s := &setting{kind: "string"}
	s.set = func(text string) (err error) {
		if *to, err = parseSize(text); *to == 0 {
			*to = none
		}
		return err
	}
	if start != "" {
		_ = s.Set(start) // a constant
	}
	return s
}

// list is a setting that may be given several times, or with commas.
func list(to *[]string, check func(string) error) *setting {
	s := &setting{kind: "strings"}
	s.set = func(text string) error {
		for one := range strings.SplitSeq(text, ",") {
			if err := check(one); err != nil {
				return err
			}
			*to = append(*to, one)
		}
		s.text = strings.Join(*to, ",")
		return nil
	}
	return s
}

// file is a path, which becomes absolute: the daemon has another working directory.
func file(to *string, start string) *setting {
	*to = start
	s := &setting{text: start, kind: "file"}
	s.set = func(text string) (err error) {
		if text == "" {
			*to = ""
			return nil
		}
		*to, err = filepath.Abs(text)
		s.text = *to
		return here(err, text)
	}
	return s
}

func (s *settings) metricsAt(text string) error {
	host, _, err := net.SplitHostPort(text)
	if ip := net.ParseIP(host); text != "" && (err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback())) {
		return holt.Errorf(holt.InvalidArgument, "%q is not a loopback address", text).
			WithHint("metrics there need no token, so use a loopback address, such as localhost:4648; other machines use /metrics at --listen, with a token")
	}
	s.MetricsListen = text
	return nil
}

func (s *settings) level(text string) error {
	if slices.Contains([]string{"debug", "info", "warn", "error"}, strings.ToLower(text)) {
		return s.LogLevel.UnmarshalText([]byte(text))
	}
	return holt.Errorf(holt.InvalidArgument, "invalid value %q", text).WithHint("use debug, info, warn or error")
}

// options are the settings of a daemon: its flags, and what its configuration file says where no flag is given.
func (s *settings) options(at Place) (ServeOptions, error) {
	s.Place = at
	path := cmp.Or(s.path, filepath.Join(at.DataDir, settingsFile))
	text, err := os.ReadFile(path)
	if err == nil {
		err = s.read(path, string(text))
	} else if s.path == "" && errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else {
		err = hinted(here(err, path), "--config names the daemon's configuration file")
	}
	if err == nil {
		err = s.check()
	}
	return s.ServeOptions, err
}

// read takes the lines of a configuration file whose flags are not given.
func (s *settings) read(path, text string) error {
	lines := map[string]int{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, isSetting := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		flag := s.flags.Lookup(name)
		switch {
		case !isSetting:
			return holt.Errorf(holt.InvalidArgument, "%s:%d: %q is not a setting", path, n, holt.Clip(line, 80)).WithHint("write NAME = VALUE, such as listen = localhost:4646")
		case flag == nil:
			return holt.Errorf(holt.InvalidArgument, "%s:%d: unknown setting %q", path, n, holt.Clip(name, 80)).WithHint("a setting has the name of a flag, without the dashes: holt serve --help")
		case lines[name] != 0 && flag.Value.Type() != "strings":
			return holt.Errorf(holt.InvalidArgument, "%s:%d: %s is already set on line %d", path, n, name, lines[name]).WithHint("remove one of the two lines")
		}
		lines[name] = n
		if flag.Changed {
			continue
		}
		if flag.Value.Type() == "file" && value != "" && !filepath.IsAbs(value) {
			value = filepath.Join(filepath.Dir(path), value)
		}
		if err := flag.Value.Set(value); err != nil {
			e := invalidValue(flag, value, err)
			return holt.Errorf(e.Code, "%s:%d: %s: %s", path, n, name, e.Message).WithHint("%s", e.Hint)
		}
	}
	return nil
}

// check refuses settings that contradict each other.
func (s *settings) check() error {
	if err := s.Previews.check(s.Listen); err != nil {
		return err
	}
	open := s.Insecure || s.Previews.encrypted()
	if err := checkListen("--listen", s.Listen, open); err != nil {
		return err
	}
	if err := checkListen("--s3-listen", s.S3Listen, open || s.S3Listen == "off"); err != nil {
		return err
	}
	return checkListen("--preview-listen", s.Previews.Listen, open || s.Previews.Listen == "off")
}

// args are the flags that were given, for a daemon that is to read the same file.
func (s *settings) args() (args []string) {
	if s.path != "" {
		args = append(args, "--config="+s.path)
	}
	s.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	return args
}
