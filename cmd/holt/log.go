package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// mostLog is how large a log file grows before it is turned over, bytes.
const mostLog = 64 << 20

// logger writes to standard error, or to a file that becomes standard error
// too, so that a panic is found in it. format is text, json, or auto: text for a person, JSON for a file. level
// is the least that is logged.
func logger(path, format string, level slog.Level) (*slog.Logger, error) {
	var to io.Writer = os.Stderr
	if path != "" {
		file := &logFile{path: path, most: mostLog, stderr: os.Stderr}
		if err := file.open(); err != nil {
			return nil, err
		}
		to = file
	}
	text := format == "text" || format != "json" && path == "" && term.IsTerminal(int(os.Stderr.Fd()))
	opt := &slog.HandlerOptions{Level: level}
	if text {
		return slog.New(slog.NewTextHandler(to, opt)), nil
	}
	return slog.New(slog.NewJSONHandler(to, opt)), nil
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
