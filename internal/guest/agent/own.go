package agent

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"holt"
)

const (
	ownHost   = "holt.internal"
	ownDial   = 10 * time.Second
	ownAnswer = 15 * time.Minute // of a snapshot or forks, on a busy host
	ownAgain  = 2 * time.Minute  // until one who went on from a snapshot hears who it is
	ownTries  = 5                // of a change that cannot be done now
	mostOwn   = 4 << 20          // bytes of an answer
)

// errCut is a connection that ended before its answer: the computer was paused, or goes on from a snapshot, here or
// as a fork.
var errCut = errors.New("the connection ended before the answer")

// selfAPI asks the computer's own API at http://holt.internal/v1/self, by HTTP/1.0: this program does without an
// HTTP client, and stays small.
type selfAPI struct{ address string }

// ask asks once, with a body unless that is nil.
func (o selfAPI) ask(method, path, key string, body, into any) error {
	c, err := net.DialTimeout("tcp", o.address, ownDial)
	if err != nil {
		return holt.Errorf(holt.Unavailable, "holt does not answer at http://%s/: %w", ownHost, err).WithHint("a computer of the engine local has no such address")
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(ownAnswer))
	var sent []byte
	if body != nil {
		if sent, err = json.Marshal(body); err != nil {
			return err
		}
	}
	var q bytes.Buffer
	fmt.Fprintf(&q, "%s /v1/self%s HTTP/1.0\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", method, path, ownHost, len(sent))
	if key != "" {
		fmt.Fprintf(&q, "Idempotency-Key: %s\r\n", key)
	}
	q.WriteString("\r\n")
	q.Write(sent)
	if _, err := c.Write(q.Bytes()); err != nil {
		return errCut
	}
	return readOwn(io.LimitReader(c, mostOwn), into)
}

// readOwn reads an answer: JSON of what was asked for, or of an error.
func readOwn(from io.Reader, into any) error {
	r := bufio.NewReader(from)
	var status int
	for first := true; ; first = false {
		line, err := r.ReadString('\n')
		if err != nil {
			return errCut
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			break
		}
		if f := strings.Fields(line); first && len(f) > 1 {
			status, _ = strconv.Atoi(f[1])
		}
	}
	b, err := io.ReadAll(r)
	switch {
	case err != nil || status == 200 && !json.Valid(b):
		return errCut
	case status == 200:
		return json.Unmarshal(b, into)
	}
	said := &holt.Error{}
	if json.Unmarshal(b, said) != nil || said.Message == "" {
		return holt.Errorf(holt.Unavailable, "holt answers with status %d: %s", status, clip(strings.TrimSpace(string(b))))
	}
	return said
}

// change has something done that may end this connection. If it did, who this is now says what became of it: is is then
// another than was in a fork, and the same where the computer has gone on. Then what is not again is asked for again.
func (o selfAPI) change(path string, body, into any, again bool) (was, is holt.Self, cut bool, err error) {
	if err := o.ask("GET", "", "", nil, &was); err != nil {
		return was, was, false, asUnavailable(err)
	}
	key := rand.Text()
	ask := func() error { return o.ask("POST", path, key, body, into) }
	if err = ask(); !mayBeDone(err) || !again && !errors.Is(err, errCut) {
		return was, was, false, err
	}
	pause, answered := 50*time.Millisecond, 0
	for end := time.Now().Add(ownAgain); mayBeDone(err) && answered < ownTries && time.Now().Before(end); {
		pause = min(2*pause, 2*time.Second)
		time.Sleep(pause)
		if err = o.ask("GET", "", "", nil, &is); err == nil && (is.ID != was.ID || !again) {
			return was, is, true, nil
		} else if err == nil {
			if err = ask(); !errors.Is(err, errCut) { // what was done already is answered again
				answered++
			}
		}
	}
	return was, is, false, asUnavailable(err)
}

// mayBeDone tells of an error that leaves open what became of what was asked: the connection was cut, or holt, as its
// network says, was away before it had answered.
func mayBeDone(err error) bool { return errors.Is(err, errCut) || holt.CodeOf(err) == holt.Unavailable }

func asUnavailable(err error) error {
	if errors.Is(err, errCut) {
		return holt.Errorf(holt.Unavailable, "holt answers at http://%s/, but not to the end", ownHost).WithHint("try again in a while")
	}
	return err
}
