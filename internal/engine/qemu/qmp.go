package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

// maxMessage bounds one QMP message, bytes. The longest answer of QEMU 7.2 is
// its schema, 200 KiB.
const maxMessage = 1 << 20

// maxEvents bounds the events that wait for their reader; more are dropped.
const maxEvents = 64

// errMonitorClosed is the end of a QMP session: QEMU ended, or it was closed here.
var errMonitorClosed = errors.New("the QEMU monitor was closed")

// message is anything that QEMU sends: a greeting, an answer or an event.
// Source: docs/interop/qmp-spec.txt of QEMU 7.2.
type message struct {
	Greeting *struct {
		Version struct {
			Package string `json:"package"`
			QEMU    struct {
				Major int `json:"major"`
				Minor int `json:"minor"`
				Micro int `json:"micro"`
			} `json:"qemu"`
		} `json:"version"`
	} `json:"QMP"`
	ID     *uint64         `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
	At    struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	} `json:"timestamp"`
}

// decodeMessage parses one line. It fails unless the line is exactly one of
// the things QEMU may send.
func decodeMessage(line []byte) (message, error) {
	if len(line) > maxMessage {
		return message{}, fmt.Errorf("QMP message of %d bytes", len(line))
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("parse QMP message: %w", err)
	}
	kinds := 0
	for _, is := range []bool{m.Greeting != nil, m.Event != "", m.Return != nil, m.Error != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return message{}, fmt.Errorf("QMP message is %d things at once", kinds)
	}
	return m, nil
}

// event is something that happened in QEMU.
type event struct {
	name string
	at   time.Time // by the host's clock
	data json.RawMessage
}

// qmp is a session with QEMU's monitor. QEMU serves one at a time.
type qmp struct {
	conn    net.Conn
	events  chan event    // closed at the end of the session
	stopped chan struct{} // closed when the reader has ended

	write sync.Mutex // held while a command is written

	mu      sync.Mutex // guards what follows
	next    uint64
	pending map[uint64]chan message
}

// openQMP takes conn over and negotiates. It closes conn if it fails.
func openQMP(ctx context.Context, conn net.Conn) (*qmp, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 4096), maxMessage)
	err := greet(lines)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("greet QEMU: %w", err)
	}
	q := &qmp{
		conn:    conn,
		events:  make(chan event, maxEvents),
		stopped: make(chan struct{}),
		pending: map[uint64]chan message{},
	}
	go q.read(lines)
	if err := q.do(ctx, "qmp_capabilities", nil, nil); err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

func greet(lines *bufio.Scanner) error {
	if !lines.Scan() {
		return errors.Join(lines.Err(), io.ErrUnexpectedEOF)
	}
	m, err := decodeMessage(lines.Bytes())
	if err != nil {
		return err
	}
	if m.Greeting == nil {
		return errors.New("QMP session begins with no greeting")
	}
	return nil
}

// read hands answers to those who wait and events to the channel until the
// session ends. It never blocks on either.
func (q *qmp) read(lines *bufio.Scanner) {
	defer close(q.stopped)
	defer q.conn.Close()
	for lines.Scan() {
		m, err := decodeMessage(lines.Bytes())
		if err != nil {
			break // out of step with QEMU; there is no way back into it
		}
		switch {
		case m.Event != "":
			q.emit(event{m.Event, time.Unix(m.At.Seconds, m.At.Microseconds*1000), m.Data})
		case m.ID != nil:
			q.answer(m)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, c := range q.pending {
		close(c)
		delete(q.pending, id)
	}
	q.pending = nil
	close(q.events)
}

func (q *qmp) emit(e event) {
	select {
	case q.events <- e:
	default: // none of them is all that tells what it tells
	}
}

func (q *qmp) answer(m message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.pending[*m.ID]; c != nil {
		c <- m // buffered, and sent to once
		delete(q.pending, *m.ID)
	}
}

// do runs a command and decodes what it returns into result, unless that is nil.
func (q *qmp) do(ctx context.Context, command string, args, result any) error {
	return q.run(ctx, command, args, nil, result)
}

// give hands an open file over, which QEMU knows by name until it is used.
func (q *qmp) give(ctx context.Context, name string, f *os.File) error {
	return q.run(ctx, "getfd", map[string]string{"fdname": name}, f, nil)
}

// run is do with a file beside the command, unless that is nil.
func (q *qmp) run(ctx context.Context, command string, args any, file *os.File, result any) error {
	id, c, err := q.expect()
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	defer q.forget(id)
	if err := q.send(ctx, id, command, args, file); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	select {
	case m, ok := <-c:
		switch {
		case !ok:
			return fmt.Errorf("%s: %w", command, errMonitorClosed)
		case m.Error != nil:
			return holt.Errorf(holt.Internal, "QEMU refused %s: %s", command, clip(m.Error.Desc))
		case result == nil:
			return nil
		}
		if err := json.Unmarshal(m.Return, result); err != nil {
			return fmt.Errorf("decode answer to %s: %w", command, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", command, ctx.Err())
	}
}

func (q *qmp) expect() (uint64, chan message, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pending == nil {
		return 0, nil, errMonitorClosed
	}
	q.next++
	c := make(chan message, 1)
	q.pending[q.next] = c
	return q.next, c, nil
}

func (q *qmp) forget(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.pending, id)
}

func (q *qmp) send(ctx context.Context, id uint64, command string, args any, file *os.File) error {
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        uint64 `json:"id"`
	}{command, args, id})
	if err != nil {
		return err
	}
	q.write.Lock()
	defer q.write.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	// A command that was cut short would spoil the next one, so an error here ends
	// the session. A few bytes to a QEMU that reads take no time, whoever waits for the answer.
	q.conn.SetWriteDeadline(time.Now().Add(monitorWait))
	if err := write(q.conn, append(b, '\n'), file); err != nil {
		q.conn.Close()
		return fmt.Errorf("%w: %w", errMonitorClosed, err)
	}
	return nil
}

// write sends b, and with it the file if there is one (SCM_RIGHTS, unix(7)).
func write(conn net.Conn, b []byte, file *os.File) error {
	if file == nil {
		_, err := conn.Write(b)
		return err
	}
	socket, ok := conn.(interface {
		WriteMsgUnix(b, oob []byte, addr *net.UnixAddr) (n, oobn int, err error)
	})
	if !ok {
		return errors.New("a file can be sent through a unix socket only")
	}
	n, _, err := socket.WriteMsgUnix(b, unix.UnixRights(int(file.Fd())), nil)
	if err == nil && n < len(b) {
		_, err = conn.Write(b[n:])
	}
	return err
}

// close ends the session and waits for its reader. QEMU goes on.
func (q *qmp) close() {
	q.conn.Close()
	<-q.stopped
}
