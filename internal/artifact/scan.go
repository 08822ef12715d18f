package artifact

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/jail"
)

const (
	mostScans    = 4                // at a time
	mostScanTime = 10 * time.Minute // of one
	mostScanned  = 64 << 10         // bytes of what a scanner says
	mostReason   = 500              // bytes of a reason
)

// checkScan returns InvalidArgument unless s is a scan: "", a command, or a URL.
func checkScan(s string) error {
	const hint = "give the absolute path of a program with its arguments, or an http or https URL; for anything else, write a script"
	bad := func(format string, args ...any) error {
		return holt.Errorf(holt.InvalidArgument, format, args...).WithHint(hint)
	}
	switch u, err := url.Parse(s); {
	case s == "":
		return nil
	case len(s) > holt.MostBucketScan || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return bad("invalid scan %q", holt.Clip(s, 80))
	case isURL(s):
		if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
			return bad("invalid URL %q of a scan", holt.Clip(s, 80))
		}
		return nil
	}
	program := strings.Fields(s)
	if len(program) == 0 || !filepath.IsAbs(program[0]) {
		return bad("the scan %q is neither an absolute path nor a URL", holt.Clip(s, 80))
	}
	if info, err := os.Stat(program[0]); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return bad("%s is not a program of the host", holt.Clip(program[0], 80))
	}
	return nil
}

func isURL(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") }

// answer is what a scanner has said of an artifact.
type answer struct {
	allows  bool   // exit status 0, or a 2xx status
	refuses bool   // exit status 1
	said    []byte // its standard output, or the body
	status  string // for errors
	failed  error  // it has not come to an end
	about   string // for the log: what it wrote to standard error
}

// scan has the scan of a bucket see the bytes of an artifact. Its error says why the artifact is refused.
func (s *Store) scan(ctx context.Context, a *row, b bucket, content io.Reader) error {
	if b.scan == "" {
		return nil
	}
	of, _ := s.scansOf.LoadOrStore(a.Tenant, make(chan struct{}, mostScans/2)) // some are left for other tenants
	select {
	case of.(chan struct{}) <- struct{}{}:
		defer func() { <-of.(chan struct{}) }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case s.scans <- struct{}{}:
		defer func() { <-s.scans }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, s.scanTime)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if err := s.point("artifact/scanning"); err != nil {
		return err
	}
	in := &source{r: content}
	var got answer
	if isURL(b.scan) {
		got = askURL(ctx, b.scan, told(a), a.Size, in)
	} else {
		got = askCommand(ctx, b.scan, told(a), in)
	}
	if err, ok := in.err.Load().(error); ok && ctx.Err() == nil { // not the scanner's fault
		return err
	}
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		got.failed = fmt.Errorf("it has not ended after %s", holt.ShortDuration(s.scanTime))
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	refused, err := got.verdict()
	switch {
	case err != nil:
		s.cfg.Log.WarnContext(ctx, "the scan of a bucket failed", "bucket", b.name, "tenant", b.tenant, "artifact", a.ID, "err", err, "said", seen(string(got.said)), "stderr", seen(got.about))
		a.refused = "the scan failed: " + err.Error()
		return holt.Errorf(holt.Unavailable, "the scan of the bucket %s failed, so that %s is not stored: %w", b.name, holt.Clip(a.Name, 80), err).
			WithHint("nothing is known to be wrong with the file; whoever set the scan finds more in the daemon's log")
	case refused != "":
		a.refused = refused
		return holt.Errorf(holt.InvalidArgument, "the scan of the bucket %s refuses %s: %s", b.name, holt.Clip(a.Name, 80), refused)
	}
	return nil
}

// told is what a scanner is told of an artifact.
func told(a *row) map[string]string {
	return map[string]string{"Name": a.Name, "Bucket": a.Bucket, "Size": strconv.FormatInt(a.Size, 10), "SHA256": a.SHA256, "Type": a.MediaType}
}

// verdict returns why an artifact is refused; "" if it is not. An error: the scanner has not said.
func (w answer) verdict() (refused string, err error) {
	if w.failed != nil {
		return "", w.failed
	}
	if len(w.said) > mostScanned {
		return "", fmt.Errorf("it said more than %d KiB", mostScanned>>10)
	}
	var says struct {
		Allow  *bool  `json:"allow"`
		Reason string `json:"reason"`
	}
	text := bytes.TrimSpace(w.said)
	object := bytes.HasPrefix(text, []byte("{"))
	if object {
		if err := json.Unmarshal(text, &says); err != nil && !w.refuses {
			return "", errors.New("it answered with invalid JSON")
		}
	} else if w.refuses {
		says.Reason = string(text)
	}
	switch reason := seen(says.Reason); {
	case (w.refuses || says.Allow != nil && !*says.Allow) && reason == "":
		return "no reason is given", nil
	case w.refuses || says.Allow != nil && !*says.Allow:
		return reason, nil
	case !w.allows:
		return "", errors.New("it ended with " + w.status)
	}
	return "", nil
}

// seen makes what a scanner said safe to show: one line, clipped, without control characters.
func seen(s string) string {
	return holt.Clip(strings.Join(strings.Fields(holt.Visible(strings.ToValidUTF8(s, "�"))), " "), mostReason)
}

// source keeps the error of a reader, which is not that of the scanner. An HTTP client may read it still when it has an answer.
type source struct {
	r   io.Reader
	err atomic.Value // of an error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err.CompareAndSwap(nil, fmt.Errorf("read the artifact: %w", err))
	}
	return n, err
}

// some keeps the first mostScanned bytes, and one more if there are more: then enough is called.
type some struct {
	kept   bytes.Buffer // not embedded: its ReadFrom has no bound
	enough func()
}

func (s *some) Write(p []byte) (int, error) {
	s.kept.Write(p[:min(len(p), mostScanned+1-s.kept.Len())])
	if s.kept.Len() > mostScanned {
		s.enough()
	}
	return len(p), nil
}

// askCommand runs a scanner, which ends with this process, and kills what it leaves running.
func askCommand(ctx context.Context, scan string, about map[string]string, in io.Reader) (got answer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := strings.Fields(scan)
	out, errs := &some{enough: cancel}, &some{enough: func() {}}
	got.failed = jail.Thread(func() error {
		cmd := exec.Command(program[0], program[1:]...)
		cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = "/", in, out, errs, time.Second
		cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
		for name, value := range about {
			cmd.Env = append(cmd.Env, "HOLT_ARTIFACT_"+strings.ToUpper(name)+"="+value)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start its command: %w", withoutPlace(err))
		}
		stop := context.AfterFunc(ctx, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
		for { // it is not reaped yet, so that its group is still its own
			if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
				break
			}
		}
		stop()
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		err := cmd.Wait()
		state := cmd.ProcessState
		got.status, got.allows, got.refuses = state.String(), state.ExitCode() == 0, state.ExitCode() == 1
		var exit *exec.ExitError
		if errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay) {
			return nil
		}
		return err
	})
	got.said, got.about = out.kept.Bytes(), errs.kept.String()
	return got
}

// askURL posts the bytes to a scanner.
func askURL(ctx context.Context, scan string, about map[string]string, size int64, in io.Reader) (got answer) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, scan, io.NopCloser(in))
	if err != nil {
		return answer{failed: err}
	}
	r.ContentLength = size
	if size == 0 {
		r.Body = http.NoBody
	}
	r.Header.Set("Content-Type", "application/octet-stream")
	for name, value := range about {
		r.Header.Set("Holt-Artifact-"+name, url.PathEscape(value))
	}
	way := &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: mostScanned}
	c := http.Client{Transport: way, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(r)
	if err != nil {
		return answer{failed: fmt.Errorf("ask its URL: %w", withoutPlace(err))}
	}
	defer resp.Body.Close()
	got.said, got.failed = io.ReadAll(io.LimitReader(resp.Body, mostScanned+1))
	got.status, got.allows = fmt.Sprintf("HTTP status %d", resp.StatusCode), resp.StatusCode/100 == 2
	return got
}

// withoutPlace removes the path or the URL from an error, since only admins see the scan.
func withoutPlace(err error) error {
	var path *os.PathError
	var of *url.Error
	switch {
	case errors.As(err, &of):
		return of.Err
	case errors.As(err, &path):
		return path.Err
	}
	return err
}
