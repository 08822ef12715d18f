package artifact

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holt"
)

// upload begins an object and sends it parts.
func (w *world) upload(t *testing.T, bucket string, contents ...string) (holt.ObjectUpload, []holt.ObjectPart, error) {
	t.Helper()
	up, err := w.CreateUpload(t.Context(), holt.ObjectPut{ArtifactPut: holt.ArtifactPut{Bucket: bucket, Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	var parts []holt.ObjectPart
	for i, content := range contents {
		p, err := w.PutPart(t.Context(), bucket, "a", up.ID, i+1, strings.NewReader(content), func() map[string]string { return nil })
		if err != nil {
			return up, parts, err
		}
		parts = append(parts, p)
	}
	return up, parts, nil
}

// TestUploadsAreScanned: the scan of a bucket sees an object made of parts whole, before it appears. A scan that fails leaves the upload.
func TestUploadsAreScanned(t *testing.T) {
	w := newWorld(t)
	script := filepath.Join(t.TempDir(), "scan")
	set := func(text string) {
		if err := os.WriteFile(script, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	set("exit 0")
	w.bucket(holt.BucketSpec{Name: "scanned", Scan: script})
	first := strings.Repeat("x", holt.LeastPart)
	up, parts, err := w.upload(t, "scanned", first, "virus")
	if err != nil {
		t.Fatal(err)
	}
	complete := func(parts []holt.ObjectPart) error {
		_, err := w.CompleteUpload(t.Context(), "scanned", "a", up.ID, parts, holt.ObjectCondition{}, nil)
		return err
	}
	set("exit 7")
	if err := complete(parts); holt.CodeOf(err) != holt.Unavailable {
		t.Errorf("a scan that fails: %v", err)
	}
	set(`tail -c 5 | grep -q virus && echo a virus && exit 1; exit 0`)
	if err := complete(parts[:1]); err != nil { // the upload is still there, with both parts
		t.Errorf("without the virus: %v", err)
	}
	if up, parts, err = w.upload(t, "scanned", first, "virus"); err != nil {
		t.Fatal(err)
	}
	if err := complete(parts); holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), "a virus") {
		t.Errorf("with a virus: %v", err)
	}
	if err := complete(parts); !errors.Is(err, holt.ErrNoUpload) {
		t.Errorf("what was refused is there: %v", err)
	}
	if o, err := w.Object(t.Context(), "scanned", "a", ""); err != nil || o.Size != int64(len(first)) {
		t.Errorf("%+v %v", o, err)
	}
}

// TestUploadsCount: parts count for the quota of their bucket while they arrive, and what is refused or aborted does not.
func TestUploadsCount(t *testing.T) {
	w := newWorld(t)
	w.bucket(holt.BucketSpec{Name: "b", QuotaMB: 40})
	part := strings.Repeat("x", 15<<20)
	up, _, err := w.upload(t, "b", part, part)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.PutPart(t.Context(), "b", "a", up.ID, 3, strings.NewReader(part), func() map[string]string { return nil }); holt.CodeOf(err) != holt.OutOfSpace {
		t.Errorf("beyond the quota: %v", err)
	}
	if _, err := w.PutPart(t.Context(), "b", "a", up.ID, 2, strings.NewReader("small"), func() map[string]string { return nil }); err != nil {
		t.Errorf("in place of a large part: %v", err)
	}
	if err := w.AbortUpload(t.Context(), "b", "a", up.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.upload(t, "b", part, part); err != nil {
		t.Errorf("after the abort: %v", err)
	}
}
