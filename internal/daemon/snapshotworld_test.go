package daemon_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
)

// world is a program that has much to lose: a counter in its memory and in a file that
// agree, a web server, an open transaction, and a connection to elsewhere. What it is
// asked to end its transaction with is the last row of that, and the first of the next.
const world = `
import http.server, os, socket, sqlite3, sys, threading, time
n, lock = 0, threading.Lock()
db = sqlite3.connect('w.db', isolation_level=None)
db.execute('create table t(x)')
def replace(name, text):
    with open(name + '.new', 'w') as f: f.write(text)
    os.rename(name + '.new', name)
def count():
    global n
    while True:
        with lock:
            n += 1
            replace('count', str(n))
        time.sleep(0.1)
def hear(s):
    try:
        for line in s.makefile(): replace('far', line.strip())
    except OSError: pass
    replace('far', 'cut')
def dial():
    s = socket.create_connection(('10.0.2.2', int(sys.argv[1])))
    replace('far', 'up')
    threading.Thread(target=hear, args=(s,)).start()
def insert(row): db.execute('insert into t values(?)', (row,))
def begin(row):
    db.execute('begin')
    insert(row)
def answer(asked, row=None):
    if asked == 'dial': dial()
    if asked == 'count':
        with lock: return '%d %s' % (n, open('count').read())
    if row:
        insert('end-' + row)
        db.execute(asked)
        begin('begin-' + row)
    return ' '.join(x for x, in sqlite3.connect('w.db').execute('select x from t order by rowid'))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = answer(*self.path[1:].split('/')).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    def log_message(self, *args): pass
begin('first')
threading.Thread(target=count).start()
dial()
http.server.HTTPServer(('127.0.0.1', 8000), Handler).serve_forever()
`

// life is what a computer must have, by all that was asked of it and of those it is a copy of.
type life struct {
	rows  []string          // that its program committed
	open  string            // the row of its open transaction
	log   []string          // lines that tail -f has passed on
	files map[string]string // hashes, by path
}

// copies notes that a computer has begun as another is, or that one is as it once was.
func (v *vm) copies(from, to string) {
	l := *v.lives[from]
	l.rows, l.log, l.files = slices.Clone(l.rows), slices.Clone(l.log), maps.Clone(l.files)
	v.lives[to] = &l
}

// another names what no computer has yet.
func (v *vm) another(computer string) string {
	v.lines++
	return fmt.Sprintf("%s-%d", computer, v.lines)
}

// far is the end outside of all computers' connections.
type far struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func listenFar(t *testing.T) *far {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &far{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range f.conns {
			c.Close()
		}
	})
	return f
}

// say tells all computers a word that are still connected.
func (f *far) say(word string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		fmt.Fprintln(c, word)
	}
}

// populate makes a computer and begins the world in it. The far end of its
// connection is here.
func (v *vm) populate(computer string) {
	v.t.Helper()
	far := listenFar(v.t)
	v.far, v.lives = far, map[string]*life{computer: {open: "first", files: map[string]string{}}}
	if _, err := v.Computers.Create(v.t.Context(), holt.ComputerSpec{Name: computer, MemoryMB: 512, Network: onHost(far.Addr())}, ""); err != nil {
		v.t.Fatal(err)
	}
	if _, err := v.Files.Write(v.t.Context(), computer, "/home/agent/world.py", holt.WriteSpec{}, strings.NewReader(world)); err != nil {
		v.t.Fatal(err)
	}
	port := v.far.Addr().(*net.TCPAddr).Port
	for _, command := range []string{fmt.Sprintf("exec python3 world.py %d > world.log 2>&1", port), "touch log; exec tail -f log > tailed"} {
		if _, err := v.Runs.Start(v.t.Context(), computer, holt.RunSpec{Command: holt.OSString(command)}, ""); err != nil {
			v.t.Fatal(err)
		}
	}
	v.says(computer, "mkdir /root/kept /home/agent/kept")
	v.says(computer, "ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key") // it has no sshd, and so none yet
	v.sit(computer)
	v.until(computer, "cat far world.log 2>/dev/null || true", "up")
	v.until(computer, "exec 3<>/dev/tcp/127.0.0.1/8000 && echo listens || true", "listens")
}

// asks has a computer's web server asked for paths, and returns what it answers.
func (v *vm) asks(computer string, paths ...string) (answers []string) {
	v.t.Helper()
	said := v.says(computer, `for path in `+strings.Join(paths, " ")+`; do
		exec 3<>/dev/tcp/127.0.0.1/8000; printf 'GET /%s HTTP/1.0\r\n\r\n' $path >&3; cat <&3
	done; echo .`)
	r := bufio.NewReader(strings.NewReader(said))
	for _, path := range paths {
		var body []byte
		answer, err := http.ReadResponse(r, nil)
		if err == nil {
			body, err = io.ReadAll(answer.Body)
		}
		if err != nil || answer.StatusCode != http.StatusOK {
			v.t.Fatalf("%s: GET /%s: %v: %s; its log: %s", computer, path, err, said, v.says(computer, "cat world.log"))
		}
		answers = append(answers, string(body))
	}
	return answers
}

// goesOn fails the test unless the counter gets beyond least and grows, and memory
// and workspace always agree about it. It returns how far it is. The counter counts
// ten times a second of its own, which can be few while the host does other work.
func (v *vm) goesOn(computer string, least int) int {
	v.t.Helper()
	end := time.Now().Add(patience)
	for grown := 0; grown < 2; {
		memory, file, _ := strings.Cut(v.asks(computer, "count")[0], " ")
		n, err := strconv.Atoi(memory)
		if err != nil || memory != file || n < least || time.Now().After(end) {
			v.t.Fatalf("%s: memory has %s, the workspace %s, and it was %d", computer, memory, file, least)
		}
		if n > least {
			least, grown = n, grown+1
		}
	}
	return least
}

// whole fails the test unless everything in a computer goes on, from where the counter had least.
// It returns how far that is.
func (v *vm) whole(computer string, least int) int {
	v.t.Helper()
	least = v.goesOn(computer, least)
	v.typed(computer)
	v.tails(computer)
	v.keeps(computer)
	v.transacts(computer, "commit")
	return least
}

// tails: tail -f has passed on all that the log ever had, once.
func (v *vm) tails(computer string) {
	v.t.Helper()
	l, line := v.lives[computer], v.another(computer)
	l.log = append(l.log, line)
	const wait = "until cmp -s log tailed || ((tries++ >= 600)); do sleep 0.1; done; cat tailed"
	if said := v.says(computer, "echo "+line+" >> log; "+wait); said != strings.Join(l.log, "\n") {
		v.t.Errorf("%s: tail -f has passed on %q, not %q", computer, said, l.log)
	}
}

// keeps: all files that a computer has written, on both its disks and as those it is a copy of,
// are there, read from the disks, and no others. It writes another on each, and leaves it
// in memory.
func (v *vm) keeps(computer string) {
	v.t.Helper()
	const look = "sync; (echo 1 > /proc/sys/vm/drop_caches) 2>&-; find /root/kept /home/agent/kept -type f -exec sha256sum {} + | sort -k 2"
	const size = 50_000
	l, name, write := v.lives[computer], v.another(computer), ""
	var want strings.Builder
	for _, path := range slices.Sorted(maps.Keys(l.files)) {
		fmt.Fprintf(&want, "%s  %s\n", l.files[path], path)
	}
	for _, dir := range []string{"/root/kept/", "/home/agent/kept/"} {
		path := dir + name
		write += fmt.Sprintf("; yes %s | head -c %d > %[1]s", path, size)
		l.files[path] = fmt.Sprintf("%x", sha256.Sum256(bytes.Repeat([]byte(path+"\n"), size)[:size]))
	}
	if said := v.says(computer, look+write); said != strings.TrimSpace(want.String()) {
		v.t.Errorf("%s has the files\n%s\nand not\n%s", computer, said, want.String())
	}
}

// transacts has the transaction of a computer's program written to once more and ended, by commit
// or rollback, and the next begun. Nobody else sees what is in it before; thereafter what was
// committed is there, each row once. One that was lost cannot be ended.
func (v *vm) transacts(computer, verb string) {
	v.t.Helper()
	l, name := v.lives[computer], v.another(computer)
	said := v.asks(computer, "rows", verb+"/"+name)
	if said[0] != strings.Join(l.rows, " ") {
		v.t.Errorf("%s: beside its transaction others see %q, not %q", computer, said[0], l.rows)
	}
	if verb == "commit" {
		l.rows = append(l.rows, l.open, "end-"+name)
	}
	l.open = "begin-" + name
	if said[1] != strings.Join(l.rows, " ") {
		v.t.Errorf("%s: after %s there is %q, not %q", computer, verb, said[1], l.rows)
	}
}

// apart: another process sees what was committed, and the transaction outlasts that it looked.
func (v *vm) apart(computer string) {
	v.t.Helper()
	const read = `python3 -c "import sqlite3; print(*(x for x, in sqlite3.connect('w.db').execute('select x from t order by rowid')))"`
	if said, want := v.says(computer, read), strings.Join(v.lives[computer].rows, " "); said != want {
		v.t.Errorf("%s: another process sees %q, not %q", computer, said, want)
	}
	v.transacts(computer, "commit")
}

// cut: the connection of a computer that has gone on from a snapshot has ended by itself within
// 5 s of its own: its far end belongs to another, or is gone. It connects anew.
func (v *vm) cut(computer string) {
	v.t.Helper()
	const wait = `until [ "$(<far)" = cut ] || ((tries++ >= 50)); do sleep 0.1; done; cat far`
	if said := v.says(computer, wait); said != "cut" {
		v.t.Errorf("%s: its connection is %q, not cut", computer, said)
	}
	v.asks(computer, "dial")
	v.linked(computer)
}

// linked: what is said elsewhere arrives in a computer by the connection it has.
func (v *vm) linked(computer string) {
	v.t.Helper()
	word := v.another(computer)
	within(v.t, computer+" to hear what is said elsewhere", func() bool {
		v.far.say(word) // the far end of a new connection may come after it
		return v.says(computer, "cat far") == word
	})
}
