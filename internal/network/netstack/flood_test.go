package netstack

import (
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"holt"
)

// TestFlood: endless connections, datagrams and DNS queries take bounded memory, and the stack works afterwards.
func TestFlood(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	const conns, packets, questions = 10_000, 3000, 3000
	for i := range questions / 2 {
		w.name(fmt.Sprintf("n%d.example", i), "A 93.184.216.34")
	}
	s := w.stack(open, Options{})
	m := w.machine(s)
	going := watchBystanders(t, m, w.machine(w.stack(open, Options{})))
	before := held()
	began := time.Now()
	opened, refused := m.floodStreams(conns)
	took := time.Since(began).Round(time.Millisecond)
	t.Logf("counts: %d connections in %v: %d open, %d refused; the heap has %d MiB, before it had %d; %s", conns, took, len(opened), refused, held(), before, going.end())
	if len(opened) > maxFlows || len(opened) < maxFlows/2 || len(opened)+refused != conns {
		t.Errorf("%d are open, %d were refused", len(opened), refused)
	}
	if grown := held() - before; grown > 200 {
		t.Errorf("they hold %d MiB", grown)
	}
	for _, c := range opened {
		c.Close()
	}
	began = time.Now()
	sent, most := m.floodDatagrams(s, packets)
	t.Logf("counts: %d datagrams of as many flows in %v: at most %d were open; the heap has %d MiB", sent, time.Since(began).Round(time.Millisecond), most, held())
	if most > maxFlows || most < maxFlows/2 {
		t.Errorf("%d flows of datagrams", most)
	}
	began = time.Now()
	answered := m.floodQuestions(questions)
	s.names.mu.Lock()
	known := s.names.n
	s.names.mu.Unlock()
	t.Logf("counts: %d questions in %v: %d answers, %d names are known, %d destinations; the heap has %d MiB", questions, time.Since(began).Round(time.Millisecond), answered, known, len(s.Traffic()), held())
	if known > maxNames || len(s.Traffic()) > maxDestinations || answered < questions/2 {
		t.Errorf("%d answers, %d names, %d destinations", answered, known, len(s.Traffic()))
	}
	if grown := held() - before; grown > 100 {
		t.Errorf("afterwards it holds %d MiB more than before", grown)
	}
	if err := m.echo("tcp", "93.184.216.34:7"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := m.echo("udp", "93.184.216.34:7"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// held returns the memory of heap and stacks, MiB.
func held() int {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int((m.HeapAlloc + m.StackInuse) >> 20)
}

// floodStreams opens connections, and writes much to the first without reading.
func (m *machine) floodStreams(n int) (opened []net.Conn, refused int) {
	var mu sync.Mutex
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			m.in(func() {
				for range n / 8 {
					c, err := (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp", "93.184.216.34:7")
					mu.Lock()
					if err != nil {
						refused++
					} else {
						opened = append(opened, c)
					}
					mu.Unlock()
				}
			})
		})
	}
	work.Wait()
	refused += n % 8
	much := make([]byte, 512<<10)
	for _, c := range opened[:min(256, len(opened))] {
		work.Go(func() {
			c.SetWriteDeadline(time.Now().Add(time.Second))
			c.Write(much)
		})
	}
	work.Wait()
	return opened, refused
}

// floodDatagrams sends datagrams from different ports, as fast as the link accepts. most is the maximum of open flows.
func (m *machine) floodDatagrams(s *Stack, n int) (sent, most int) {
	m.in(func() {
		for sent < n {
			c, err := net.Dial("udp", "93.184.216.34:7")
			if err != nil {
				m.t.Error(err)
				return
			}
			m.t.Cleanup(func() { c.Close() })
			if _, err := c.Write([]byte("flood")); err != nil {
				m.t.Error(err)
				return
			}
			if sent++; sent%100 != 0 {
				continue
			}
			for range 3 { // until it is answered: then what was sent before has arrived or is lost
				c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				if n, _ := c.Read(make([]byte, 16)); n > 0 {
					break
				}
				c.Write([]byte("flood"))
			}
			most = max(most, s.flows.taken(datagrams))
		}
	})
	return sent, most
}

// floodQuestions asks for names, half of which are some.
func (m *machine) floodQuestions(n int) int {
	var answered atomic.Int64
	var work sync.WaitGroup
	for part := range 4 {
		work.Go(func() {
			m.in(func() {
				for i := range n / 4 {
					name := fmt.Sprintf("n%d.example", (part*n/4+i)/2)
					if i%2 == 1 {
						name = strings.Repeat("x", i%40+1) + fmt.Sprint(part, i) + ".nowhere"
					}
					c, err := net.Dial("udp", net.JoinHostPort(Resolver.String(), "53"))
					if err != nil {
						m.t.Error(err)
						return
					}
					q := new(dns.Msg)
					q.SetQuestion(strings.ReplaceAll(name, " ", "-")+".", dns.TypeA)
					if _, _, err := (&dns.Client{Timeout: 2 * time.Second}).ExchangeWithConn(q, &dns.Conn{Conn: c}); err == nil {
						answered.Add(1)
					}
					c.Close()
				}
			})
		})
	}
	work.Wait()
	return int(answered.Load())
}

// TestCounters: many destinations do not hide traffic, and the sums are right.
func TestCounters(t *testing.T) {
	var c counters
	c.opens("busy").sent.Add(1 << 20)
	c.opens("busy").open.Add(-2)
	idle := c.opens("open") // nothing yet
	for i := range 10 * maxDestinations {
		c.refuse(fmt.Sprint("no", i))
	}
	idle.sent.Add(7)
	s := &Stack{count: counters{all: c.all}}
	all, sum := map[string]holt.Traffic{}, int64(0)
	for _, one := range s.Traffic() {
		all[one.Destination] = one
		sum += one.Refused
	}
	if all["busy"].Sent != 1<<20 || all["open"].Sent != 7 || all[""].Refused == 0 || sum != 10*maxDestinations || len(all) > maxDestinations+1 {
		t.Errorf("%d destinations, %d refusals, busy %+v, open %+v, others %+v", len(all), sum, all["busy"], all["open"], all[""])
	}
}
