package client

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"holt"
)

func collect(text string) (events []string, comments int, err error) {
	err = readEvents(strings.NewReader(text), func(comment bool) {
		if comment {
			comments++
		}
	}, func(name string, data []byte) error {
		events = append(events, fmt.Sprintf("%s=%q", name, data))
		return nil
	})
	return events, comments, err
}

func TestReadEvents(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "[]"},
		{"event: a\ndata: x\n\n", `[a="x"]`},
		{"event:a\r\ndata:x\r\n\r\n", `[a="x"]`},
		{"data: x\n\ndata:  y\n\n", `[="x" =" y"]`},
		{"data: x\ndata: y\n\n", `[="x\ny"]`},
		{": comment\n\nid: 5\nretry: 1\nunknown\nevent: a\ndata: x\n\n", `[a="x"]`},
		{"event: a\n\n", "[]"},
		{"event: a\ndata: cut o", "[]"},
		{"event: a\ndata: x\n", "[]"},
	} {
		got, _, err := collect(c.text)
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%q: %v, %v; want %s", c.text, got, err, c.want)
		}
	}
	if _, comments, _ := collect(": a\n\n:\n\n"); comments != 2 {
		t.Errorf("%d comments, want 2", comments)
	}
	long := "data: " + strings.Repeat("x", 200<<10) + "\n\n"
	if got, _, err := collect(long); err != nil || len(got) != 1 || len(got[0]) != 200<<10+3 {
		t.Errorf("a long line: %d events, %v", len(got), err)
	}
	if _, _, err := collect(strings.Repeat("x", mostEvent+1)); holt.CodeOf(err) != holt.TooMany {
		t.Errorf("an endless line: %v", err)
	}
	many := strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 17)
	if _, _, err := collect(many); holt.CodeOf(err) != holt.TooMany {
		t.Errorf("an endless event: %v", err)
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add([]byte("id: 6\nevent: stdout\ndata: {\"kind\":\"stdout\",\"offset\":0,\"data\":\"aGVsbG8K\"}\n\n"))
	f.Add([]byte(": still here\n\nevent: error\ndata: {\"code\":\"unavailable\"}\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fl := follower{emit: func(holt.RunEvent) error { return nil }}
		last := fl.next
		_ = readEvents(bytes.NewReader(b), func(bool) {}, func(name string, data []byte) error {
			err := fl.event(name, data)
			if fl.next < last {
				t.Fatalf("the offset went back from %d to %d", last, fl.next)
			}
			last = fl.next
			return err
		})
	})
}

func TestEventsOnce(t *testing.T) {
	var got strings.Builder
	f := follower{emit: func(e holt.RunEvent) error {
		fmt.Fprintf(&got, "%s@%d:%s-%d ", e.Kind, e.Offset, e.Data, e.Dropped)
		return nil
	}}
	for _, e := range []string{
		`{"kind":"stdout","offset":0,"data":"YWJj"}`,     // abc
		`{"kind":"stdout","offset":0,"data":"YWJj"}`,     // again
		`{"kind":"stdout","offset":1,"data":"YmNkZQ=="}`, // bcde
		`{"kind":"gap","offset":3,"dropped":6}`,
		`{"kind":"stderr","offset":9,"data":"eA=="}`,
	} {
		if err := f.event("x", []byte(e)); err != nil {
			t.Fatal(err)
		}
	}
	want := "stdout@0:abc-0 stdout@3:de-0 gap@5:-4 stderr@9:x-0 "
	if got.String() != want {
		t.Errorf("got  %q\nwant %q", got.String(), want)
	}
	for _, hostile := range []string{`{`, `{"kind":"stdout","offset":-5,"data":"eA=="}`, `{"kind":"gap","offset":9,"dropped":-1}`, `{"kind":"gap","offset":9223372036854775807,"dropped":5}`} {
		if err := f.event("x", []byte(hostile)); holt.CodeOf(err) != holt.Corrupt {
			t.Errorf("%s: %v", hostile, err)
		}
	}
}
