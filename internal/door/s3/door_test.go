package s3_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/tags"

	"holt"
)

// TestObjects: what a client stores it reads again, whole, in ranges and under conditions, with its metadata and tags.
func TestObjects(t *testing.T) {
	w := openWorld(t)
	c, ctx := w.client("default"), t.Context()
	if err := c.MakeBucket(ctx, "data", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, c.MakeBucket(ctx, "data", minio.MakeBucketOptions{}), "BucketAlreadyOwnedByYou")
	for name, size := range map[string]int{"empty": 0, "small": 100, "dir/größer ☃ +%": 70_000, "large": 3 << 20} {
		body := noise(uint64(size), size)
		info := put(t, c, "data", name, body, minio.PutObjectOptions{ContentType: "text/x-test", UserMetadata: map[string]string{"Color": "grün"}, UserTags: map[string]string{"kind": "test"}, CacheControl: "no-cache"})
		if info.ETag != fmt.Sprintf("%x", md5.Sum(body)) {
			t.Errorf("%s has the ETag %s", name, info.ETag)
		}
		got, err := get(t, c, "data", name, minio.GetObjectOptions{})
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		st := must(c.StatObject(ctx, "data", name, minio.StatObjectOptions{}))(t)
		if st.Size != int64(size) || st.ContentType != "text/x-test" || st.UserMetadata["Color"] != "grün" || st.Metadata.Get("Cache-Control") != "no-cache" || st.UserTagCount != 1 {
			t.Errorf("%s is %+v", name, st)
		}
		a, err := w.store.Get(ours(t), "data/"+name)
		if err != nil || a.SHA256 != fmt.Sprintf("%x", sha256.Sum256(body)) || a.State != holt.ArtifactReady || a.Tags["kind"] != "test" {
			t.Errorf("the artifact is %+v: %v", a, err)
		}
	}
	part := minio.GetObjectOptions{}
	if err := part.SetRange(1000, 1999); err != nil {
		t.Fatal(err)
	}
	if got, err := get(t, c, "data", "large", part); err != nil || !bytes.Equal(got, noise(3<<20, 3<<20)[1000:2000]) {
		t.Errorf("a range: %d bytes, %v", len(got), err)
	}
	other := minio.GetObjectOptions{}
	if err := other.SetMatchETag("0123"); err != nil {
		t.Fatal(err)
	}
	_, err := get(t, c, "data", "large", other)
	wantCode(t, err, "PreconditionFailed")
	_, err = get(t, c, "data", "none", minio.GetObjectOptions{})
	wantCode(t, err, "NoSuchKey")
	_, err = get(t, c, "nowhere", "none", minio.GetObjectOptions{})
	wantCode(t, err, "NoSuchBucket")

	// Tags, and a copy with other metadata.
	set := must(tags.NewTags(map[string]string{"a": "b", "c": "d"}, true))(t)
	if err := c.PutObjectTagging(ctx, "data", "small", set, minio.PutObjectTaggingOptions{}); err != nil {
		t.Error(err)
	}
	if got := must(c.GetObjectTagging(ctx, "data", "small", minio.GetObjectTaggingOptions{}))(t); got.String() != set.String() {
		t.Errorf("the tags are %s", got)
	}
	for _, replace := range []bool{false, true} {
		_, err := c.CopyObject(ctx, minio.CopyDestOptions{Bucket: "data", Object: "copy", UserMetadata: map[string]string{"x": "y"}, ReplaceMetadata: replace}, minio.CopySrcOptions{Bucket: "data", Object: "dir/größer ☃ +%"})
		if err != nil {
			t.Fatal(err)
		}
		st := must(c.StatObject(ctx, "data", "copy", minio.StatObjectOptions{}))(t)
		if st.Size != 70_000 || (st.UserMetadata["X"] == "y") != replace || st.ETag != fmt.Sprintf("%x", md5.Sum(noise(70_000, 70_000))) {
			t.Errorf("the copy is %+v", st)
		}
	}
	wantCode(t, c.RemoveBucket(ctx, "data"), "BucketNotEmpty")
	names := make(chan minio.ObjectInfo, 10)
	n := 0
	for o := range c.ListObjects(ctx, "data", minio.ListObjectsOptions{Recursive: true}) {
		names <- o
		n++
	}
	close(names)
	if n != 5 {
		t.Errorf("%d objects are listed", n)
	}
	for e := range c.RemoveObjects(ctx, "data", names, minio.RemoveObjectsOptions{}) {
		t.Error(e)
	}
	if err := c.RemoveBucket(ctx, "data"); err != nil {
		t.Error(err)
	}
	if left := must(w.archive.Spaces(ctx))(t); len(left) > 0 {
		t.Errorf("in the archive is left %v", left)
	}
}

// TestConditionalWrites: of many that create one object one wins, and of many that replace what they read one wins.
func TestConditionalWrites(t *testing.T) {
	w := openWorld(t)
	c, ctx := w.client("default"), t.Context()
	if err := c.MakeBucket(ctx, "data", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	race := func(opt func(*minio.PutObjectOptions)) {
		t.Helper()
		results := make(chan error, 8)
		for i := range cap(results) {
			go func() {
				o := minio.PutObjectOptions{}
				opt(&o)
				_, err := c.PutObject(ctx, "data", "lock", strings.NewReader(fmt.Sprint(i)), 1, o)
				results <- err
			}()
		}
		won := 0
		for range cap(results) {
			if err := <-results; err == nil {
				won++
			} else if code(err) != "PreconditionFailed" {
				t.Error(err)
			}
		}
		if won != 1 {
			t.Errorf("%d writers have won", won)
		}
	}
	race(func(o *minio.PutObjectOptions) { o.SetMatchETagExcept("*") })
	st := must(c.StatObject(ctx, "data", "lock", minio.StatObjectOptions{}))(t)
	race(func(o *minio.PutObjectOptions) { o.SetMatchETag(st.ETag) })
	o := minio.PutObjectOptions{}
	o.SetMatchETag(st.ETag)
	_, err := c.PutObject(ctx, "data", "none", strings.NewReader("x"), 1, o)
	wantCode(t, err, "NoSuchKey")
}

// TestPresigned: a URL reads or stores one object until it expires, and nothing else.
func TestPresigned(t *testing.T) {
	w := openWorld(t)
	c, ctx := w.client("default"), t.Context()
	if err := c.MakeBucket(ctx, "data", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	send := func(method, url, body string) (int, string) {
		r := must(http.NewRequestWithContext(ctx, method, url, strings.NewReader(body)))(t)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	to := must(c.PresignedPutObject(ctx, "data", "a b/ü", time.Hour))(t).String()
	if status, body := send("PUT", to, "content"); status != 200 {
		t.Fatal(status, body)
	}
	from := must(c.PresignedGetObject(ctx, "data", "a b/ü", time.Hour, url.Values{"response-content-disposition": {"attachment"}}))(t).String()
	if status, body := send("GET", from, ""); status != 200 || body != "content" {
		t.Error(status, body)
	}
	for _, bad := range []string{strings.Replace(from, "/data/", "/data/x", 1), strings.Replace(from, "attachment", "inline", 1), strings.Replace(from, "Expires=3600", "Expires=7200", 1), from + "&x=y"} {
		if status, body := send("GET", bad, ""); status != 403 || !strings.Contains(body, "SignatureDoesNotMatch") {
			t.Errorf("%s: %d %s", bad, status, body)
		}
	}
	if status, body := send("DELETE", from, ""); status != 403 {
		t.Error(status, body)
	}
	if status, body := send("GET", "http://"+w.addr+"/data/a", ""); status != 403 || !strings.Contains(body, "AccessDenied") {
		t.Error(status, body)
	}
	// After its token is revoked, it is worth nothing.
	all := must(w.tokens.List(ctx))(t)
	if err := w.tokens.Delete(ctx, all[0].ID); err != nil {
		t.Fatal(err)
	}
	if status, body := send("GET", from, ""); status != 403 || !strings.Contains(body, "InvalidAccessKeyId") {
		t.Error(status, body)
	}
	if left := must(w.keys.List(ctx))(t); len(left) > 0 {
		t.Errorf("keys are left: %+v", left)
	}
}

// TestTenants: two tenants with buckets and objects of the same names see nothing of each other, and a token for a bucket
// nothing but that.
func TestTenants(t *testing.T) {
	w, ctx := openWorld(t), t.Context()
	a, b := w.client("team-a"), w.client("team-b")
	for name, c := range map[string]*minio.Client{"a": a, "b": b} {
		if err := c.MakeBucket(ctx, "data", minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
		put(t, c, "data", "same", []byte("of "+name), minio.PutObjectOptions{})
		put(t, c, "data", "only-"+name, []byte(name), minio.PutObjectOptions{})
	}
	if got, err := get(t, a, "data", "same", minio.GetObjectOptions{}); err != nil || string(got) != "of a" {
		t.Errorf("%q %v", got, err)
	}
	_, err := get(t, a, "data", "only-b", minio.GetObjectOptions{})
	wantCode(t, err, "NoSuchKey")
	up := must((&minio.Core{Client: b}).NewMultipartUpload(ctx, "data", "part", minio.PutObjectOptions{}))(t)
	_, err = (&minio.Core{Client: a}).PutObjectPart(ctx, "data", "part", up, 1, strings.NewReader("x"), 1, minio.PutObjectPartOptions{})
	wantCode(t, err, "NoSuchUpload")
	for o := range a.ListObjects(ctx, "data", minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil || o.Key == "only-b" {
			t.Errorf("%+v", o)
		}
	}

	if err := a.MakeBucket(ctx, "secret", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	narrow, reads := w.client("team-a", "bucket:data:write:in/"), w.client("team-a", "bucket:data:read")
	put(t, narrow, "data", "in/x", []byte("x"), minio.PutObjectOptions{})
	_, err = narrow.PutObject(ctx, "data", "out", strings.NewReader("x"), 1, minio.PutObjectOptions{})
	wantCode(t, err, "AccessDenied")
	_, err = reads.PutObject(ctx, "data", "in/y", strings.NewReader("x"), 1, minio.PutObjectOptions{})
	wantCode(t, err, "AccessDenied")
	wantCode(t, reads.RemoveObject(ctx, "data", "in/x", minio.RemoveObjectOptions{}), "AccessDenied")
	_, err = get(t, reads, "secret", "x", minio.GetObjectOptions{})
	wantCode(t, err, "AccessDenied")
	wantCode(t, reads.MakeBucket(ctx, "more", minio.MakeBucketOptions{}), "AccessDenied")
	if all := must(reads.ListBuckets(ctx))(t); len(all) != 1 || all[0].Name != "data" {
		t.Errorf("%+v", all)
	}
}

// TestVersions: a bucket with versions keeps them under delete markers, which only clients of S3 see.
func TestVersions(t *testing.T) {
	w := openWorld(t)
	c, ctx := w.client("default"), t.Context()
	if err := c.MakeBucket(ctx, "data", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if v := must(c.GetBucketVersioning(ctx, "data"))(t); v.Enabled() {
		t.Errorf("%+v", v)
	}
	if err := c.EnableVersioning(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	one := put(t, c, "data", "x", []byte("one"), minio.PutObjectOptions{})
	two := put(t, c, "data", "x", []byte("two"), minio.PutObjectOptions{})
	if one.VersionID == "" || one.VersionID == two.VersionID {
		t.Errorf("%+v %+v", one, two)
	}
	if err := c.RemoveObject(ctx, "data", "x", minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := get(t, c, "data", "x", minio.GetObjectOptions{})
	wantCode(t, err, "NoSuchKey")
	wantCode(t, c.RemoveObject(ctx, "data", "x", minio.RemoveObjectOptions{VersionID: "null"}), "NoSuchVersion")
	if got, err := get(t, c, "data", "x", minio.GetObjectOptions{VersionID: one.VersionID}); err != nil || string(got) != "one" {
		t.Errorf("%q %v", got, err)
	}
	if _, err := w.store.Get(ours(t), "data/x"); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("holt finds it: %v", err)
	}
	if page := must(w.store.List(ours(t), holt.ArtifactQuery{Bucket: "data"}))(t); len(page.Items) > 0 {
		t.Errorf("holt lists %+v", page.Items)
	}
	var marker string
	seen := ""
	for o := range c.ListObjects(ctx, "data", minio.ListObjectsOptions{WithVersions: true, Recursive: true}) {
		if o.IsDeleteMarker {
			marker = o.VersionID
		}
		seen += fmt.Sprintf("%v:%v:%s ", o.IsDeleteMarker, o.IsLatest, o.VersionID)
	}
	if want := fmt.Sprintf("true:true:%s false:false:%s false:false:%s ", marker, two.VersionID, one.VersionID); seen != want {
		t.Errorf("the versions are %s, not %s", seen, want)
	}
	if err := c.RemoveObject(ctx, "data", "x", minio.RemoveObjectOptions{VersionID: marker}); err != nil {
		t.Error(err)
	}
	if got, err := get(t, c, "data", "x", minio.GetObjectOptions{}); err != nil || string(got) != "two" {
		t.Errorf("without the marker: %q %v", got, err)
	}
	for _, v := range []string{one.VersionID, two.VersionID} {
		if err := c.RemoveObject(ctx, "data", "x", minio.RemoveObjectOptions{VersionID: v}); err != nil {
			t.Error(err)
		}
	}
	if err := c.RemoveBucket(ctx, "data"); err != nil {
		t.Error(err)
	}
}

// TestLock: what is retained or on hold is not deleted; only an admin shortens a retention, and none in the mode COMPLIANCE.
func TestLock(t *testing.T) {
	w := openWorld(t)
	c, admin, ctx := w.client("default"), w.client("default", "admin"), t.Context()
	if err := c.MakeBucket(ctx, "data", minio.MakeBucketOptions{ObjectLocking: true}); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(24 * time.Hour)
	remove := func(c *minio.Client, v minio.UploadInfo, bypass bool) error {
		return c.RemoveObject(ctx, "data", v.Key, minio.RemoveObjectOptions{VersionID: v.VersionID, GovernanceBypass: bypass})
	}
	gov := put(t, c, "data", "gov", []byte("x"), minio.PutObjectOptions{Mode: minio.Governance, RetainUntilDate: until, SendContentMd5: true})
	com := put(t, c, "data", "com", []byte("x"), minio.PutObjectOptions{Mode: minio.Compliance, RetainUntilDate: until, SendContentMd5: true})
	held := put(t, c, "data", "held", []byte("x"), minio.PutObjectOptions{LegalHold: minio.LegalHoldEnabled, SendContentMd5: true})
	for _, v := range []minio.UploadInfo{gov, com, held} {
		wantCode(t, remove(c, v, false), "AccessDenied")
		wantCode(t, remove(c, v, true), "AccessDenied")
	}
	mode, at, err := c.GetObjectRetention(ctx, "data", "com", "")
	if err != nil || *mode != minio.Compliance || at.Sub(until).Abs() > 2*time.Second {
		t.Errorf("%v %v %v", mode, at, err)
	}
	if err := c.PutObjectRetention(ctx, "data", "com", minio.PutObjectRetentionOptions{Mode: mode, RetainUntilDate: at}); err != nil {
		t.Errorf("the same retention again: %v", err)
	}
	if _, err := c.CopyObject(ctx, minio.CopyDestOptions{Bucket: "data", Object: "copy", Mode: minio.Compliance, RetainUntilDate: until}, minio.CopySrcOptions{Bucket: "data", Object: "gov"}); err != nil {
		t.Error(err)
	}
	if mode, _, err := c.GetObjectRetention(ctx, "data", "copy", ""); err != nil || *mode != minio.Compliance {
		t.Errorf("the copy's mode is %v: %v", mode, err)
	}
	far := time.Now().AddDate(101, 0, 0)
	wantCode(t, c.PutObjectRetention(ctx, "data", "com", minio.PutObjectRetentionOptions{Mode: mode, RetainUntilDate: &far}), "InvalidArgument")
	shorter, g := time.Now().Add(time.Hour), minio.Governance
	for _, name := range []string{"gov", "com"} {
		err := c.PutObjectRetention(ctx, "data", name, minio.PutObjectRetentionOptions{Mode: &g, RetainUntilDate: &shorter, GovernanceBypass: true})
		wantCode(t, err, "AccessDenied")
	}
	wantCode(t, admin.PutObjectRetention(ctx, "data", "com", minio.PutObjectRetentionOptions{Mode: &g, RetainUntilDate: &shorter, GovernanceBypass: true}), "AccessDenied")
	if err := admin.PutObjectRetention(ctx, "data", "gov", minio.PutObjectRetentionOptions{Mode: &g, RetainUntilDate: &shorter, GovernanceBypass: true}); err != nil {
		t.Error(err)
	}
	wantCode(t, remove(admin, com, true), "AccessDenied")
	if err := remove(admin, gov, true); err != nil {
		t.Error(err)
	}
	off := minio.LegalHoldDisabled
	if err := c.PutObjectLegalHold(ctx, "data", "held", minio.PutObjectLegalHoldOptions{Status: &off}); err != nil {
		t.Error(err)
	}
	if err := remove(c, held, false); err != nil {
		t.Error(err)
	}
	days, unit := uint(3), minio.Days
	if err := c.SetBucketObjectLockConfig(ctx, "data", &g, &days, &unit); err != nil {
		t.Error(err)
	}
	if b := must(w.store.Bucket(ours(t), "data"))(t); b.RetainMS != 3*24*3600e3 || b.Replace {
		t.Errorf("%+v", b)
	}
	wantCode(t, remove(c, put(t, c, "data", "new", []byte("x"), minio.PutObjectOptions{SendContentMd5: true}), false), "AccessDenied")
}

// TestOwn: a computer needs no key, and reaches only what it has published itself.
func TestOwn(t *testing.T) {
	w := openWorld(t)
	einstein, curie, second := holt.ComputerID("cmp_aaaaaaaaaaaaaaaa"), holt.ComputerID("cmp_bbbbbbbbbbbbbbbb"), holt.ComputerID("cmp_cccccccccccccccc")
	w.of[einstein] = holt.Computer{ID: einstein, Name: "einstein", Tenant: holt.DefaultTenant, DiskSizeMB: 1}
	w.of[curie] = holt.Computer{ID: curie, Name: "curie", Tenant: holt.DefaultTenant, DiskSizeMB: 1}
	w.of[second] = holt.Computer{ID: second, Name: "einstein", Tenant: holt.DefaultTenant, DiskSizeMB: 1} // after the first was deleted
	is := func(who holt.ComputerID, method, path, body string, want int, text string) {
		t.Helper()
		if status, got := w.as(who, method, path, body); status != want || !strings.Contains(got, text) {
			t.Errorf("%s %s: %d %s, not %d %s", method, path, status, got, want, text)
		}
	}
	is(einstein, "PUT", "/computers/einstein/report", "content", 200, "")
	is(einstein, "GET", "/computers/einstein/report", "", 200, "content")
	is(einstein, "GET", "/computers?list-type=2&prefix=einstein/", "", 200, "<Key>einstein/report</Key>")
	is(einstein, "GET", "/computers?list-type=2", "", 403, "AccessDenied")
	is(einstein, "GET", "/", "", 200, "<Name>computers</Name>")
	is(curie, "GET", "/computers/einstein/report", "", 403, "AccessDenied")
	is(curie, "PUT", "/computers/einstein/report", "x", 403, "AccessDenied")
	is(second, "GET", "/computers/einstein/report", "", 404, "NoSuchKey")
	is(second, "DELETE", "/computers/einstein/report", "", 403, "AccessDenied")
	is(second, "PUT", "/computers/einstein/report", "x", 403, "AccessDenied")
	is(second, "GET", "/computers?list-type=2&prefix=einstein/", "", 200, "<KeyCount>0</KeyCount>")
	is(einstein, "PUT", "/artifacts/x", "x", 403, "AccessDenied")
	is(einstein, "PUT", "/more", "", 403, "AccessDenied")
	is(einstein, "DELETE", "/computers", "", 403, "AccessDenied")
	is(einstein, "PUT", "/computers/einstein/report?x-amz-object-lock-legal-hold=ON", "x", 403, "cannot lock")
	is(einstein, "POST", "/computers/einstein/report?uploads&x-amz-object-lock-mode=COMPLIANCE", "", 403, "cannot lock")
	is(einstein, "PUT", "/computers/einstein/report?legal-hold", "<LegalHold><Status>ON</Status></LegalHold>", 403, "cannot lock")
	is(einstein, "PUT", "/computers/einstein/report?retention", "<Retention/>", 403, "cannot lock")
	is(einstein, "PUT", "/computers/einstein/big", strings.Repeat("x", 2<<20), 403, "QuotaExceeded")
	is(einstein, "PUT", "/computers?versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>", 403, "AccessDenied")
	is(einstein, "DELETE", "/computers/einstein/report", "", 204, "")
	is(einstein, "GET", "/computers/einstein/report", "", 404, "NoSuchKey")
	a := must(w.store.List(ours(t), holt.ArtifactQuery{Bucket: "computers", Versions: true}))(t)
	if len(a.Items) != 1 || a.Items[0].Origin.ComputerID != einstein {
		t.Errorf("%+v", a.Items)
	}
}

// TestHostStyle: a bucket can be the first label of the host.
func TestHostStyle(t *testing.T) {
	w := openWorld(t)
	c, ctx := w.client("default"), t.Context()
	if err := c.MakeBucket(ctx, "data", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	id, secret := w.key("default")
	virtual := w.hostStyle(id, secret)
	put(t, virtual, "data", "a/b", []byte("content"), minio.PutObjectOptions{})
	if got, err := get(t, c, "data", "a/b", minio.GetObjectOptions{}); err != nil || string(got) != "content" {
		t.Errorf("%q %v", got, err)
	}
	for o := range virtual.ListObjects(ctx, "data", minio.ListObjectsOptions{Prefix: "a/"}) {
		if o.Err != nil || o.Key != "a/b" {
			t.Errorf("%+v", o)
		}
	}
}

// TestRevoked: when a token is revoked, a body that is still being sent is cut off, and nothing of it is seen.
func TestRevoked(t *testing.T) {
	w := openWorld(t)
	c, ctx := w.client("default"), t.Context()
	if err := c.MakeBucket(ctx, "data", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	r, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := c.PutObject(context.Background(), "data", "x", r, 10<<20, minio.PutObjectOptions{DisableMultipart: true})
		done <- err
	}()
	if _, err := in.Write(noise(1, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.tokens.Delete(ctx, must(w.tokens.List(ctx))(t)[0].ID); err != nil {
		t.Fatal(err)
	}
	go io.Copy(in, bytes.NewReader(noise(2, 9<<20)))
	if err := <-done; err == nil {
		t.Error("it was stored")
	}
	if page := must(w.store.List(ours(t), holt.ArtifactQuery{Bucket: "data"}))(t); len(page.Items) > 0 {
		t.Errorf("%+v", page.Items)
	}
}
