package s3_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"holt"
	"holt/internal/store/db"
)

// ready waits until an artifact is stored.
func (w *world) ready(name string) holt.Artifact {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		a, err := w.store.Get(ours(w.t), name)
		if err == nil && a.State == holt.ArtifactReady || time.Now().After(end) {
			if err != nil || a.State != holt.ArtifactReady {
				w.t.Fatalf("%+v %v", a, err)
			}
			return a
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestUploads: an object of parts, some of them sent again or copied, has exactly the bytes that were named, and nothing
// else is left of the upload.
func TestUploads(t *testing.T) {
	w := openWorld(t)
	client, ctx := w.client("default"), t.Context()
	c := &minio.Core{Client: client}
	if err := c.MakeBucket(ctx, "data", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	first, second, last := noise(1, 5<<20), noise(2, 6<<20), noise(3, 100)
	put(t, client, "data", "source", second, minio.PutObjectOptions{})
	id := must(c.NewMultipartUpload(ctx, "data", "big", minio.PutObjectOptions{ContentType: "text/x-big", UserMetadata: map[string]string{"a": "b"}}))(t)
	part := func(n int, b []byte) minio.CompletePart {
		p := must(c.PutObjectPart(ctx, "data", "big", id, n, bytes.NewReader(b), int64(len(b)), minio.PutObjectPartOptions{}))(t)
		return minio.CompletePart{PartNumber: n, ETag: p.ETag}
	}
	part(1, noise(9, 7<<20)) // replaced
	parts := []minio.CompletePart{part(1, first)}
	parts = append(parts, must(c.CopyObjectPart(ctx, "data", "source", "data", "big", id, 3, 0, int64(len(second)), nil))(t))
	part(4, noise(4, 5<<20)) // not named
	parts = append(parts, part(5, last))
	if list := must(c.ListObjectParts(ctx, "data", "big", id, 0, 10))(t); len(list.ObjectParts) != 4 || list.ObjectParts[0].Size != 5<<20 {
		t.Errorf("%+v", list)
	}
	if all := must(c.ListMultipartUploads(ctx, "data", "", "", "", "", 10))(t); len(all.Uploads) != 1 || all.Uploads[0].UploadID != id {
		t.Errorf("%+v", all)
	}
	var aborted [][2]string
	for _, name := range []string{"a/1", "a/2", "b"} {
		more := must(c.NewMultipartUpload(ctx, "data", name, minio.PutObjectOptions{}))(t)
		aborted = append(aborted, [2]string{name, more})
	}
	seen, key, mark := "", "", ""
	for {
		page := must(c.ListMultipartUploads(ctx, "data", "", key, mark, "/", 1))(t)
		for _, p := range page.CommonPrefixes {
			seen += p.Prefix + " "
		}
		for _, u := range page.Uploads {
			seen += u.Key + " "
		}
		if key, mark = page.NextKeyMarker, page.NextUploadIDMarker; !page.IsTruncated {
			break
		}
	}
	for _, u := range aborted {
		if err := c.AbortMultipartUpload(ctx, "data", u[0], u[1]); err != nil {
			t.Error(err)
		}
	}
	if seen != "a/ b big " {
		t.Errorf("the uploads are %q", seen)
	}
	_, err := client.StatObject(ctx, "data", "big", minio.StatObjectOptions{})
	wantCode(t, err, "NoSuchKey")
	wrong := append([]minio.CompletePart{{PartNumber: 1, ETag: "0123"}}, parts[1:]...)
	_, err = c.CompleteMultipartUpload(ctx, "data", "big", id, wrong, minio.PutObjectOptions{})
	wantCode(t, err, "InvalidPart")
	small := must(c.NewMultipartUpload(ctx, "data", "small", minio.PutObjectOptions{}))(t)
	var tiny []minio.CompletePart
	for n := range 2 {
		p := must(c.PutObjectPart(ctx, "data", "small", small, n+1, strings.NewReader("x"), 1, minio.PutObjectPartOptions{}))(t)
		tiny = append(tiny, minio.CompletePart{PartNumber: n + 1, ETag: p.ETag})
	}
	_, err = c.CompleteMultipartUpload(ctx, "data", "small", small, tiny, minio.PutObjectOptions{})
	wantCode(t, err, "EntityTooSmall")
	if err := c.AbortMultipartUpload(ctx, "data", "small", small); err != nil {
		t.Error(err)
	}
	info := must(c.CompleteMultipartUpload(ctx, "data", "big", id, parts, minio.PutObjectOptions{}))(t)
	if again := must(c.CompleteMultipartUpload(ctx, "data", "big", id, parts, minio.PutObjectOptions{}))(t); again.ETag != info.ETag { // as after a lost answer
		t.Errorf("a repeated completion has the ETag %s", again.ETag)
	}
	if !strings.HasSuffix(info.ETag, "-3") {
		t.Errorf("the ETag is %s", info.ETag)
	}
	whole := bytes.Join([][]byte{first, second, last}, nil)
	a := w.ready("data/big")
	if a.SHA256 != fmt.Sprintf("%x", sha256.Sum256(whole)) || a.Size != int64(len(whole)) || a.MediaType != "text/x-big" {
		t.Errorf("%+v", a)
	}
	if got, err := get(t, client, "data", "big", minio.GetObjectOptions{}); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for range 20 { // ranges over the edges of parts
		off := rand.Int64N(int64(len(whole) - 1))
		n := 1 + rand.Int64N(int64(len(whole))-off)
		var out bytes.Buffer
		if err := w.store.Read(ours(t), "data/big", off, n, &out); err != nil || !bytes.Equal(out.Bytes(), whole[off:off+n]) {
			t.Errorf("%d+%d: %d bytes, %v", off, n, out.Len(), err)
		}
	}
	if names := must(w.archive.Names(ctx, string(a.ID)))(t); len(names) != 3 {
		t.Errorf("the space has the parts %v", names)
	}
	for _, name := range []string{"big", "source"} {
		if err := client.RemoveObject(ctx, "data", name, minio.RemoveObjectOptions{}); err != nil {
			t.Error(err)
		}
	}
	if err := client.RemoveBucket(ctx, "data"); err != nil {
		t.Error(err)
	}
	w.nothingLeft()
}

// nothingLeft: neither rows of artifacts and parts nor spaces are left.
func (w *world) nothingLeft() {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		rows := int64(0)
		err := w.db.Read(context.Background(), func(tx *db.Tx) error {
			return tx.Query(`SELECT (SELECT count(*) FROM artifact) + (SELECT count(*) FROM artifact_part)`, nil, func(r *db.Row) error { rows = r.Int64(0); return nil })
		})
		spaces := must(w.archive.Spaces(context.Background()))(w.t)
		if err == nil && rows == 0 && len(spaces) == 0 {
			return
		}
		if time.Now().After(end) {
			w.t.Errorf("%d rows and the spaces %v are left: %v", rows, spaces, err)
			return
		}
	}
}

// TestUploadCut: the store ends at each step of an upload, as if it were killed, and the next continues: no object is there in
// part, one that was answered is there, and what is aborted or deleted leaves nothing.
func TestUploadCut(t *testing.T) {
	w := openWorld(t)
	cut := errors.New("cut")
	ctx := ours(t)
	if _, err := w.store.CreateBucket(ctx, holt.BucketSpec{Name: "data", Replace: true}, ""); err != nil {
		t.Fatal(err)
	}
	body := noise(1, 5<<20)
	for _, point := range []string{"artifact/part", "artifact/completed", "artifact/stored"} {
		up := must(w.store.CreateUpload(ctx, holt.ObjectPut{ArtifactPut: holt.ArtifactPut{Bucket: "data", Name: point}}))(t)
		send := func(n int) (holt.ObjectPart, error) {
			return w.store.PutPart(ctx, "data", point, up.ID, n, bytes.NewReader(body), func() map[string]string { return nil })
		}
		one := must(send(1))(t)
		w.fail = func(at string) error {
			if at == point {
				return cut
			}
			return nil
		}
		two, err := send(2)
		if point == "artifact/part" {
			if !errors.Is(err, cut) {
				t.Errorf("%s: %v", point, err)
			}
		} else if _, err := w.store.CompleteUpload(ctx, "data", point, up.ID, []holt.ObjectPart{one, two}, holt.ObjectCondition{}, nil); (err != nil) != (point == "artifact/completed") {
			t.Errorf("%s: %v", point, err)
		}
		w.store.Close()
		w.fail = nil
		w.open()
		if point == "artifact/part" {
			if _, err := w.store.Object(ctx, "data", point, ""); holt.CodeOf(err) != holt.NotFound {
				t.Errorf("it is there: %v", err)
			}
			two = must(send(2))(t)
			must(w.store.CompleteUpload(ctx, "data", point, up.ID, []holt.ObjectPart{one, two}, holt.ObjectCondition{}, nil))(t)
		}
		if a := w.ready("data/" + point); a.Size != 10<<20 || a.SHA256 != fmt.Sprintf("%x", sha256.Sum256(append(append([]byte{}, body...), body...))) {
			t.Errorf("%+v", a)
		}
		if names := must(w.archive.Names(ctx, string(up.ID)))(t); len(names) != 2 {
			t.Errorf("%s: the space has %v", point, names)
		}
	}
	left := must(w.store.CreateUpload(ctx, holt.ObjectPut{ArtifactPut: holt.ArtifactPut{Bucket: "data", Name: "left"}}))(t)
	if _, err := w.store.PutPart(ctx, "data", "left", left.ID, 1, bytes.NewReader(body), func() map[string]string { return nil }); err != nil {
		t.Fatal(err)
	}
	w.store.Close()
	w.open()
	// A part that arrives while its upload is aborted leaves nothing.
	r, in := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := w.store.PutPart(ctx, "data", "left", left.ID, 2, r, func() map[string]string { return nil })
		r.Close()
		sent <- err
	}()
	if _, err := in.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.store.AbortUpload(ctx, "data", "left", left.ID); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := in.Write(body); err != nil {
			break
		}
	}
	if err := <-sent; err == nil {
		t.Error("a part of an aborted upload was stored")
	}
	for _, point := range []string{"artifact/part", "artifact/completed", "artifact/stored"} {
		if _, err := w.store.DeleteObject(ctx, holt.ObjectDelete{Bucket: "data", Name: point}); err != nil {
			t.Error(err)
		}
	}
	w.nothingLeft()
}

// TestListing: pages of every size show each name once, or the prefix that it has, in the order of their bytes.
func TestListing(t *testing.T) {
	w := openWorld(t)
	ctx := ours(t)
	if _, err := w.store.CreateBucket(ctx, holt.BucketSpec{Name: "data"}, ""); err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "a/", "a/b", "a/b/c", "a/b/d", "a0", "b//x", "b/ü", "b/☃/z", "c/1", "c/2", "d", "ü/x", "☃"}
	for _, name := range names {
		if _, err := w.store.PutObject(ctx, holt.ObjectPut{ArtifactPut: holt.ArtifactPut{Bucket: "data", Name: name}}, strings.NewReader(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"", "a", "a/", "b/", "ü", "x"} {
		for _, delimiter := range []string{"", "/", "b", "//"} {
			var want []string
			for _, name := range names {
				rest, ok := strings.CutPrefix(name, prefix)
				if !ok {
					continue
				}
				if i := strings.Index(rest, delimiter); delimiter != "" && i >= 0 {
					name = prefix + rest[:i+len(delimiter)] + "*"
				}
				if len(want) == 0 || want[len(want)-1] != name {
					want = append(want, name)
				}
			}
			for limit := 1; limit < 5; limit++ {
				var got []string
				q := holt.ObjectQuery{Bucket: "data", Prefix: prefix, Delimiter: delimiter, Limit: limit}
				for {
					page := must(w.store.Objects(ctx, q))(t)
					var both []string
					for _, o := range page.Objects {
						both = append(both, o.Name)
					}
					for _, p := range page.Prefixes {
						both = append(both, p+"*")
					}
					if len(both) > limit {
						t.Fatalf("%d items on a page of %d", len(both), limit)
					}
					got = append(got, both...)
					if q.After = page.After; q.After == "" {
						break
					}
				}
				if len(got) != len(want) || limit == 1 && strings.Join(got, " ") != strings.Join(want, " ") {
					t.Errorf("prefix %q, delimiter %q, %d on a page: %q, not %q", prefix, delimiter, limit, got, want)
				}
			}
		}
	}
}

// TestListingIsFast: of 100,000 names in 100 directories a page takes no longer than what it shows.
func TestListingIsFast(t *testing.T) {
	w := openWorld(t)
	ctx := ours(t)
	if _, err := w.store.CreateBucket(ctx, holt.BucketSpec{Name: "data"}, ""); err != nil {
		t.Fatal(err)
	}
	err := w.db.Write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
			INSERT INTO artifact (id, bucket, name, newest, state, type, created, computer, called) SELECT 'art_' || i, (SELECT id FROM bucket), 'dir' || (i % 100) || '/' || i, 1, 'ready', '', 0, '', '' FROM n`)
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	page := must(w.store.Objects(ctx, holt.ObjectQuery{Bucket: "data", Delimiter: "/", Limit: 1000}))(t)
	took := time.Since(began)
	began = time.Now()
	all := must(w.store.Objects(ctx, holt.ObjectQuery{Bucket: "data", Limit: 100_000}))(t)
	if whole := time.Since(began); len(page.Prefixes) != 100 || page.After != "" || len(all.Objects) != 100_000 || took > whole/5 {
		t.Errorf("%d prefixes in %v, %d names in %v", len(page.Prefixes), took, len(all.Objects), whole)
	} else {
		t.Logf("%d prefixes in %v, %d names in %v", len(page.Prefixes), took, len(all.Objects), whole)
	}
}
