package cli_test

import (
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
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"holt": func() {
		os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, local()))
	}})
}

// local is a machine on which everything works at once, and whose daemon has
// its computers in memory.
func local() cli.Local {
	return cli.Local{
		Version: "1.2.3",
		Serve:   serveMemory,
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

// serveMemory is a daemon.
func serveMemory(ctx context.Context, opt cli.ServeOptions) error {
	if opt.Engine == "qemu" {
		return holt.Errorf(holt.Unsupported, "there is no QEMU here").WithHint("use --engine local")
	}
	socket := filepath.Join(opt.DataDir, "holt.sock")
	if _, err := os.Stat(socket); err == nil {
		return holt.Errorf(holt.Conflict, "a daemon serves %s already", opt.DataDir).WithHint("holt down ends it")
	}
	for _, file := range []string{opt.Previews.Cert, opt.Previews.Key, opt.Previews.ACMERoot} {
		if _, err := os.Stat(file); file != "" && err != nil {
			return err
		}
	}
	m := servertest.New(filepath.Join(opt.DataDir, "computers"))
	defer m.Close()
	m.Version = "1.2.3"
	s := httpapi.New(httpapi.Options{Nouns: m.Nouns(), Authorize: servertest.Everything{}, Version: "1.2.3", Log: slog.New(slog.DiscardHandler)})
	l, err := httpapi.ListenLocal(socket)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.ServeLocal(l) }()
	fmt.Fprintln(os.Stderr, "listening", socket, "images", opt.ImageDir)
	select {
	case <-ctx.Done():
	case <-m.Ended():
	}
	end, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(s.Shutdown(end), <-served)
}

// TestScripts runs the real command against a daemon whose computers are in
// memory, over a real socket.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *cli.Rewrite,
		Setup: func(env *testscript.Env) error {
			d := servertest.Serve(t, servertest.Options(quietT{t}, memory(t).Nouns()), "")
			env.Defer(func() { endDaemons(t, env.WorkDir) })
			env.Setenv("HOLT_SOCKET", d.Socket)
			env.Setenv("ADDR", d.Addr)
			env.Setenv("SECRET", servertest.Secret)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("HOLT_DATA_DIR", filepath.Join(env.WorkDir, "data"))
			return nil
		},
	})
}

// endDaemons ends what a failed script may have left.
func endDaemons(t *testing.T, dir string) {
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

func memory(t testing.TB) *servertest.Memory {
	m := servertest.New(t.TempDir())
	t.Cleanup(m.Close)
	return m
}
