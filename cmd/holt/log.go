package main

import (
	"fmt"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// mostLog is how large a log file grows before it is turned over, bytes.
const mostLog = 64 << 20

// logger writes to standard error, or to a file that becomes standard error
// too, so that a panic is found in it: text for a person, JSON for a file.
func logger(path string) (*slog.Logger, error) {
	if path != "" {
		file := &logFile{path: path, most: mostLog, stderr: os.Stderr}
		if err := file.open(); err != nil {
			return nil, err
		}
		return slog.New(slog.NewJSONHandler(file, nil)), nil
	}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return slog.New(slog.NewTextHandler(os.Stderr, nil)), nil
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, nil)), nil
}

// logFile is a log of bounded size: a file and its predecessor, PATH.1.
// stderr's descriptor is always the file's.
type logFile struct {
	path   string
	most   int64
	stderr *os.File

	mu   sync.Mutex
	size int64
}

// open puts the file at path in the place of stderr.
func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	if err := unix.Dup3(int(f.Fd()), int(l.stderr.Fd()), 0); err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	l.size = info.Size()
	return nil
}

// Write turns a file that would become too large over first. Where that fails
// (a full disk) the log is cut: the bound holds whatever happens.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > l.most {
		err := os.Rename(l.path, l.path+".1")
		if err == nil {
			err = l.open()
		}
		if err != nil && l.stderr.Truncate(0) == nil {
			l.size = 0
		}
	}
	n, err := l.stderr.Write(p)
	l.size += int64(n)
	return n, err
}
