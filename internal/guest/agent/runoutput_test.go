package agent

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/yamux"

	"holt"
)

// TestRunOutput: the end of a run's output is available during the run and
// afterwards, masked; the rest is one gap.
func TestRunOutput(t *testing.T) {
	c := startGuest(t).client(t)
	take := func(id holt.RunID, last int, want ...holt.RunEvent) RunOutput {
		t.Helper()
		out, err := c.RunOutput(t.Context(), id, last)
		if diff := cmp.Diff(want, out.Events); err != nil || diff != "" || out.Run.ID != id {
			t.Errorf("the last %d: %+v %v\n%s", last, out.Run, err, diff)
		}
		return out
	}
	at := func(kind holt.RunEventKind, offset int64, data string) holt.RunEvent {
		return holt.RunEvent{Kind: kind, Offset: offset, Data: []byte(data)}
	}
	r := runToEnd(t, c, holt.RunSpec{Command: "echo out; sleep 0.2; echo err $KEY >&2; exit 3", Secrets: holt.Secrets{"KEY": "correct-horse"}})
	out := take(r.ID, 1<<20, at(holt.RunStdout, 0, "out\n"), at(holt.RunStderr, 4, "err ***\n"))
	if out.End != 12 || out.Run.State != holt.RunExited || out.Run.ExitCode != 3 {
		t.Errorf("%+v", out)
	}
	take(r.ID, eventHeader+4, holt.RunEvent{Kind: holt.RunGap, Dropped: 8}, at(holt.RunStderr, 8, "***\n"))
	take(r.ID, eventHeader, holt.RunEvent{Kind: holt.RunGap, Dropped: 12})
	r = runToEnd(t, c, holt.RunSpec{Command: "true"})
	take(r.ID, 1<<20)

	id := holt.NewRunID()
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: "echo begun; exec sleep 1000"}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); out.Run.ID != id || out.End == 0; time.Sleep(time.Millisecond) {
		var err error
		if out, err = c.RunOutput(t.Context(), id, 1<<20); err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v %v", out, err)
		}
	}
	if out = take(id, 1<<20, at(holt.RunStdout, 0, "begun\n")); out.Run.State != holt.RunRunning {
		t.Errorf("%+v", out)
	}
	_, err := c.RunOutput(t.Context(), holt.NewRunID(), 1<<20)
	wantCode(t, "no run", err, holt.NotFound)
}

// A guest that sends more output than requested is Corrupt.
func TestHostileOutput(t *testing.T) {
	c := hostile(t, eachStream(func(st *yamux.Stream) {
		var q request
		readMessage(st, &q)
		writeAnswer(st, nil, nil)
		for at := int64(0); ; at++ {
			if _, err := st.Write(appendEvent(nil, eventStdout, at, []byte("x"))); err != nil {
				return
			}
		}
	}))
	_, err := c.RunOutput(t.Context(), holt.NewRunID(), 1<<10)
	wantCode(t, "more than the last KiB", err, holt.Corrupt)
}

// TestOutputFile: output survives encoding and decoding; damaged or truncated files are Corrupt.
func TestOutputFile(t *testing.T) {
	want := []holt.RunEvent{
		{Kind: holt.RunGap, Dropped: 1 << 40},
		{Kind: holt.RunStdout, Offset: 1 << 40, Data: []byte("out\n")},
		{Kind: holt.RunStderr, Offset: 1<<40 + 4, Data: bytes.Repeat([]byte("x"), maxChunk)},
	}
	b := EncodeOutput(want)
	if got, err := DecodeOutput(b); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v %s", err, cmp.Diff(want, got))
	}
	for _, i := range []int{0, len(outputMagic), outputHeader, outputHeader + 8, len(b) - 1} {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		_, err := DecodeOutput(bad)
		wantCode(t, "damaged", err, holt.Corrupt)
		_, err = DecodeOutput(b[:i])
		wantCode(t, "cut off", err, holt.Corrupt)
	}
	for _, events := range [][]holt.RunEvent{
		{{Kind: holt.RunStdout, Offset: 1, Data: []byte("x")}},
		{{Kind: holt.RunGap}},
		{{Kind: holt.RunGap, Dropped: -1}},
	} {
		_, err := DecodeOutput(EncodeOutput(events))
		wantCode(t, "no output", err, holt.Corrupt)
	}
}

// FuzzOutputFile: decoding returns only what is in the file, in bounded memory.
func FuzzOutputFile(f *testing.F) {
	f.Add(EncodeOutput([]holt.RunEvent{{Kind: holt.RunGap, Dropped: 5}, {Kind: holt.RunStderr, Offset: 5, Data: []byte("err")}}))
	f.Add(appendEvent(nil, eventStdout, 0, []byte("out")))
	f.Add(appendEvent(nil, eventExit, 0, []byte(`{"state":"exited"}`)))
	f.Add(appendEvent(nil, eventError, 0, []byte(`{"code":"not_found"}`)))
	f.Fuzz(func(t *testing.T, b []byte) {
		DecodeOutput(b)
		events, err := decodeEvents(b)
		if err != nil {
			wantCode(t, "nonsense", err, holt.Corrupt)
			return
		}
		file := EncodeOutput(events)
		if !bytes.Equal(file[outputHeader:], b) {
			t.Fatalf("%d bytes became %d", len(b), len(file)-outputHeader)
		}
		if again, err := DecodeOutput(file); err != nil || !cmp.Equal(again, events) {
			t.Fatal(err)
		}
	})
}
