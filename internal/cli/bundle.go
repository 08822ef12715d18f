package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/client"
)

const (
	bundleLog  = 2 << 20          // most bytes of the log
	bundlePart = 64 << 20         // most bytes of any part
	bundleWait = 10 * time.Second // for each part
)

// secretRE finds tokens, ours and those that stand behind the usual words.
var secretRE = regexp.MustCompile(`holt_[a-z2-7]{8,}_[a-z2-7]{16,}|(?i:(bearer|basic|token|password|secret|api[-_]?key)("?\s*[:= ]\s*"?))[^\s"',}]{8,}`)

// blot takes tokens out of text.
func blot(text []byte) []byte {
	return secretRE.ReplaceAllFunc(text, func(found []byte) []byte {
		if m := secretRE.FindSubmatch(found); len(m[1]) > 0 {
			return append(append(append([]byte{}, m[1]...), m[2]...), "***"...)
		}
		return []byte("***")
	})
}

// part is one file of a bundle.
type part struct {
	name string
	get  func(ctx context.Context, w io.Writer) error
}

// bundle writes the archive, and says what could not be had.
func (a *app) bundle(ctx context.Context, c *client.Client, to io.Writer) (missing []string, err error) {
	zip := gzip.NewWriter(to)
	out := tar.NewWriter(zip)
	missing = []string{}
	add := func(name string, content []byte) error {
		err := out.WriteHeader(&tar.Header{Name: "holt-debug/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: time.Now().Truncate(time.Second), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = out.Write(content)
		}
		return err
	}
	for _, p := range a.parts(c) {
		var text bytes.Buffer
		bounded, cancel := context.WithTimeout(ctx, bundleWait)
		err := p.get(bounded, &bounder{&text, bundlePart})
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s: %s", p.name, holt.AsError(err).Message))
			continue
		}
		content := text.Bytes()
		if !strings.HasSuffix(p.name, ".pprof") { // which is compressed, and has no text but names of functions
			content = blot(content)
		}
		if err := add(p.name, content); err != nil {
			return nil, err
		}
	}
	if len(missing) > 0 {
		if err := add("missing.txt", blot([]byte(strings.Join(missing, "\n")+"\n"))); err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	return missing, zip.Close()
}

// bounder refuses what is more than it should be.
type bounder struct {
	w    io.Writer
	left int
}

func (b *bounder) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, holt.Errorf(holt.TooMany, "it is too large").WithHint("it is left out")
	}
	return b.w.Write(p)
}

// parts are what a bundle has.
func (a *app) parts(c *client.Client) []part {
	debug := func(path, query string) func(context.Context, io.Writer) error {
		return func(ctx context.Context, w io.Writer) error {
			values, err := url.ParseQuery(query)
			if err == nil {
				err = c.Daemon.Debug(ctx, path, values, w)
			}
			return err
		}
	}
	return []part{
		{"version.txt", a.writeVersions},
		{"health.json", func(ctx context.Context, w io.Writer) error { return answerJSON(w)(c.Daemon.Health(ctx)) }},
		{"doctor.json", func(ctx context.Context, w io.Writer) error {
			set, err := a.daemonSettings()
			if err != nil {
				return err
			}
			return answerJSON(w)(a.local.Doctor(ctx, set.Place, set.Engine, ""))
		}},
		{"computers.txt", func(ctx context.Context, w io.Writer) error { return writeStates(ctx, c, w) }},
		{"images.json", func(ctx context.Context, w io.Writer) error { return answerJSON(w)(c.Images.List(ctx)) }},
		{"metrics.txt", debug("/metrics", "")},
		{"command.txt", debug("/debug/pprof/cmdline", "")},
		{"goroutines.txt", debug("/debug/pprof/goroutine", "debug=2")},
		{"heap.pprof", debug("/debug/pprof/heap", "")},
		{"daemon.log", a.writeLog},
	}
}

// answerJSON writes an answer, unless it is an error.
func answerJSON(w io.Writer) func(v any, err error) error {
	return func(v any, err error) error {
		if err != nil {
			return err
		}
		return printJSON(w, v)
	}
}

func (a *app) writeVersions(_ context.Context, w io.Writer) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "holt %s\n%s %s/%s\n%s %s %s\n", a.local.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH,
		unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]))
	return err
}

// writeStates writes the states of computers, and nothing of what runs in them.
func writeStates(ctx context.Context, c *client.Client, w io.Writer) error {
	all, err := c.Computers.List(ctx)
	if err != nil {
		return err
	}
	rows := make([][]string, len(all))
	for i, one := range all {
		rows[i] = []string{one.Name, string(one.ID), string(one.State), one.Reason, one.Template, one.Engine}
	}
	return printTable(w, []string{"NAME", "ID", "STATE", "REASON", "TEMPLATE", "ENGINE"}, rows)
}

// writeLog writes the end of the daemon's log: of the file that holt up has made, else of systemd's journal.
func (a *app) writeLog(ctx context.Context, w io.Writer) error {
	at, err := a.place()
	if err != nil {
		return err
	}
	f, err := os.Open(logPath(at.DataDir))
	if err == nil {
		defer f.Close()
		end, err := f.Seek(0, io.SeekEnd)
		if err == nil {
			_, err = io.Copy(w, io.NewSectionReader(f, max(0, end-bundleLog), bundleLog))
		}
		return err
	}
	cmd := exec.CommandContext(ctx, "journalctl", "-u", "holt", "-n", "10000", "--no-pager", "-o", "cat")
	text, fault := cmd.Output()
	if fault != nil {
		return here(err, logPath(at.DataDir))
	}
	_, err = w.Write(text[max(0, len(text)-bundleLog):])
	return err
}
