package agent

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"holt"
)

// ReadFile copies up to n bytes (negative: all) from offset of a file to w and
// returns how many. An error of w is returned as it is.
func (c *Client) ReadFile(ctx context.Context, path string, offset, n int64, w io.Writer) (int64, error) {
	s, err := c.open(ctx, opRead, fileArgs{Path: holt.OSString(path), Offset: offset, Length: n}, nil)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	in := io.Reader(&chunkReader{r: s})
	if n >= 0 {
		in = &atMost{in, n}
	}
	got, err := io.CopyBuffer(ownWriter{w}, in, make([]byte, maxChunk))
	if own, ok := own(err); ok {
		return got, own
	}
	if err == nil {
		err = readAnswer(s, nil)
	}
	return got, describe(ctx, opRead, err)
}

// atMost refuses what a guest sends beyond what it was asked for.
type atMost struct {
	r    io.Reader
	left int64
}

func (m *atMost) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if m.left -= int64(n); m.left < 0 {
		return 0, holt.Errorf(holt.Corrupt, "guest sends more of a file than it was asked for")
	}
	return n, err
}

type ownWriter struct{ io.Writer }

func (w ownWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = stopped{err}
	}
	return n, err
}

// WriteFile gives a file the content of r once all of it has arrived; an error of r is returned as it is, and the file
// is left as it was. An existing file keeps its inode, owner, mode and attributes, as far as spec does not name others.
func (c *Client) WriteFile(ctx context.Context, path string, spec holt.WriteSpec, r io.Reader) error {
	args := fileArgs{Path: holt.OSString(path), Mode: spec.Mode, NewMode: spec.ModeOfNew(), User: spec.User, Beneath: beneath(ctx)}
	s, err := c.open(ctx, opWrite, args, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	answered := make(chan error, 1)
	go func() {
		answered <- readAnswer(s, nil)
		s.SetWriteDeadline(time.Unix(1, 0)) // the guest reads no more
	}()
	out := newChunkWriter(s, maxChunk)
	_, err = out.ReadFrom(ownReader{r})
	if own, ok := own(err); ok {
		return own // the stream ends without an end, so the guest gives up
	}
	if err == nil {
		out.end() // if it fails, the answer says why
	}
	return describe(ctx, opWrite, <-answered)
}

type ownReader struct{ io.Reader }

func (r ownReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = stopped{err}
	}
	return n, err
}

// beneath is the directory that ctx's calls cannot leave; see [holt.Beneath]. For a guest it is a path of its own.
func beneath(ctx context.Context) holt.OSString { return holt.OSString(holt.BeneathOf(ctx)) }

// Stat describes a file; it does not follow a symlink at the end of path.
func (c *Client) Stat(ctx context.Context, path string) (holt.FileInfo, error) {
	var info holt.FileInfo
	if err := c.call(ctx, opStat, fileArgs{Path: holt.OSString(path), Beneath: beneath(ctx)}, &info); err != nil {
		return holt.FileInfo{}, err
	}
	return vetFile(info, path)
}

// mostListBytes bounds one listing on its way from a guest.
const mostListBytes = 256 << 20

// List calls entry for at most so many entries of a directory, in the order
// that the directory has them, from an offset on (0: the first). After is the
// offset behind an entry: what is there all the while is seen once, if the file
// system keeps its offsets, as those of Linux that hold files do. Each
// name is one name, never a path. An error of entry ends it and is returned.
func (c *Client) List(ctx context.Context, path string, offset int64, most int, entry func(info holt.FileInfo, after int64) error) error {
	s, err := c.open(ctx, opList, fileArgs{Path: holt.OSString(path), Offset: offset, Length: int64(most)}, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	entries := 0
	err = readList(s, mostListBytes, func(e listed) error {
		if entries++; entries > most {
			return holt.Errorf(holt.Corrupt, "guest lists more of %s than was asked for", path)
		}
		info, err := vetEntry(e.FileInfo, path)
		if err != nil {
			return err
		}
		return entry(info, e.After)
	})
	if own, ok := own(err); ok {
		return own
	}
	return describe(ctx, opList, err)
}

// Mkdir makes a directory, owned by user ("": as the directory that it is in); with parents it also makes
// missing parents and is content with a directory that is there.
func (c *Client) Mkdir(ctx context.Context, path string, mode uint32, user string, parents bool) error {
	return c.call(ctx, opMkdir, fileArgs{Path: holt.OSString(path), Mode: mode, User: user, Recursive: parents, Beneath: beneath(ctx)}, nil)
}

// Symlink makes a symbolic link, owned by user ("": as the directory that it is in). A file or link that
// stands at path is replaced as one step.
func (c *Client) Symlink(ctx context.Context, path, target, user string) error {
	return c.call(ctx, opSymlink, fileArgs{Path: holt.OSString(path), To: holt.OSString(target), User: user, Beneath: beneath(ctx)}, nil)
}

// Remove removes a file or an empty directory; with recursive a whole tree, and
// what is not there is no error.
func (c *Client) Remove(ctx context.Context, path string, recursive bool) error {
	return c.call(ctx, opRemove, fileArgs{Path: holt.OSString(path), Recursive: recursive, Beneath: beneath(ctx)}, nil)
}

// Rename renames a file, replacing what is there.
func (c *Client) Rename(ctx context.Context, from, to string) error {
	return c.call(ctx, opRename, fileArgs{Path: holt.OSString(from), To: holt.OSString(to), Beneath: beneath(ctx)}, nil)
}

// Watch calls event for each change under path until ctx ends, which it returns
// as Timeout. ready, if not nil, is called when nothing that happens from then
// on is missed. Recursive watches follow new directories, up to 8,192 in all.
// An error of event ends it and is returned.
func (c *Client) Watch(ctx context.Context, path string, recursive bool, ready func(), event func(FileEvent) error) error {
	s, err := c.open(ctx, opWatch, fileArgs{Path: holt.OSString(path), Recursive: recursive}, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if ready != nil {
		ready()
	}
	err = readItems(s, event)
	if own, ok := own(err); ok {
		return own
	}
	if err == nil { // the guest has nothing more to watch
		return holt.Errorf(holt.NotFound, "watch %s: it is gone", path)
	}
	return describe(ctx, opWatch, err)
}

// Measure moves bytes each way through the channel and times them. A direction
// with no bytes is not measured.
func (c *Client) Measure(ctx context.Context, into, out int64) (Throughput, error) {
	var t Throughput
	s, err := c.open(ctx, opMeasure, measureArgs{Into: into, Out: out}, nil)
	if err != nil {
		return t, err
	}
	defer s.Close()
	start := time.Now()
	w := newChunkWriter(s, maxChunk)
	if _, err = w.ReadFrom(io.LimitReader(measured{}, into)); err == nil {
		err = w.end()
	}
	if err == nil {
		err = readAnswer(s, nil)
	}
	t.IntoGuest = rate(into, time.Since(start))
	if err == nil {
		start = time.Now()
		_, err = io.CopyBuffer(io.Discard, struct{ io.Reader }{&chunkReader{r: s}}, make([]byte, maxChunk))
		t.OutOfGuest = rate(out, time.Since(start))
	}
	return t, describe(ctx, opMeasure, err)
}

func rate(n int64, d time.Duration) float64 { return float64(n) / 1e6 / max(d.Seconds(), 1e-9) }

// measured are bytes that cross as they are; zeros would not.
type measured struct{}

func (measured) Read(p []byte) (int, error) {
	p[0] = 'x'
	return len(p), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// DialPort connects to an address in the guest: network "tcp" or "unix". The host
// localhost is wherever something listens at that port in the guest. The connection has
// CloseWrite, and outlives ctx. NotFound: nothing listens there.
func (c *Client) DialPort(ctx context.Context, network, address string) (net.Conn, error) {
	return c.DialPortAs(ctx, network, address, "")
}

// DialPortAs is DialPort with the rights of a Linux user to a unix socket; "": root's. Forbidden: it has none.
func (c *Client) DialPortAs(ctx context.Context, network, address, user string) (net.Conn, error) {
	return c.connect(ctx, opDial, dialArgs{Network: network, Address: address, User: user})
}

// connect opens a stream that carries a connection and outlives ctx.
func (c *Client) connect(ctx context.Context, op string, args any) (net.Conn, error) {
	s, err := c.open(ctx, op, args, nil)
	if err != nil {
		return nil, err
	}
	if !s.stop() { // giveUp has come, or comes
		s.Close()
		return nil, describe(ctx, op, ctx.Err())
	}
	return newPortConn(s, smallChunk), nil
}

// lingerFor is how long a connection whose end was sent is kept for the guest
// to take in what came before: a stream that was closed is soon cut off.
const lingerFor = 30 * time.Second

// portConn carries a dialled connection over a stream as chunks, so that the
// end of one direction (a chunk of no bytes) is told from a broken connection.
type portConn struct {
	net.Conn // the stream

	reading sync.Mutex // held by Read
	in      *chunkReader
	closed  bool

	mu    sync.Mutex
	out   *chunkWriter
	ended bool

	closing sync.Once
}

// newPortConn makes chunks of up to so many bytes.
func newPortConn(stream net.Conn, chunk int) *portConn {
	return &portConn{Conn: stream, in: &chunkReader{r: stream}, out: newChunkWriter(stream, chunk)}
}

func (p *portConn) Read(b []byte) (int, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	if p.closed {
		return 0, net.ErrClosed
	}
	return p.in.Read(b)
}

func (p *portConn) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return 0, net.ErrClosed
	}
	return p.out.Write(b)
}

// CloseWrite ends what this side sends; reading goes on.
func (p *portConn) CloseWrite() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	p.ended = true
	return p.out.end()
}

// Close ends the connection. The far end still gets what was written if
// CloseWrite came before; otherwise it learns that the connection broke.
func (p *portConn) Close() (err error) {
	p.closing.Do(func() {
		if !p.mu.TryLock() { // by one who writes to a port that takes nothing
			p.SetWriteDeadline(time.Unix(1, 0))
			p.mu.Lock()
		}
		ended := p.ended
		p.ended = true
		p.mu.Unlock()
		if !ended {
			err = p.Conn.Close()
			return
		}
		p.SetReadDeadline(time.Unix(1, 0))
		go func() {
			p.reading.Lock() // whoever read has returned, and nobody will again
			p.closed = true
			p.reading.Unlock()
			p.SetReadDeadline(time.Now().Add(lingerFor))
			io.Copy(io.Discard, p.Conn)
			p.Conn.Close()
		}()
	})
	return err
}
