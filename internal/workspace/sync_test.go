package workspace

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSyncedUnasked checks that a write becomes durable though nobody syncs, also while the index cannot be written.
func TestSyncedUnasked(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var slow atomic.Bool
	f := newFixture(t, Options{Fail: func(point string) error {
		if point == "flush.commit" && slow.Load() {
			once.Do(func() { close(entered) })
			<-release
		}
		return nil
	}})
	slow.Store(true)
	f.put("a", "x") // begins a flush
	<-entered
	f.put("b", "y") // while it lasts
	end := f.w.Stat().JournalEnd
	for began := time.Now(); f.w.Stat().JournalSynced < end; time.Sleep(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Error("a write was not synced")
			break
		}
	}
	close(release)
}
