package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/guest/channel"
)

// Version is the agent's own version, sent in Hello.
const Version = "1.0.0"

const (
	maxStreams     = 1024             // concurrent operations, on both sides
	requestTimeout = 30 * time.Second // for a request to arrive on its stream
)

// ServerOptions configure [Serve].
type ServerOptions struct {
	Control *channel.Port
	// Workspace is the default working directory of runs; "" means /home/agent.
	Workspace string
	// Standing returns the state of the workspace's mount; nil: it is not mounted.
	Standing func() Standing
	// Ending is called when the machine has been asked to shut down; may be nil.
	Ending func()
	// Machine: this process may act for the whole machine: set its clock and host
	// name, power it off. An agent that is a process on a host must not.
	Machine bool
	// Sandbox, in addition to Machine: the machine is a gVisor sandbox, whose host
	// sets its clock, draws its random bytes, and mounts and grows its disk.
	Sandbox bool
	// Cgroup is the directory under the cgroup2 mount for runs; "" means
	// "holt".
	Cgroup string
	Log    *slog.Logger // nil: slog.Default
}

const (
	defaultWorkspace = "/home/agent"
	defaultCgroup    = "holt"
)

// Server is the guest's side of the control channel. See [Serve].
type Server struct {
	opt      ServerOptions
	log      *slog.Logger
	instance string
	bootID   string // of the kernel
	runs     *runTable
	terms    *terminalTable
	sessions sessions
	listened listened
	top      topScan
	syncing  chan struct{} // semaphore: one sync of the workspace at a time
	looking  chan struct{} // semaphore: one listing of the root disk at a time
	streams  chan struct{} // semaphore of operations
	unary    map[string]func(context.Context, json.RawMessage) (any, error)
	streamed map[string]func(context.Context, *serverStream) error
	halted   chan struct{} // closed by a shutdown, which ends this process
	haltOnce sync.Once

	configuring sync.Mutex // held while the identity is changed
	trimming    sync.Mutex
	serving     sync.Mutex // held while services are changed
}

// Serve serves hosts on the control port, one session after the other, until
// ctx ends, a host asks for a shutdown, or the port fails. It closes the port.
// Runs belong to the agent, not to a session; when ctx ends they are not
// touched.
func Serve(ctx context.Context, opt ServerOptions) error {
	s := newServer(opt)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if opt.Machine {
		go s.keepSession(ctx)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.serveControl(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	case <-s.halted:
	}
	cancel()
	opt.Control.Close()
	return <-ended
}

func newServer(opt ServerOptions) *Server {
	opt.Workspace = cmp.Or(opt.Workspace, defaultWorkspace)
	opt.Cgroup = cmp.Or(opt.Cgroup, defaultCgroup)
	opt.Log = cmp.Or(opt.Log, slog.Default())
	if opt.Standing == nil {
		opt.Standing = func() Standing { return Unmounted }
	}
	if opt.Ending == nil {
		opt.Ending = func() {}
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	s := &Server{
		opt:      opt,
		bootID:   strings.TrimSpace(string(boot)),
		log:      opt.Log,
		instance: string(holt.NewRunID())[len("run_"):],
		streams:  make(chan struct{}, maxStreams),
		halted:   make(chan struct{}),
		syncing:  make(chan struct{}, 1),
		looking:  make(chan struct{}, 1),
	}
	groups, reaper := findGroups(opt.Cgroup), new(reaper)
	if opt.Machine {
		groups.limit()
	}
	s.runs = newRunTable(groups, reaper, opt.Workspace, opt.Log)
	s.terms = newTerminalTable(groups, reaper, opt.Workspace, opt.Log)
	s.unary = map[string]func(context.Context, json.RawMessage) (any, error){
		opHello:      s.hello,
		opActivity:   s.activity,
		opConfigure:  s.configure,
		opReady:      s.ready,
		opGrow:       s.grow,
		opSync:       s.sync,
		opTrim:       s.trim,
		opShutdown:   s.shutdown,
		opRunStart:   s.startRun,
		opRunGet:     s.getRun,
		opRunSignal:  s.signalRun,
		opTermOpen:   s.openTerminal,
		opTermSignal: s.signalTerminal,
		opTermClose:  s.closeTerminal,
		opSessionDo:  s.doSession,
		opSvcPut:     s.putService,
		opSvcDo:      s.doService,
		opStat:       statFile,
		opMkdir:      makeDir,
		opSymlink:    makeSymlink,
		opRemove:     removeFile,
		opRename:     renameFile,
	}
	s.streamed = map[string]func(context.Context, *serverStream) error{
		opMeasure:    measure,
		opDial:       dialPort,
		opListen:     s.listen,
		opAccept:     s.acceptListened,
		opSession:    s.runSession,
		opInventory:  s.listInventory,
		opPorts:      s.listPorts,
		opSvcList:    s.listServices,
		opSvcLog:     s.logService,
		opRunList:    s.listRuns,
		opRunFollow:  s.followRun,
		opRunOutput:  s.sendOutput,
		opRunInput:   s.inputRun,
		opTermList:   s.listTerminals,
		opTermAttach: s.attachTerminal,
		opRead:       readFile,
		opWrite:      writeFile,
		opList:       listDir,
		opWatch:      watchFiles,
	}
	return s
}

func (s *Server) serveControl(ctx context.Context) error {
	for {
		conn, err := s.opt.Control.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accept on control port: %w", err)
		}
		s.log.Debug("control session begins")
		s.serveSession(ctx, conn)
	}
}

// serveSession serves one host until it is gone. Operations of an old session
// end by themselves, because their streams are broken.
func (s *Server) serveSession(ctx context.Context, conn net.Conn) {
	mux, err := yamux.Server(newMuxConn(conn), muxConfig())
	if err != nil {
		s.log.Error("open control session", "err", err)
		conn.Close()
		return
	}
	defer mux.Close()
	defer context.AfterFunc(ctx, func() { mux.Close() })()
	for {
		st, err := mux.AcceptStream()
		if err != nil {
			return
		}
		select {
		case s.streams <- struct{}{}:
			go func() {
				defer func() { <-s.streams }()
				s.serveStream(ctx, st)
			}()
		default:
			go refuse(st)
		}
	}
}

func refuse(st *yamux.Stream) {
	st.SetDeadline(time.Now().Add(requestTimeout))
	writeAnswer(st, nil, holt.Errorf(holt.TooMany, "guest agent is busy: %d operations are running", maxStreams))
	st.Close()
}

// serverStream is the stream of an operation that exchanges more than an answer.
type serverStream struct {
	*yamux.Stream
	args     json.RawMessage
	answered bool
}

// agree sends a positive answer; the operation's own bytes follow.
func (s *serverStream) agree(result any) error {
	s.answered = true
	return writeAnswer(s.Stream, result, nil)
}

// untilClosed returns a context, for operations that only send. It ends when
// the host closes the stream or sends unexpected bytes; blocked writes then
// fail.
func (s *serverStream) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		io.ReadFull(s.Stream, make([]byte, 1))
		cancel()
	}()
	context.AfterFunc(ctx, func() { s.SetWriteDeadline(time.Unix(1, 0)) })
	return ctx, cancel
}

func (s *Server) serveStream(ctx context.Context, st *yamux.Stream) {
	defer st.Close()
	var q request
	st.SetReadDeadline(time.Now().Add(requestTimeout))
	if err := readMessage(st, &q); err != nil {
		if holt.CodeOf(err) == holt.Corrupt {
			writeAnswer(st, nil, err)
		}
		return
	}
	st.SetReadDeadline(time.Time{})
	stream := &serverStream{Stream: st, args: q.Args}
	result, err := s.serveRequest(ctx, q, stream)
	if !stream.answered {
		writeAnswer(st, result, err)
	} else if err != nil {
		s.log.Debug("operation ended", "op", q.Op, "err", err)
	}
}

// serveRequest runs one operation. A panic fails only that operation.
func (s *Server) serveRequest(ctx context.Context, q request, stream *serverStream) (result any, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("panic", "op", q.Op, "panic", v, "stack", string(debug.Stack()))
			result, err = nil, holt.Errorf(holt.Internal, "guest agent, %s: internal error", q.Op)
		}
	}()
	if q.V != Protocol {
		return nil, holt.Errorf(holt.Unsupported, "guest agent has protocol version %d, the host has %d", Protocol, q.V).
			WithHint("the computer was started by another version of holt: stop and start it")
	}
	if q.For != "" {
		done, err := nameThread(q.For)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	if handle, ok := s.unary[q.Op]; ok {
		return handle(ctx, q.Args)
	}
	if handle, ok := s.streamed[q.Op]; ok {
		return nil, handle(ctx, stream)
	}
	return nil, holt.Errorf(holt.Unsupported, "guest agent does not support the operation %q", clip(q.Op))
}

// decode decodes an operation's arguments.
func decode[T any](raw json.RawMessage) (T, error) {
	var args T
	if err := json.Unmarshal(raw, &args); err != nil {
		return args, holt.Errorf(holt.InvalidArgument, "malformed arguments: %s", clip(err.Error()))
	}
	return args, nil
}

// clip shortens untrusted text.
func clip(s string) string { return holt.Clip(s, 64) }

func (s *Server) hello(ctx context.Context, _ json.RawMessage) (any, error) {
	var up unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &up)
	host, _ := os.Hostname()
	return Hello{
		Protocol: Protocol, Version: Version, Instance: s.instance,
		BootID: s.bootID, Hostname: host,
		UptimeMS: up.Nano() / 1e6, Now: time.Now(),
		Workspace: s.opt.Standing(), Runs: s.runs.running(),
	}, nil
}

// measure receives the host's chunks, confirms, and sends chunks.
func measure(ctx context.Context, st *serverStream) error {
	args, err := decode[measureArgs](st.args)
	if err != nil {
		return err
	}
	if err := st.agree(nil); err != nil {
		return err
	}
	buf := make([]byte, maxChunk)
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{&chunkReader{r: st}}, buf); err != nil {
		return err
	}
	if err := writeAnswer(st, nil, nil); err != nil {
		return err
	}
	w := newChunkWriter(st, maxChunk)
	if _, err := w.ReadFrom(io.LimitReader(measured{}, args.Out)); err != nil {
		return err
	}
	return w.end()
}
