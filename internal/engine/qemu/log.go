package qemu

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// maxLog is the maximum size of a log file, bytes. When it is reached the older half is removed.
const maxLog = 1 << 20

// tailLog is a file that keeps the end of its input. Write never fails, so that
// a full disk does not stop the reader of a pipe.
type tailLog struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
	last []byte // the last few KiB, for error messages
}

// maxLast is how much is kept in memory, bytes.
const maxLast = 2 << 10

// openLog opens the log for appending, and removes the temporary file of a
// process that was killed while it halved the log.
func openLog(path string) (*tailLog, error) {
	left, err := filepath.Glob(path + ".*")
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	for _, name := range left {
		os.Remove(name)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open log: %w", err)
	}
	return &tailLog{path: path, file: f, size: info.Size()}, nil
}

// Write appends p as far as the disk allows. Limiting p to half of maxLog keeps
// the file within its limit; drain writes far less.
func (l *tailLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > maxLog {
		l.halve()
	}
	n, _ := l.file.Write(p)
	l.size += int64(n)
	l.last = append(l.last, p...)
	if over := len(l.last) - maxLast; over > 0 {
		l.last = append(l.last[:0], l.last[over:]...)
	}
	return len(p), nil
}

// halve removes the first half of the file. If there is no space for a copy, it
// empties the file, to keep the limit.
func (l *tailLog) halve() {
	if f, size, err := copyTail(l.path, l.file, l.size-maxLog/2); err == nil {
		l.file.Close()
		l.file, l.size = f, size
		return
	}
	if l.file.Truncate(0) == nil {
		l.size = 0
	}
}

func copyTail(path string, from *os.File, offset int64) (*os.File, int64, error) {
	to, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".")
	if err != nil {
		return nil, 0, err
	}
	size, err := io.Copy(to, io.NewSectionReader(from, offset, maxLog))
	if err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		os.Remove(to.Name())
		to.Close()
		return nil, 0, err
	}
	return to, size, nil
}

// Last returns the last few KiB written since the log was opened.
func (l *tailLog) Last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.last)
}

// Close closes the file.
func (l *tailLog) Close() error { return l.file.Close() }

// drain copies r to the log until r ends, and then closes both.
func (l *tailLog) drain(r io.ReadCloser) {
	io.Copy(l, r) // an error only means that r was closed or the process ended
	r.Close()
	l.Close()
}
