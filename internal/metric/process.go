package metric

import (
	"bytes"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"syscall"
	"time"
)

// Metrics of the process; the names are those of the official client.
var (
	goInfo       = Desc{"go_info", "The Go version that this program was built with.", Gauge, []string{"version"}}
	goroutines   = Desc{"go_goroutines", "Goroutines that exist.", Gauge, nil}
	threads      = Desc{"go_threads", "Operating system threads of this process.", Gauge, nil}
	heapLive     = Desc{"go_memstats_heap_alloc_bytes", "Bytes of the heap that are in use or not swept yet.", Gauge, nil}
	heapSys      = Desc{"go_memstats_sys_bytes", "Bytes that the Go runtime has from the system.", Gauge, nil}
	gcCycles     = Desc{"go_gc_cycles_total", "Garbage collections that have ended.", Counter, nil}
	cpuSeconds   = Desc{"process_cpu_seconds_total", "Processor time of this process, in user and kernel mode.", Counter, nil}
	resident     = Desc{"process_resident_memory_bytes", "Memory of this process that is in RAM.", Gauge, nil}
	openFiles    = Desc{"process_open_fds", "File descriptors that are open.", Gauge, nil}
	mostFiles    = Desc{"process_max_fds", "File descriptors that may be open.", Gauge, nil}
	startSeconds = Desc{"process_start_time_seconds", "When this process began, seconds since 1970.", Gauge, nil}
)

// Process collects metrics of the Go runtime and of the kernel about this process; began is its start time.
// Metrics that cannot be read are left out.
func (r *Registry) Process(began time.Time) {
	r.Collect(func() []Sample {
		read := []metrics.Sample{
			{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
		}
		metrics.Read(read)
		out := []Sample{
			{&goInfo, []string{runtime.Version()}, 1},
			{&goroutines, nil, float64(runtime.NumGoroutine())},
			{&heapLive, nil, float64(read[0].Value.Uint64())},
			{&heapSys, nil, float64(read[1].Value.Uint64())},
			{&gcCycles, nil, float64(read[2].Value.Uint64())},
			{&startSeconds, nil, float64(began.UnixNano()) / 1e9},
		}
		var used syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
			out = append(out, Sample{&cpuSeconds, nil, time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()})
		}
		var limit syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
			out = append(out, Sample{&mostFiles, nil, float64(limit.Cur)})
		}
		if list, err := os.ReadDir("/proc/self/fd"); err == nil {
			out = append(out, Sample{&openFiles, nil, float64(len(list))})
		}
		if list, err := os.ReadDir("/proc/self/task"); err == nil {
			out = append(out, Sample{&threads, nil, float64(len(list))})
		}
		if text, err := os.ReadFile("/proc/self/statm"); err == nil {
			if fields := bytes.Fields(text); len(fields) > 1 {
				pages, _ := strconv.ParseFloat(string(fields[1]), 64)
				out = append(out, Sample{&resident, nil, pages * float64(os.Getpagesize())})
			}
		}
		return out
	})
}
