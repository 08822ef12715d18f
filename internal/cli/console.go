package cli

import (
	"bytes"
	"io"
	"unicode/utf8"
)

// consoleWriter passes a guest's text on to a terminal without
// what would move its cursor, rename its window or answer in its name.
type consoleWriter struct {
	w    io.Writer
	rest []byte // of a character that was cut
}

// forContent is where a file's content goes: as it is to a pipe, safely to a terminal.
func (a *app) forContent() io.Writer {
	if isTerminal(a.Out) {
		return &consoleWriter{w: a.Out}
	}
	return a.Out
}

func (c *consoleWriter) Write(p []byte) (int, error) {
	text := append(c.rest, p...)
	cut := len(text)
	for i := len(text) - 1; i >= 0 && i >= len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				cut = i
			}
			break
		}
	}
	c.rest = bytes.Clone(text[cut:])
	shown := visible(string(bytes.ReplaceAll(text[:cut], []byte("\r\n"), []byte("\n"))))
	if _, err := io.WriteString(c.w, shown); err != nil {
		return 0, err
	}
	return len(p), nil
}
