package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// screen follows what is written to this terminal as far as leaving it needs
// to: which modes are set. From a replay it takes out the questions to the
// terminal (ECMA-48 and xterm's "Control Sequences"): answered a second time,
// the answers would be typed into the shell. The zero value is ready.
type screen struct {
	state screenState
	seq   []byte // the sequence that has begun
	held  bool   // and was not passed on yet
	modes map[int]bool
}

type screenState int

const (
	inText screenState = iota
	inEscape
	inCSI    // control sequence: ESC [ … final
	inString // ESC ] or ESC P …, until BEL or ESC \
)

// mostSequence bounds a sequence, bytes; what is longer is passed on.
const mostSequence = 4096

// live appends p to out as it is.
func (s *screen) live(out, p []byte) []byte {
	for _, c := range p {
		held := s.held
		done := s.step(c)
		switch {
		case !held:
			out = append(out, c)
		case done: // it began in the replay; its end makes it this program's
			out = append(out, s.seq...)
		}
		s.held = held && !done
		if done {
			s.seq = s.seq[:0]
		}
	}
	return out
}

// replayed appends p to out without questions.
func (s *screen) replayed(out, p []byte) []byte {
	const enquiry = 5
	for _, c := range p {
		begun := s.state != inText
		done := s.step(c)
		switch {
		case !begun && !done && s.state == inText:
			if c != enquiry {
				out = append(out, c)
			}
			continue
		case !begun:
			s.held = true
		}
		if done {
			if !s.held || !question(s.seq) {
				out = append(out, s.seq...)
			}
			s.held, s.seq = false, s.seq[:0]
		}
	}
	return out
}

// step takes one byte and says whether it ends a sequence, which seq then holds.
func (s *screen) step(c byte) (done bool) {
	const escape, bell = 0x1b, 7
	if s.state == inText {
		if c == escape {
			s.state, s.seq = inEscape, append(s.seq[:0], c)
		}
		return false
	}
	s.seq = append(s.seq, c)
	switch s.state {
	case inEscape:
		switch {
		case c == '[':
			s.state = inCSI
		case strings.IndexByte("]P_^X", c) >= 0:
			s.state = inString
		case c < 0x20 || c > 0x2f: // not an intermediate byte
			done = true
		}
	case inCSI:
		done = c >= 0x40 && c <= 0x7e
	case inString:
		done = c == bell || bytes.HasSuffix(s.seq, []byte{escape, '\\'})
	}
	if done || len(s.seq) >= mostSequence {
		s.note()
		s.state, done = inText, true
	}
	return done
}

// note remembers a mode that a sequence sets (ESC [ ? n ; … h) or ends (l).
func (s *screen) note() {
	body, ok := bytes.CutPrefix(s.seq, []byte("\x1b[?"))
	if !ok || len(body) == 0 {
		return
	}
	end := len(body) - 1
	if body[end] != 'h' && body[end] != 'l' {
		return
	}
	for _, n := range strings.Split(string(body[:end]), ";") {
		if mode, err := strconv.Atoi(n); err == nil && slices.Contains(leftModes, mode) {
			if s.modes == nil {
				s.modes = map[int]bool{}
			}
			s.modes[mode] = body[end] == 'h'
		}
	}
}

const cursorMode = 25 // the only one of these that is set by default

// leftModes are the modes that must not outlast an attachment: application
// keys, the mouse, focus, other screens, pasting in brackets.
var leftModes = []int{1, 9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 47, 1047, 1049, 2004, cursorMode}

// leave returns what makes the terminal what it was.
func (s *screen) leave() []byte {
	var out []byte
	for _, mode := range leftModes {
		set, known := s.modes[mode]
		if byDefault := mode == cursorMode; known && set != byDefault {
			final := 'l'
			if byDefault {
				final = 'h'
			}
			out = fmt.Appendf(out, "\x1b[?%d%c", mode, final)
		}
	}
	return append(out, "\x1b>\x1b[0m\r"...) // keypad, colours
}

// question says whether a whole sequence makes a terminal answer.
func question(seq []byte) bool {
	if len(seq) < 3 {
		return string(seq) == "\x1bZ"
	}
	body, final := string(seq[2:len(seq)-1]), seq[len(seq)-1]
	switch seq[1] {
	case '[':
		switch final {
		case 'c', 'n', 'x':
			return true
		case 'p':
			return strings.HasSuffix(body, "$")
		case 'q':
			return strings.HasPrefix(body, ">")
		case 'u':
			return strings.HasPrefix(body, "?")
		case 't':
			first, _, _ := strings.Cut(body, ";")
			n, err := strconv.Atoi(first)
			return err == nil && n >= 11 && n <= 21
		}
	case ']':
		return strings.HasSuffix(strings.TrimSuffix(body, "\x1b"), ";?")
	case 'P':
		return strings.HasPrefix(body, "$q") || strings.HasPrefix(body, "+q")
	}
	return false
}
