package computer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"holt"
	"holt/internal/engine/machine"
)

const logPoll = 200 * time.Millisecond

// Logs writes the console log of a computer's machine to w: all of it, or its last whole lines, and
// with Follow what is added until ctx ends.
func (s *Store) Logs(ctx context.Context, ref string, q holt.LogQuery, w io.Writer) error {
	r, err := s.table.find(ctx, ref)
	if err != nil {
		return err
	}
	path := filepath.Join(s.cfg.dir(r.ID), machine.ConsoleFile)
	log := &logReader{path: path, w: w}
	defer log.close()
	if err := log.begin(q.TailBytes); err != nil {
		return err
	}
	if q.Follow { // sends the headers of an HTTP answer, before there is anything to send
		if _, err := w.Write(nil); err != nil {
			return err
		}
	}
	for {
		if err := log.copy(); err != nil || !q.Follow {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.shutdown.ctx.Done():
			return ending()
		case <-time.After(logPoll):
		}
		if _, err := s.table.find(ctx, string(r.ID)); err != nil {
			return err
		}
	}
}

// logReader follows a log that another process appends to, truncates or replaces.
type logReader struct {
	path string
	w    io.Writer
	f    *os.File // nil: not there yet
	off  int64
}

func (l *logReader) close() {
	if l.f != nil {
		l.f.Close()
	}
}

// begin opens the log and skips to its last n bytes.
func (l *logReader) begin(n int64) error {
	if err := l.reopen(); err != nil || l.f == nil || n <= 0 {
		return err
	}
	fi, err := l.f.Stat()
	if err != nil {
		return fmt.Errorf("read console log: %w", err)
	}
	if l.off = max(0, fi.Size()-n); l.off == 0 {
		return nil
	}
	b := make([]byte, min(n, 64<<10))
	got, err := l.f.ReadAt(b, l.off)
	if err != nil && err != io.EOF {
		return fmt.Errorf("read console log: %w", err)
	}
	l.off += int64(got - len(wholeLines(b[:got])))
	return nil
}

// wholeLines drops a partial line at the beginning of b.
func wholeLines(b []byte) []byte {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return b[i+1:]
	}
	return b
}

// reopen opens the log if it is a new file.
func (l *logReader) reopen() error {
	f, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the machine has not started yet
	}
	if err != nil {
		return fmt.Errorf("read console log: %w", err)
	}
	if l.f != nil {
		a, err1 := l.f.Stat()
		b, err2 := f.Stat()
		if err1 == nil && err2 == nil && os.SameFile(a, b) {
			f.Close()
			if b.Size() < l.off {
				l.off = 0 // it was cut short
			}
			return nil
		}
		l.f.Close()
	}
	l.f, l.off = f, 0
	return nil
}

// copy writes what was added.
func (l *logReader) copy() error {
	if l.f != nil {
		n, err := io.Copy(l.w, io.NewSectionReader(l.f, l.off, 1<<62-l.off))
		l.off += n
		if err != nil {
			return err
		}
	}
	return l.reopen()
}
