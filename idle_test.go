package holt_test

import (
	"encoding/json"
	"testing"
	"time"

	"holt"
)

// TestIdleTimeout: as text and in JSON it is what was given; null is never, and nothing is the default.
func TestIdleTimeout(t *testing.T) {
	for text, want := range map[string]holt.IdleTimeout{
		`"15m"`: holt.DefaultIdleTimeout, `"1h30m"`: holt.IdleTimeout(90 * time.Minute), `"2h"`: holt.IdleTimeout(2 * time.Hour), `"1h0m30s"`: holt.IdleTimeout(time.Hour + 30*time.Second),
		`"10m"`: holt.IdleTimeout(10 * time.Minute), `"1s"`: holt.IdleTimeout(time.Second), `null`: holt.NeverIdle, `""`: 0,
	} {
		var got struct{ T holt.IdleTimeout }
		if err := json.Unmarshal([]byte(`{"T":`+text+`}`), &got); err != nil || got.T != want {
			t.Errorf("%s is %v, %v", text, got.T, err)
		}
		if back, err := json.Marshal(want); err != nil || string(back) != text {
			t.Errorf("%v is %s, %v", want, back, err)
		}
	}
	for _, bad := range []string{"0", "0s", "-5m", "1ms", "soon", "9000h", "15"} {
		if got, err := holt.ParseIdleTimeout(bad); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%q is %v, %v", bad, got, err)
		}
	}
	var left struct {
		T holt.IdleTimeout `json:"t,omitzero"`
	}
	if b, _ := json.Marshal(left); string(b) != "{}" {
		t.Errorf("none is %s", b)
	}
}
