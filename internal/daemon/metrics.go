package daemon

import (
	"context"
	"strings"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/metric"
	"holt/internal/store/db"
	"holt/internal/store/journal"
)

// meters count events of a daemon. No label has a value that a guest or a caller chooses.
type meters struct {
	registry *metric.Registry
	agent    metric.Histograms
	faults   metric.Counters
	wakes    metric.Histograms
	attached metric.Gauges
	files    metric.Histograms
	written  metric.Counters
	syncs    metric.Histograms
}

func newMeters(r *metric.Registry) meters {
	return meters{
		registry: r,
		agent:    r.Histograms("holt_agent_call_seconds", "Time until a guest agent answered or accepted an operation.", metric.Seconds(), "operation"),
		faults:   r.Counters("holt_agent_call_errors_total", "Operations that a guest agent refused or did not answer.", "operation", "code"),
		wakes:    r.Histograms("holt_computer_wake_seconds", "Time that a client of a stopped or paused computer waited for it.", metric.Seconds(), "from"),
		attached: r.Gauges("holt_terminals_attached", "Clients attached to terminals."),
		files:    r.Histograms("holt_file_request_seconds", "Time that a file system request of a guest took.", metric.Seconds(), "operation"),
		written:  r.Counters("holt_journal_written_bytes_total", "Bytes written to journals of workspaces."),
		syncs:    r.Histograms("holt_journal_sync_seconds", "Time that an fdatasync of a journal took.", metric.Seconds()),
	}
}

// file counts a file system request of a guest.
func (m meters) file(op string, took time.Duration) {
	m.files.Observe(took.Seconds(), strings.ToLower(op))
}

// observer counts what computers do.
func (m meters) observer() computer.Observer {
	if m.registry == nil {
		return computer.Observer{}
	}
	return computer.Observer{
		Agent: func(op string, took time.Duration, err error) {
			m.agent.Observe(took.Seconds(), op)
			if err != nil {
				m.faults.Add(1, op, string(holt.CodeOf(err)))
			}
		},
		Wake:     func(from holt.ComputerState, took time.Duration) { m.wakes.Observe(took.Seconds(), string(from)) },
		Attached: func(n int) { m.attached.Add(float64(n)) },
	}
}

// disk returns the disk of journals, with its writes counted.
func (m meters) disk(d journal.Disk) journal.Disk {
	if m.registry == nil {
		return d
	}
	if d == nil {
		d = journal.OS{}
	}
	return countedDisk{d, m}
}

type countedDisk struct {
	journal.Disk
	m meters
}

func (d countedDisk) OpenFile(name string, create bool) (journal.File, error) {
	f, err := d.Disk.OpenFile(name, create)
	if err != nil {
		return nil, err
	}
	return countedFile{f, d.m}, nil
}

type countedFile struct {
	journal.File
	m meters
}

func (f countedFile) WriteVec(bufs [][]byte, off int64) (int, error) {
	n, err := f.File.WriteVec(bufs, off)
	f.m.written.Add(float64(n))
	return n, err
}

func (f countedFile) Sync() error {
	began := time.Now()
	err := f.File.Sync()
	f.m.syncs.Observe(time.Since(began).Seconds())
	return err
}

// Metrics that are read at each scrape.
var (
	buildInfo      = metric.Desc{Name: "holt_build_info", Help: "The daemon's version and engine.", Kind: metric.Gauge, Labels: []string{"version", "engine"}}
	computerStates = metric.Desc{Name: "holt_computers", Help: "Computers by state.", Kind: metric.Gauge, Labels: []string{"state"}}
	runStates      = metric.Desc{Name: "holt_runs", Help: "Recorded runs by state; old records are deleted.", Kind: metric.Gauge, Labels: []string{"state"}}
	jobStates      = metric.Desc{Name: "holt_jobs", Help: "Recorded jobs by state; old records are deleted.", Kind: metric.Gauge, Labels: []string{"state"}}
	firingStates   = metric.Desc{Name: "holt_schedule_firings", Help: "Recorded firings of schedules by state.", Kind: metric.Gauge, Labels: []string{"state"}}
	netBytes       = metric.Desc{Name: "holt_network_bytes", Help: "Payload that the existing computers have sent and received.", Kind: metric.Gauge, Labels: []string{"direction"}}
	memoryBytes    = metric.Desc{Name: "holt_machines_resident_bytes", Help: "Memory of the host that machines and their networks use, without shared memory.", Kind: metric.Gauge}
	archiveStored  = metric.Desc{Name: "holt_archive_stored_bytes", Help: "Size of the packs of the archive.", Kind: metric.Gauge}
	archiveGarbage = metric.Desc{Name: "holt_archive_garbage_bytes", Help: "Bytes in packs of the archive that nothing refers to.", Kind: metric.Gauge}
	archiveWaiting = metric.Desc{Name: "holt_archive_waiting_bytes", Help: "Bytes in journals of open workspaces that are not packed yet.", Kind: metric.Gauge}
	cacheBytes     = metric.Desc{Name: "holt_chunk_cache_bytes", Help: "Size of the local cache of the archive.", Kind: metric.Gauge}
	cacheLooks     = metric.Desc{Name: "holt_chunk_cache_requests_total", Help: "Requests to the local cache of the archive, by result.", Kind: metric.Counter, Labels: []string{"result"}}
	readyNow       = metric.Desc{Name: "holt_ready", Help: "1 if the daemon can take work, see /readyz.", Kind: metric.Gauge}
)

// collect adds the metrics that are read at each scrape.
func (d *Daemon) collect(r *metric.Registry) {
	r.Process(d.started)
	r.Collect(func() []metric.Sample {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
		defer cancel()
		out := []metric.Sample{{Desc: &buildInfo, Values: []string{d.cfg.Version, d.engines.Default.Name()}, Value: 1}}
		ready := 0.0
		if d.Ready(ctx) == nil {
			ready = 1
		}
		out = append(out, metric.Sample{Desc: &readyNow, Value: ready})
		out = append(out, d.countRows(ctx)...)
		out = append(out, d.weighMachines(ctx)...)
		return append(out, d.lookAtArchive(ctx)...)
	})
}

// countRows counts the records of the control database by state. Records that cannot be read are left out.
func (d *Daemon) countRows(ctx context.Context) (out []metric.Sample) {
	for _, q := range []struct {
		desc *metric.Desc
		sql  string
	}{
		{&computerStates, `SELECT state, count(*) FROM computer GROUP BY 1`},
		{&runStates, `SELECT state, count(*) FROM run GROUP BY 1`},
		{&jobStates, `SELECT record ->> 'state', count(*) FROM job WHERE NOT deleted GROUP BY 1`},
		{&firingStates, `SELECT state, count(*) FROM firing GROUP BY 1`},
	} {
		err := d.db.Read(ctx, func(tx *db.Tx) error {
			return tx.Query(q.sql, nil, func(r *db.Row) error {
				out = append(out, metric.Sample{Desc: q.desc, Values: []string{r.Text(0)}, Value: float64(r.Int64(1))})
				return nil
			})
		})
		if err != nil {
			d.log.WarnContext(ctx, "count records for metrics", "metric", q.desc.Name, "err", err)
		}
	}
	return out
}

// weighMachines adds up what machines use of the host.
func (d *Daemon) weighMachines(ctx context.Context) []metric.Sample {
	all, err := d.computers.AllStats(ctx)
	if err != nil {
		d.log.WarnContext(ctx, "measure machines for metrics", "err", err)
		return nil
	}
	var own, sent, received int64
	for _, one := range all {
		own += one.OwnBytes
		sent += one.Sent
		received += one.Received
	}
	return []metric.Sample{
		{Desc: &memoryBytes, Value: float64(own)},
		{Desc: &netBytes, Values: []string{"sent"}, Value: float64(sent)},
		{Desc: &netBytes, Values: []string{"received"}, Value: float64(received)},
	}
}

func (d *Daemon) lookAtArchive(ctx context.Context) []metric.Sample {
	a, err := d.archive.Get(ctx)
	if err != nil {
		d.log.WarnContext(ctx, "measure the archive for metrics", "err", err)
		return nil
	}
	out := []metric.Sample{
		{Desc: &archiveStored, Value: float64(a.Stored)},
		{Desc: &archiveGarbage, Value: float64(a.Garbage)},
		{Desc: &archiveWaiting, Value: float64(a.Waiting)},
	}
	if hits, misses, ok := d.archive.CacheRequests(); ok {
		out = append(out, metric.Sample{Desc: &cacheBytes, Value: float64(a.Cached)},
			metric.Sample{Desc: &cacheLooks, Values: []string{"hit"}, Value: float64(hits)},
			metric.Sample{Desc: &cacheLooks, Values: []string{"miss"}, Value: float64(misses)})
	}
	return out
}
