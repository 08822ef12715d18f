package access

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holt"
)

func TestHold(t *testing.T) {
	tokens, _ := open(t)
	token, _ := create(t, tokens, "held", 0)
	other, _ := create(t, tokens, "other", 0)
	revoked, done := tokens.Hold(t.Context(), token)
	stays, doneOther := tokens.Hold(t.Context(), other)
	if err := tokens.Delete(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	<-revoked.Done()
	if err := context.Cause(revoked); holt.CodeOf(err) != holt.Unauthenticated {
		t.Error(err)
	}
	if err := stays.Err(); err != nil {
		t.Error("another token's stream ended:", err)
	}
	late, doneLate := tokens.Hold(t.Context(), token)
	<-late.Done() // it was revoked before it was held
	brief, _ := create(t, tokens, "brief", time.Millisecond)
	expired, doneBrief := tokens.Hold(t.Context(), brief)
	<-expired.Done()
	if err := context.Cause(expired); holt.CodeOf(err) != holt.Unauthenticated {
		t.Error(err)
	}
	for _, end := range []context.CancelFunc{doneOther, done, doneLate, doneBrief} {
		end()
	}
	if len(tokens.open) != 0 {
		t.Error("streams that ended are kept:", tokens.open)
	}
}

// TestHoldWhileHostIsSuspended: the streams of a token end soon after it expires by the wall clock, although timers do
// not advance while the host is suspended.
func TestHoldWhileHostIsSuspended(t *testing.T) {
	tokens, _ := open(t)
	token, _ := create(t, tokens, "brief", time.Hour)
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		tokens.now = func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
		end := tokens.now().Add(time.Hour)
		token.ExpiresAt = &end
		held, done := tokens.Hold(t.Context(), token)
		defer done()
		time.Sleep(30*time.Minute + time.Second)
		synctest.Wait()
		if err := held.Err(); err != nil {
			t.Fatal("before its time:", err)
		}
		slept.Store(int64(8 * time.Hour))
		time.Sleep(checkEvery)
		synctest.Wait()
		if err := context.Cause(held); holt.CodeOf(err) != holt.Unauthenticated {
			t.Error("after its time:", err)
		}
	})
}
