package daemon

import (
	"bytes"
	"testing"
	"time"

	"holt"
	"holt/internal/workspace"
)

// TestPackClosed: what a workspace was left with when it was closed is packed
// though nobody opens it, once; one that has nothing to pack is not opened.
func TestPackClosed(t *testing.T) {
	w := openRegistry(t, time.Hour)
	base := w.shelf.base
	w.shelf.base.SegmentSize, w.shelf.base.KeepSegments = 128<<10, -1 // nobody packs
	id, quiet := holt.NewWorkspaceID(), holt.NewWorkspaceID()
	for id, name := range map[holt.WorkspaceID]string{id: "left", quiet: "quiet"} {
		if err := (guestSpaces{w}).Make(t.Context(), id, name, holt.Quota{}); err != nil {
			t.Fatal(err)
		}
	}
	shut := func() {
		t.Helper()
		for _, e := range w.shelf.entries {
			if err := w.shelf.shut(e); err != nil {
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
		t.Fatalf("remembered as not packed: %v, want %s", got, id)
	}
	w.shelf.base = base
	w.shelf.base.SegmentSize, w.shelf.base.KeepSegments = 128<<10, 1
	w.packRound(t.Context())
	if u, err := w.shelf.base.Archive.SpaceUsage(t.Context(), string(id)); err != nil || u.Bytes < int64(len(content))/2 {
		t.Errorf("packed: %+v %v", u, err)
	}
	for _, id := range []holt.WorkspaceID{id, quiet} {
		if _, open := w.shelf.figures(id); open {
			t.Errorf("%s stays open", id)
		}
	}
	if got := unpacked(); len(got) != 0 {
		t.Errorf("visited again and again: %v", got)
	}
	var back bytes.Buffer
	if err := w.Files().Read(t.Context(), "left", "/f", 0, -1, &back); err != nil || !bytes.Equal(back.Bytes(), content) {
		t.Errorf("read back: %d bytes, %v", back.Len(), err)
	}
	if got := unpacked(); len(got) != 1 || got[0] != id {
		t.Errorf("while it is open it may have something to pack: %v", got)
	}
}
