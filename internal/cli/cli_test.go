package cli_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"holt"
	"holt/client"
	"holt/internal/cli"
	"holt/internal/daemon"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/engine/machine/machinetest"
	"holt/internal/nouns"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"holt": func() {
		os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, local()))
	}})
}

// local is a machine on which everything works at once, and whose daemon is on the local engine.
func local() cli.Local {
	return cli.Local{
		Version: "1.2.3",
		Serve:   serve,
		Doctor: func(_ context.Context, at cli.Place, engine, listen string) ([]holt.Finding, error) {
			findings := []holt.Finding{{Name: "processor", Verdict: holt.VerdictOK, Found: "2 cores"}}
			if listen != "" {
				findings = append(findings, holt.Finding{Name: "port", Verdict: holt.VerdictOK, Found: "free: " + listen + ", for engine " + engine})
			}
			if _, err := os.Stat(filepath.Join(os.Getenv("HOME"), "qemu")); err != nil {
				findings = append(findings, holt.Finding{Name: "qemu", Verdict: holt.VerdictBad, Found: "not installed", Do: "install it", Install: []string{"qemu-system-x86"}})
			}
			return findings, nil
		},
		Install: func(_ context.Context, packages []string, progress func(cli.Progress)) error {
			progress(cli.Progress{Stage: "unpacking " + packages[0], Fraction: 0.5})
			return os.WriteFile(filepath.Join(os.Getenv("HOME"), "qemu"), nil, 0o600)
		},
		CheckShape: func(s holt.Shape) error {
			if s.MemoryMB == 16 {
				return holt.Errorf(holt.InvalidArgument, "a computer cannot have 16 MiB of memory")
			}
			return nil
		},
		BuildImage: func(_ context.Context, at cli.Place, template string, progress func(cli.Progress)) (holt.Image, error) {
			if template != "base" {
				return holt.Image{}, holt.Errorf(holt.NotFound, "there is no template %q", template).WithHint("templates are base")
			}
			progress(cli.Progress{Stage: "packages", Fraction: 0.2})
			progress(cli.Progress{Stage: "disk", Fraction: 0.9})
			image := holt.Image{Template: template, Built: true, Digest: strings.Repeat("0123456789abcdef", 4), MinDiskMB: 2048, Bytes: 1 << 30}
			if _, err := os.Stat(filepath.Join(os.Getenv("HOME"), "booted")); err != nil {
				image.Unbooted = &holt.Shape{CPUs: 2}
			}
			return image, nil
		},
		BootLater: func(_ context.Context, _ cli.Place, image holt.Image, shape holt.Shape) error {
			_, err := fmt.Fprintf(os.Stderr, "%s later: %d processors\n", image.Template, shape.CPUs)
			return err
		},
		ListImages: func(context.Context, cli.Place) ([]holt.Image, error) {
			at := time.Now().Add(-3 * time.Hour)
			return []holt.Image{{Template: "base", Built: true, Digest: strings.Repeat("0123456789abcdef", 4), MinDiskMB: 2048, Bytes: 1 << 30, BuiltAt: &at, Ready: []holt.Shape{{CPUs: 1, MemoryMB: 1024}, {CPUs: 2, MemoryMB: 2048}}}, {Template: "base", Digest: "fedcba9876543210", MinDiskMB: 2048, Bytes: 2 << 30, BuiltAt: &at, Computers: 2}, {Template: "coding-agent"}}, nil
		},
		DeleteImage: func(_ context.Context, _ cli.Place, ref string) (holt.Image, error) {
			if ref != "base" {
				return holt.Image{}, holt.Errorf(holt.Conflict, "the image %s is in use", ref).WithHint("delete those computers first")
			}
			return holt.Image{Template: ref, Digest: "0123456789abcdef", Bytes: 1 << 30}, nil
		},
		PruneImages: func(context.Context, cli.Place) ([]holt.Image, error) {
			return []holt.Image{{Template: "base", Digest: "fedcba9876543210", Bytes: 2 << 30}}, nil
		},
	}
}

// envGuest names the guest agent of the daemons of this program.
const envGuest = "HOLT_TEST_GUEST"

// serve is a daemon on the local engine.
func serve(ctx context.Context, opt cli.ServeOptions) error {
	if opt.Engine == "qemu" {
		return holt.Errorf(holt.Unsupported, "there is no QEMU here").WithHint("use --engine local")
	}
	for _, file := range []string{opt.Previews.Cert, opt.Previews.Key, opt.Previews.ACMERoot} {
		if _, err := os.Stat(file); file != "" && err != nil {
			return err
		}
	}
	guest, err := os.ReadFile(os.Getenv(envGuest))
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	d, err := daemon.Open(ctx, daemon.Config{DataDir: opt.DataDir, Engine: daemon.EngineLocal, GuestBinary: guest, Version: "1.2.3", Log: log})
	if err != nil {
		return err
	}
	s := httpapi.New(httpapi.Options{Nouns: withImages(d.Nouns()), Authorize: servertest.Everything{}, Version: "1.2.3", Log: log})
	socket := filepath.Join(opt.DataDir, "holt.sock")
	l, err := httpapi.ListenLocal(socket)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	served := make(chan error, 1)
	go func() { served <- s.ServeLocal(l) }()
	fmt.Fprintln(os.Stderr, "listening", socket, "images", opt.ImageDir)
	select {
	case <-ctx.Done():
	case <-d.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(s.Shutdown(end), <-served, d.Close())
}

// builtImages are images that take minutes to build, and that the local engine does not need.
type builtImages struct{ nouns.Images }

func withImages(set nouns.Set) nouns.Set {
	set.Images = builtImages{set.Images}
	return set
}

func (n builtImages) List(context.Context) ([]holt.Image, error) {
	at := time.Now().Add(-3 * time.Hour)
	return []holt.Image{
		{Template: "coding-agent"},
		{Template: "base", Built: true, Digest: strings.Repeat("fedcba9876543210", 4), MinDiskMB: 2048, Bytes: 400 << 20, BuiltAt: &at}, // an older one
		{Template: "base", Built: true, Digest: strings.Repeat("0123456789abcdef", 4), MinDiskMB: 2048, Bytes: 400 << 20, BuiltAt: &at, Ready: []holt.Shape{{CPUs: 1, MemoryMB: 1024}, {CPUs: 2, MemoryMB: 3072}}},
	}, nil
}

func (n builtImages) Boot(ctx context.Context, _ string, shape holt.Shape, _ string) (holt.Image, error) {
	all, err := n.List(ctx)
	image := all[2]
	image.Ready = []holt.Shape{{CPUs: cmp.Or(shape.CPUs, 1), MemoryMB: cmp.Or(shape.MemoryMB, 1024)}}
	return image, err
}

// TestScripts runs the real command against a real daemon, over a real socket. Computers are on the local engine, or
// sandboxes if the script has a file "sandboxed".
func TestScripts(t *testing.T) {
	guest := machinetest.Agent(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *cli.Rewrite,
		Setup: func(env *testscript.Env) error {
			t, open := env.T().(testing.TB), servertest.New
			if _, err := os.Stat(filepath.Join(env.WorkDir, "sandboxed")); err == nil {
				open = servertest.NewSandboxed
			}
			d := servertest.Serve(t, servertest.Options(quietT{t}, withImages(open(t).Nouns())), "")
			env.Defer(func() { endDaemons(t, env.WorkDir) })
			env.Setenv("HOLT_SOCKET", d.Socket)
			env.Setenv("ADDR", d.Addr)
			env.Setenv("SECRET", servertest.Secret)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("HOLT_DATA_DIR", filepath.Join(env.WorkDir, "data"))
			env.Setenv(envGuest, guest)
			return nil
		},
	})
}

// endDaemons ends what a failed script may have left.
func endDaemons(t testing.TB, dir string) {
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "holt.sock" {
			return err
		}
		c, err := client.New(client.Options{Socket: path})
		if err == nil {
			_, err = c.Daemon.Down(context.Background(), holt.DownSpec{}, "")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// quietT keeps servers' logs out of the scripts'.
type quietT struct{ testing.TB }

func (quietT) Log(...any) {}
