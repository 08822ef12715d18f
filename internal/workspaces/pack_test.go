package workspaces

import (
	"bytes"
	"testing"
	"time"

	"holt"
	"holt/internal/workspace"
)

// TestPackClosed: a closed workspace that has something to pack is packed, once.
// One that has nothing to pack is not opened.
func TestPackClosed(t *testing.T) {
	w := openStore(t, time.Hour)
	base := w.open.base
	w.open.base.SegmentSize, w.open.base.KeepSegments = 128<<10, -1 // nothing is packed
	id, quiet := holt.NewWorkspaceID(), holt.NewWorkspaceID()
	for id, name := range map[holt.WorkspaceID]string{id: "left", quiet: "quiet"} {
		if err := (ForComputers{w}).Make(t.Context(), id, name, holt.Quota{}); err != nil {
			t.Fatal(err)
		}
	}
	shut := func() {
		t.Helper()
		for _, e := range w.open.entries {
			if err := w.open.shut(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	ws, release, err := w.View(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("a line of many\n"), 100_000)
	a, err := ws.Tree().Create(workspace.Caller{}, workspace.Root, "f", 0o644)
	for off := 0; err == nil && off < len(content); off += 50_000 {
		_, err = ws.Tree().Write(workspace.Caller{}, a.Ino, int64(off), content[off:off+50_000])
	}
	if err == nil {
		err = ws.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	release()
	shut()
	unpacked := func() (ids []holt.WorkspaceID) {
		t.Helper()
		rows, err := w.table.rows(t.Context(), `WHERE unpacked`)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			ids = append(ids, r.id)
		}
		return ids
	}
	if got := unpacked(); len(got) != 1 || got[0] != id {
		t.Fatalf("recorded as not packed: %v, want %s", got, id)
	}
	w.open.base = base
	w.open.base.SegmentSize, w.open.base.KeepSegments = 128<<10, 1
	w.packRound(t.Context())
	if u, err := w.open.base.Archive.SpaceUsage(t.Context(), string(id)); err != nil || u.Bytes < int64(len(content))/2 {
		t.Errorf("packed: %+v %v", u, err)
	}
	for _, id := range []holt.WorkspaceID{id, quiet} {
		if _, open := w.open.figures(id); open {
			t.Errorf("%s stays open", id)
		}
	}
	if got := unpacked(); len(got) != 0 {
		t.Errorf("still recorded as not packed: %v", got)
	}
	var back bytes.Buffer
	if err := w.Files().Read(t.Context(), "left", "/f", 0, -1, &back); err != nil || !bytes.Equal(back.Bytes(), content) {
		t.Errorf("read back: %d bytes, %v", back.Len(), err)
	}
	if got := unpacked(); len(got) != 1 || got[0] != id {
		t.Errorf("an open workspace is not recorded as one to pack: %v", got)
	}
}
