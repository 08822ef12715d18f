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

// maxMessage is the maximum size of a QMP message, bytes. The longest answer of
// QEMU 7.2 is its schema, 200 KiB.
const maxMessage = 1 << 20

// maxEvents is the maximum number of unread events; further ones are dropped.
const maxEvents = 64

// errMonitorClosed is returned when a QMP session ends: QEMU ended, or the session was closed here.
var errMonitorClosed = errors.New("the QEMU monitor was closed")

// message is a message of QEMU: a greeting, an answer or an event. Source:
// docs/interop/qmp-spec.txt of QEMU 7.2.
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

// decodeMessage parses one line, which must be exactly one kind of message.
func decodeMessage(line []byte) (message, error) {
	if len(line) > maxMessage {
		return message{}, fmt.Errorf("QMP message is too long: %d bytes", len(line))
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
		return message{}, fmt.Errorf("QMP message has %d kinds at once", kinds)
	}
	return m, nil
}

// event is an event of QEMU.
type event struct {
	name string
	at   time.Time // by the host's clock
	data json.RawMessage
}

// qmp is a session with QEMU's monitor, which serves one session at a time.
type qmp struct {
	conn    net.Conn
	events  chan event    // closed at the end of the session
	stopped chan struct{} // closed when the reader has ended

	write sync.Mutex // held while a command is written

	mu      sync.Mutex // guards what follows
	next    uint64
	pending map[uint64]chan message
}

// openQMP starts a session on conn. If that fails it closes conn.
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
		return nil, fmt.Errorf("start QMP session: %w", err)
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
		return errors.New("QMP session has no greeting")
	}
	return nil
}

// read passes answers to their callers and events to the channel until the
// session ends. It never blocks on either.
func (q *qmp) read(lines *bufio.Scanner) {
	defer close(q.stopped)
	defer q.conn.Close()
	for lines.Scan() {
		m, err := decodeMessage(lines.Bytes())
		if err != nil {
			break // out of sync with QEMU, which cannot be repaired
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
	default: // drop it: every event has another source, such as polling
	}
}

func (q *qmp) answer(m message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.pending[*m.ID]; c != nil {
		c <- m // buffered, with one send only
		delete(q.pending, *m.ID)
	}
}

// do runs a command and decodes its result into result, unless that is nil.
func (q *qmp) do(ctx context.Context, command string, args, result any) error {
	return q.run(ctx, command, args, nil, result)
}

// give passes an open file to QEMU under a name.
func (q *qmp) give(ctx context.Context, name string, f *os.File) error {
	return q.run(ctx, "getfd", map[string]string{"fdname": name}, f, nil)
}

// run is do, and passes a file unless it is nil.
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
	// A partial command would corrupt the next one, so a write error ends the
	// session. The write has a deadline of its own, since a few bytes to a working
	// QEMU take no time.
	q.conn.SetWriteDeadline(time.Now().Add(monitorWait))
	if err := write(q.conn, append(b, '\n'), file); err != nil {
		q.conn.Close()
		return fmt.Errorf("%w: %w", errMonitorClosed, err)
	}
	return nil
}

// write sends b, and a file if there is one (SCM_RIGHTS, unix(7)).
func write(conn net.Conn, b []byte, file *os.File) error {
	if file == nil {
		_, err := conn.Write(b)
		return err
	}
	socket, ok := conn.(interface {
		WriteMsgUnix(b, oob []byte, addr *net.UnixAddr) (n, oobn int, err error)
	})
	if !ok {
		return errors.New("a file can only be sent through a unix socket")
	}
	n, _, err := socket.WriteMsgUnix(b, unix.UnixRights(int(file.Fd())), nil)
	if err == nil && n < len(b) {
		_, err = conn.Write(b[n:])
	}
	return err
}

// close ends the session and waits for its reader. QEMU keeps running.
func (q *qmp) close() {
	q.conn.Close()
	<-q.stopped
}
