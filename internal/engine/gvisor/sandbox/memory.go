package sandbox

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
)

const (
	memoryLook  = 20 * time.Millisecond  // between looks at the guest's memory
	memoryFreed = 200 * time.Millisecond // for a killed process's memory to be freed
	mostKills   = 256                    // that are remembered
	spared      = -1000                  // of oom_score_adj: never killed
)

// memoryWatch is the guest's out-of-memory killer, which gVisor lacks: without
// it the host would kill the whole sandbox. Memory is that of programs, the
// guest's tmpfs and its page cache. The host's limit for the sandbox is higher
// (see the engine), which allows for what a program takes between two looks.
type memoryWatch struct {
	limit uint64 // bytes; 0: none

	mu    sync.Mutex
	kills []string // records as in the log of Linux's kernel, the newest last
}

// watch kills what takes too much of a kernel's memory.
func (w *memoryWatch) watch(k *kernel.Kernel) {
	for evicted := false; ; time.Sleep(memoryLook) {
		used, err := k.MemoryFile().TotalUsage()
		switch {
		case err != nil || w.limit == 0 || used <= w.limit:
			evicted = false
		case !evicted: // first its page cache
			k.MemoryFile().StartEvictions()
			evicted = true
		case w.kill(k):
			evicted = false
			time.Sleep(memoryFreed)
		}
	}
}

// kill kills the process with most memory, as Linux chooses it (oom_badness in
// mm/oom_kill.c). It returns false if there is none.
func (w *memoryWatch) kill(k *kernel.Kernel) bool {
	var victim *kernel.ThreadGroup
	most := int64(0)
	for _, group := range k.RootPIDNamespace().ThreadGroups() {
		leader := group.Leader()
		if leader == nil || group == k.GlobalInit() || leader.OOMScoreAdj() == spared {
			continue
		}
		var memory *mm.MemoryManager
		leader.WithMuLocked(func(t *kernel.Task) { memory = t.MemoryManager() })
		if memory == nil {
			continue // it has ended
		}
		if score := int64(memory.ResidentSetSize()) + int64(leader.OOMScoreAdj())*int64(w.limit)/1000; score > most {
			victim, most = group, score
		}
	}
	if victim == nil {
		return false
	}
	leader := victim.Leader()
	name := strings.Map(func(r rune) rune {
		if r < ' ' {
			return '?'
		}
		return r
	}, leader.Name())
	record := fmt.Sprintf("6,0,0,-;oom-kill:constraint=CONSTRAINT_NONE,task_memcg=%s,task=%s,pid=%d\n",
		leader.GetCgroup2Entry(rootNamespace(leader)).Path, name, k.RootPIDNamespace().IDOfThreadGroup(victim))
	if victim.SendSignal(kernel.SignalInfoPriv(linux.SIGKILL)) != nil {
		return false
	}
	w.mu.Lock()
	w.kills = append(w.kills[max(0, len(w.kills)-mostKills+1):], record)
	w.mu.Unlock()
	return true
}

// log returns the newest records, at most size bytes.
func (w *memoryWatch) log(size int) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := len(w.kills)
	for ; from > 0 && len(w.kills[from-1]) <= size; from-- {
		size -= len(w.kills[from-1])
	}
	return []byte(strings.Join(w.kills[from:], ""))
}

// memoryLimit returns the value of boot's flag --total-memory, 0 if there is none.
func memoryLimit(args []string) (limit uint64) {
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--total-memory="); ok {
			limit, _ = strconv.ParseUint(value, 10, 64)
		}
	}
	return limit
}
