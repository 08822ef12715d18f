package main

import "testing"

func TestReplace(t *testing.T) {
	const document = "prose\n<!-- bench: host -->\nold\n<!-- end of host -->\nmore\n<!-- bench: engine -->\n<!-- end of engine -->\n"
	got, err := replace([]byte(document), "host", []byte("new\n"))
	if want := "prose\n<!-- bench: host -->\nnew\n<!-- end of host -->\nmore\n<!-- bench: engine -->\n<!-- end of engine -->\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"machine", "end of host"} {
		if got, err := replace([]byte(document), bad, nil); err == nil {
			t.Errorf("%s was put somewhere: %q", bad, got)
		}
	}
}
