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
	ownAgain  = 2 * time.Minute  // for finding out the identity after a snapshot
	ownTries  = 5                // attempts at a change that conflicts
	mostOwn   = 4 << 20          // bytes of an answer
)

// errCut is returned if a connection ended before its answer: the computer was
// paused, or this is a copy of it that continues from a snapshot.
var errCut = errors.New("the connection ended before the answer")

// selfAPI calls the computer's own API at http://holt.internal/v1/self, with
// HTTP/1.0, because an HTTP client would make this program large.
type selfAPI struct{ address string }

// ask makes one call, with a body unless that is nil.
func (o selfAPI) ask(method, path, key string, body, into any) error {
	c, err := net.DialTimeout("tcp", o.address, ownDial)
	if err != nil {
		return holt.Errorf(holt.Unavailable, "holt does not answer at http://%s/: %w", ownHost, err).WithHint("computers of the local engine do not have this address")
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

// readOwn decodes a response: the result or an error, as JSON.
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

// change makes a call that may end this connection. If it did, the identity
// afterwards tells the result: is differs from was in a fork, and equals it if
// the computer has continued. Then, if again is set, the call is repeated.
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
			if err = ask(); !errors.Is(err, errCut) { // a call that was completed is answered again
				answered++
			}
		}
	}
	return was, is, false, asUnavailable(err)
}

// mayBeDone reports whether an error leaves the result of a call open: the
// connection was cut, or holt ended before its answer.
func mayBeDone(err error) bool { return errors.Is(err, errCut) || holt.CodeOf(err) == holt.Unavailable }

func asUnavailable(err error) error {
	if errors.Is(err, errCut) {
		return holt.Errorf(holt.Unavailable, "the answer of holt at http://%s/ is incomplete", ownHost).WithHint("try again later")
	}
	return err
}
