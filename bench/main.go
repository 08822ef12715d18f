package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"

	"holt"
	"holt/internal/store/flock"
)

// groups are the parts of the document in its order.
var groups = []group{
	{"host", hostGroup},
	{"budget", single(budgetGroup)},
	{"engine", single(engineGroup)},
	{"api", apiGroup},
	{"machine", machineGroup},
	{buyers, single(buyersGroup)},
}

// buyers is the group that is measured only when it is asked for, and needs no load generator: see scripts/kvm-bench.
const buyers = "buyers"

// single is for a group of one section.
func single(run func(context.Context, *bench) (*section, error)) func(context.Context, *bench) ([]*section, error) {
	return func(ctx context.Context, b *bench) ([]*section, error) {
		s, err := run(ctx, b)
		return []*section{s}, err
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == childArg {
		exit(killedChild(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, os.Args[1:]))
}

func exit(err error) {
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run measures what the arguments ask for and writes the document.
func run(ctx context.Context, args []string) (err error) {
	b := &bench{said: os.Stderr}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	out := flags.String("out", "", "document whose tables are replaced; default: tables to standard output")
	small := flags.Bool("quick", false, "small counts, one round: to see that it works")
	profile := flags.String("cpuprofile", "", "file for a CPU profile of this process, which serves the mounts")
	verbose := flags.Bool("v", false, "show what the parts log")
	flags.StringVar(&b.only, "only", "", "a group ("+groupNames()+"), or GROUP/PART of a work's name")
	flags.StringVar(&b.holt, "holt", "bin/holt", "the program under test")
	flags.StringVar(&b.template, "template", "base", "of the machines that are measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b.sizes = normal
	if *small {
		b.sizes = quick
	}
	b.log = slog.New(slog.DiscardHandler)
	if *verbose {
		b.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if *profile != "" {
		stop, err := startProfile(*profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	write := func(_ string, text []byte) error { _, err := os.Stdout.Write(text); return err }
	if *out != "" {
		if _, err := os.Stat(*out); err != nil { // before it measures for an hour
			return err
		}
		write = func(group string, text []byte) error { return rewrite(*out, group, text) }
	}
	return b.measure(ctx, args, write)
}

// rewrite replaces the tables of a group in a document.
func rewrite(path, group string, text []byte) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if document, err = replace(document, group, text); err != nil {
		return err
	}
	return os.WriteFile(path, document, 0o644)
}

func groupNames() string {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	return strings.Join(names, ", ")
}

func startProfile(name string) (stop func(), err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}

// measure runs the groups, and writes each as soon as it is measured.
func (b *bench) measure(ctx context.Context, args []string, write func(group string, text []byte) error) (err error) {
	if err := b.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	none := true
	for _, g := range groups {
		if g.name == buyers && b.only != buyers || !b.wants(g.name, "") && !strings.HasPrefix(b.only, g.name+"/") {
			continue
		}
		none = false
		b.say("## %s", g.name)
		sections, err := g.run(ctx, b)
		if err != nil {
			return fmt.Errorf("measure %s: %w", g.name, err)
		}
		var text bytes.Buffer
		writeGroup(&text, args, shape(ctx, b.dir, b.accelerator), sections)
		if err := write(g.name, text.Bytes()); err != nil {
			return err
		}
	}
	if none {
		return fmt.Errorf("there is no group %q; there are %s", b.only, groupNames())
	}
	return nil
}

// open makes the bench's directory in the checkout, so that it lies on the
// same disk, removes what killed benches left, and builds the load generator.
func (b *bench) open(ctx context.Context) error {
	root, err := filepath.Abs(".cache/bench")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	lock, err := flock.Open(filepath.Join(root, "lock"), 0o600)
	if err != nil {
		return fmt.Errorf("another bench runs in this checkout: %w", err)
	}
	b.own("the lock", lock.Close)
	b.dir = filepath.Join(root, "run")
	if err := sweep(b.dir); err != nil {
		return err
	}
	b.own("its directory", func() error { return sweep(b.dir) })
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if b.holt, err = filepath.Abs(b.holt); err != nil {
		return err
	}
	b.imageDir = os.Getenv(holt.EnvImageDir)
	if b.imageDir == "" {
		b.imageDir = filepath.Join(filepath.Dir(root), "images")
	}
	if b.only == buyers {
		return nil
	}
	b.load = filepath.Join(b.dir, "load")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.load, "holt/bench/load")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the load generator: %w\n%s", err, out)
	}
	return nil
}
