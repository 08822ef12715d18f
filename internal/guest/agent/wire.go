package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"holt"
)

// Protocol is the version of the protocol inside a session. An agent accepts
// only requests of its own version.
const Protocol = 3

const (
	maxMessage = 1 << 20   // bytes of a JSON message
	maxChunk   = 256 << 10 // bytes of a chunk or of one output event
	smallChunk = 32 << 10  // for operations with many streams
	// portChunk is the chunk size for data of a port: with its header and the
	// stream's it fits one write to the port.
	portChunk = joinSize - muxHeader - 4
)

// request opens a stream.
type request struct {
	V    int             `json:"v"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
	// For is the mark for file requests of this operation: 1 to 8 hexadecimal
	// digits, chosen by the host.
	For string `json:"for,omitempty"`
}

// answer follows a request, and ends streams of chunks.
type answer struct {
	Error  *holt.Error     `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// writeMessage writes v as JSON with its length.
func writeMessage(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > maxMessage {
		return holt.Errorf(holt.TooMany, "message is too long: %d bytes, the maximum is %d", len(body), maxMessage)
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err = w.Write(append(b, body...))
	return err
}

// readMessage reads what writeMessage wrote.
func readMessage(r io.Reader, v any) error {
	var h [4]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(h[:])
	if n > maxMessage {
		return holt.Errorf(holt.Corrupt, "message is too long: %d bytes, the maximum is %d", n, maxMessage)
	}
	var body bytes.Buffer // grows with the received bytes: the length is not trusted
	if _, err := io.CopyN(&body, r, int64(n)); err != nil {
		return unexpected(err)
	}
	if err := json.Unmarshal(body.Bytes(), v); err != nil {
		return malformed("message", err)
	}
	return nil
}

// readAnswer decodes an answer into result, unless that is nil, or returns the error it has.
func readAnswer(r io.Reader, result any) error {
	var a answer
	if err := readMessage(r, &a); err != nil {
		return unexpected(err)
	}
	if a.Error != nil {
		return foreign(a.Error)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return malformed("result", err)
	}
	return nil
}

func writeAnswer(w io.Writer, result any, err error) error {
	var a answer
	if err != nil {
		a.Error = holt.AsError(err)
	} else if result != nil {
		raw, err := json.Marshal(result)
		if err != nil {
			return fmt.Errorf("encode result: %w", err)
		}
		a.Result = raw
	}
	return writeMessage(w, a)
}

// unexpected converts io.EOF inside a message to io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// zeroChunk in a chunk's length marks that many zeros, without bytes.
const zeroChunk = 1 << 31

// chunkWriter writes a stream of chunks: u32 length, and the bytes or, for
// zeros, none; a length of 0 ends it. The operation defines what follows.
type chunkWriter struct {
	w   io.Writer
	buf []byte // a header and a chunk
}

// newChunkWriter returns a writer with chunks of up to size bytes, at most maxChunk.
func newChunkWriter(w io.Writer, size int) *chunkWriter {
	return &chunkWriter{w: w, buf: make([]byte, 4+size)}
}

func (c *chunkWriter) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n := copy(c.buf[4:], p[done:])
		if err := c.emit(n); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// ReadFrom copies r until its end, without a second buffer.
func (c *chunkWriter) ReadFrom(r io.Reader) (total int64, err error) {
	for {
		n, err := r.Read(c.buf[4:])
		if n > 0 {
			if err := c.emit(n); err != nil {
				return total, err
			}
			total += int64(n)
		}
		if err == io.EOF {
			return total, nil
		} else if err != nil {
			return total, err
		}
	}
}

// emit writes the n bytes behind the space for the header.
func (c *chunkWriter) emit(n int) error {
	if n >= leastZeros && allZero(c.buf[4:4+n]) {
		_, err := c.w.Write(binary.BigEndian.AppendUint32(nil, zeroChunk|uint32(n)))
		return err
	}
	binary.BigEndian.PutUint32(c.buf, uint32(n))
	_, err := c.w.Write(c.buf[:4+n])
	return err
}

// leastZeros is the number of zeros from which a chunk without bytes is used.
const leastZeros = 512

func allZero(p []byte) bool {
	return p[0] == 0 && bytes.Equal(p[1:], p[:len(p)-1])
}

func (c *chunkWriter) end() error {
	_, err := c.w.Write(make([]byte, 4))
	return err
}

// chunkReader reads a stream of chunks. io.EOF is its end; io.ErrUnexpectedEOF
// means that the stream broke before.
type chunkReader struct {
	r     io.Reader
	left  int
	zeros bool // the rest of the chunk is zeros
	over  bool
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if c.over {
		return 0, io.EOF
	}
	for c.left == 0 {
		var h [4]byte
		if _, err := io.ReadFull(c.r, h[:]); err != nil {
			return 0, unexpected(err)
		}
		n := binary.BigEndian.Uint32(h[:])
		c.zeros = n > zeroChunk
		if c.zeros {
			n -= zeroChunk
		}
		if n > maxChunk {
			return 0, holt.Errorf(holt.Corrupt, "chunk is too long: %d bytes, the maximum is %d", n, maxChunk)
		}
		if n == 0 {
			c.over = true
			return 0, io.EOF
		}
		c.left = int(n)
	}
	p = p[:min(len(p), c.left)]
	if c.zeros {
		clear(p)
		c.left -= len(p)
		return len(p), nil
	}
	n, err := c.r.Read(p)
	c.left -= n
	return n, unexpected(err)
}

// Kinds of run events on the wire: u8 kind, i64 offset, u32 length, bytes.
const (
	eventStdout = 1
	eventStderr = 2
	eventGap    = 3 // i64 bytes dropped
	eventExit   = 4 // the run as JSON; the last event
	eventError  = 5 // a holt.Error as JSON; the last event
	eventTaken  = 6 // terminals: the offset of the client's input that the program has
	eventSize   = 7 // terminals: u16 rows, u16 columns
)

const eventHeader = 1 + 8 + 4

func appendEvent(b []byte, kind byte, offset int64, data []byte) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// readEventFrame reads an event, as written by appendEvent, into buf.
func readEventFrame(r io.Reader, buf []byte) (kind byte, offset int64, data []byte, err error) {
	h := buf[:eventHeader]
	if _, err := io.ReadFull(r, h); err != nil {
		return 0, 0, nil, unexpected(err)
	}
	kind, offset = h[0], int64(binary.BigEndian.Uint64(h[1:]))
	n := binary.BigEndian.Uint32(h[9:])
	if n > maxChunk || offset < 0 {
		return 0, 0, nil, holt.Errorf(holt.Corrupt, "invalid event of %d bytes at offset %d", n, offset)
	}
	data = buf[:n]
	_, err = io.ReadFull(r, data)
	return kind, offset, data, unexpected(err)
}

// readEvent reads a run's event. Its data is in buf and valid until the next call.
func readEvent(r io.Reader, buf []byte) (holt.RunEvent, error) {
	var e holt.RunEvent
	kind, offset, data, err := readEventFrame(r, buf)
	if err != nil {
		return e, err
	}
	e.Offset = offset
	switch kind {
	case eventStdout:
		e.Kind, e.Data = holt.RunStdout, data
	case eventStderr:
		e.Kind, e.Data = holt.RunStderr, data
	case eventGap:
		if len(data) != 8 {
			return e, holt.Errorf(holt.Corrupt, "malformed gap event")
		}
		e.Kind, e.Dropped = holt.RunGap, int64(binary.BigEndian.Uint64(data))
	case eventExit:
		e.Kind, e.Run = holt.RunExit, new(holt.Run)
		if err := json.Unmarshal(data, e.Run); err != nil {
			return e, malformed("exit event", err)
		}
	case eventError:
		var he holt.Error
		if err := json.Unmarshal(data, &he); err != nil {
			return e, malformed("error event", err)
		}
		return e, foreign(&he)
	default:
		return e, holt.Errorf(holt.Corrupt, "unknown run event of kind %d", kind)
	}
	return e, nil
}

// Kinds of the host's frames to a terminal: u8 kind, u32 length, bytes.
const (
	termInput = 1 // typed bytes
	termSize  = 2 // u16 rows, u16 columns
	termRead  = 3 // i64: offset up to which the host has taken output
)

const (
	termHeader   = 1 + 4
	maxTermFrame = 32 << 10
)

func appendTermFrame(b []byte, kind byte, data []byte) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// readTermFrame reads a frame into buf, which has maxTermFrame bytes.
func readTermFrame(r io.Reader, buf []byte) (kind byte, data []byte, err error) {
	h := buf[:termHeader]
	if _, err := io.ReadFull(r, h); err != nil {
		return 0, nil, unexpected(err)
	}
	kind, n := h[0], binary.BigEndian.Uint32(h[1:])
	if n > maxTermFrame || kind == termSize && n != 4 || kind == termRead && n != 8 || kind < termInput || kind > termRead {
		return 0, nil, holt.Errorf(holt.Corrupt, "invalid terminal frame of kind %d and %d bytes", kind, n)
	}
	data = buf[:n]
	_, err = io.ReadFull(r, data)
	return kind, data, unexpected(err)
}

func appendSize(b []byte, size holt.TerminalSize) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, size.Rows), size.Cols)
}

// decodeSize decodes four bytes, as written by appendSize.
func decodeSize(b []byte) holt.TerminalSize {
	return holt.TerminalSize{Rows: binary.BigEndian.Uint16(b), Cols: binary.BigEndian.Uint16(b[2:])}
}

// readTermEvent reads an event of a terminal. Its data is in buf, which has
// maxChunk bytes, and valid until the next call.
func readTermEvent(r io.Reader, buf []byte) (holt.TerminalEvent, error) {
	var e holt.TerminalEvent
	kind, offset, data, err := readEventFrame(r, buf)
	if err != nil {
		return e, err
	}
	e.Offset = offset
	switch {
	case kind == eventStdout:
		e.Kind, e.Data = holt.TerminalOutput, data
	case kind == eventGap && len(data) == 8:
		e.Kind, e.Dropped = holt.TerminalGap, int64(binary.BigEndian.Uint64(data))
	case kind == eventTaken && len(data) == 0:
		e.Kind, e.Offset, e.Taken = holt.TerminalTaken, 0, offset
	case kind == eventSize && len(data) == 4:
		size := decodeSize(data)
		e.Kind, e.Size = holt.TerminalResized, &size
	case kind == eventExit:
		e.Kind, e.Terminal = holt.TerminalExit, new(holt.Terminal)
		if err := json.Unmarshal(data, e.Terminal); err != nil {
			return e, malformed("exit event", err)
		}
	default:
		return e, holt.Errorf(holt.Corrupt, "invalid terminal event of kind %d and %d bytes", kind, len(data))
	}
	return e, nil
}

// Arguments and results of the operations; see docs/design/agent.md.

type runArgs struct {
	ID     holt.RunID    `json:"id"`
	Spec   *holt.RunSpec `json:"spec,omitempty"`
	Offset int64         `json:"offset,omitempty"` // run.input: negative: the current end
	Wanted bool          `json:"wanted,omitempty"` // run.input: wait until the run reads
	Keep   bool          `json:"keep,omitempty"`   // run.input: do not close the run's input at the end
	Last   int           `json:"last,omitempty"`   // run.output: maximum number of bytes
	Signal string        `json:"signal,omitempty"`
}

type termArgs struct {
	ID     holt.TerminalID    `json:"id"`
	Spec   *holt.TerminalSpec `json:"spec,omitempty"`
	Signal string             `json:"signal,omitempty"`
}

// attachArgs opens terminal.attach. A client that returns under its name
// (client) learns how much of its input arrived.
type attachArgs struct {
	ID     holt.TerminalID   `json:"id"`
	Offset int64             `json:"offset"` // of the output; negative: the oldest byte kept
	Size   holt.TerminalSize `json:"size,omitzero"`
	Client string            `json:"client,omitempty"`
	Input  int64             `json:"input,omitempty"` // bytes of its input that the client does not have any more
}

type attachAnswer struct {
	Terminal holt.Terminal `json:"terminal"`
	Offset   int64         `json:"offset"`  // of the first byte of output
	End      int64         `json:"end"`     // current end of the output
	Taken    int64         `json:"taken"`   // bytes of the client's input received by the agent
	Written  int64         `json:"written"` // and by the program
}

// inputAnswer ends run.input.
type inputAnswer struct {
	Taken int64 `json:"taken"` // bytes received by the run since its start
}

type fileArgs struct {
	Path      holt.OSString `json:"path"`
	To        holt.OSString `json:"to,omitempty"`
	Offset    int64         `json:"offset,omitempty"`
	Length    int64         `json:"length,omitempty"` // negative: to the end
	Mode      uint32        `json:"mode,omitempty"`
	NewMode   uint32        `json:"new_mode,omitempty"` // of a new file, if Mode is 0
	User      string        `json:"user,omitempty"`     // "": an existing file keeps its owner, a new one gets that of its directory
	Recursive bool          `json:"recursive,omitempty"`

	// Beneath is the directory that paths are confined to, also by symbolic links; "": none.
	Beneath holt.OSString `json:"beneath,omitempty"`
}

type dialArgs struct {
	Network string `json:"network"`
	Address string `json:"address"`
	// User is the user with whose rights a unix socket is dialled; "": root.
	User string `json:"user,omitempty"`
}

type readyArgs struct {
	Units   []string `json:"units,omitempty"`
	LimitMS int64    `json:"limit_ms,omitempty"`
}

type measureArgs struct {
	Into int64 `json:"into"`
	Out  int64 `json:"out"`
}

// Names of the operations.
const (
	opHello      = "hello"
	opMeasure    = "measure"
	opConfigure  = "configure"
	opReady      = "ready"
	opGrow       = "grow"
	opSync       = "sync"
	opTrim       = "trim"
	opShutdown   = "shutdown"
	opInventory  = "inventory"
	opActivity   = "activity"
	opDial       = "dial"
	opRunStart   = "run.start"
	opRunGet     = "run.get"
	opRunList    = "run.list"
	opRunFollow  = "run.follow"
	opRunOutput  = "run.output"
	opRunInput   = "run.input"
	opRunSignal  = "run.signal"
	opTermOpen   = "terminal.open"
	opTermList   = "terminal.list"
	opTermAttach = "terminal.attach"
	opTermSignal = "terminal.signal"
	opTermClose  = "terminal.close"
	opRead       = "file.read"
	opWrite      = "file.write"
	opStat       = "file.stat"
	opList       = "file.list"
	opMkdir      = "file.mkdir"
	opSymlink    = "file.symlink"
	opRemove     = "file.remove"
	opRename     = "file.rename"
	opWatch      = "file.watch"
)
