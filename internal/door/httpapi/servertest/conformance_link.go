package servertest

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/nouns"
)

// fetch sends a request for a link, whose host it resolves to the loopback as browsers do.
func fetch(t *testing.T, method, link string, headers ...string) (*http.Response, string) {
	t.Helper()
	at := Must(url.Parse(link))(t)
	r := Must(http.NewRequestWithContext(t.Context(), method, link, nil))(t)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:"+at.Port())
	}}
	defer transport.CloseIdleConnections()
	answer := Must(transport.RoundTrip(r))(t)
	defer answer.Body.Close()
	return answer, string(Must(io.ReadAll(answer.Body))(t))
}

// gives fails the test unless a GET of a link has the status.
func gives(t *testing.T, link string, status int) string {
	t.Helper()
	answer, text := fetch(t, "GET", link)
	if answer.StatusCode != status {
		t.Errorf("GET %s: %d %s", link, answer.StatusCode, text)
	}
	return text
}

// linkVerbs: a link gives an artifact to everyone who has it, after its computer is deleted, until the link ends.
func linkVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	c := newComputer(t, n, "noether")
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(rand.Uint32())
	}
	write(t, n, "noether", "/home/agent/report.pdf", big)
	run := Must(n.Runs.Start(ctx, "noether", holt.RunSpec{Command: "cp report.pdf final.pdf"}, ""))(t)
	fail(t, n.Runs.Follow(ctx, run.ID, 0, func(holt.RunEvent) error { return nil }))
	a := Must(n.Artifacts.Publish(ctx, holt.ArtifactSpec{Computer: "noether", Path: "/home/agent/final.pdf"}, ""))(t)
	made := Must(n.Artifacts.CreateLink(ctx, string(a.ID), holt.ArtifactLinkSpec{FileName: "Bericht 1.pdf"}, "key"))(t)
	if again := Must(n.Artifacts.CreateLink(ctx, string(a.ID), holt.ArtifactLinkSpec{FileName: "Bericht 1.pdf"}, "key"))(t); again.ID != made.ID || again.URL != "" {
		t.Errorf("a repeated create: %+v", again)
	}
	if !strings.HasPrefix(made.URL, "http://artifacts.localhost:") || !strings.HasSuffix(made.URL, "/Bericht%201.pdf") || !strings.HasPrefix(made.ProgramURL, "http://127.64.0.1:") ||
		made.ArtifactID != a.ID || made.Bucket != "artifacts" || made.Name != "final.pdf" || !made.ExpiresAt.Equal(made.CreatedAt.Add(24*time.Hour)) {
		t.Errorf("created %+v", made)
	}

	Must(n.Computers.Delete(ctx, "noether", ""))(t)
	_, err := n.Workspaces.Get(ctx, c.Workspace)
	WantCode(t, err, holt.NotFound)
	if after := Must(n.Artifacts.Get(ctx, string(a.ID)))(t); after.Origin.Writer == nil || after.Origin.Writer.Run != string(run.ID) || after.Origin.Command != "cp report.pdf final.pdf" || after.Origin.ComputerID != c.ID {
		t.Errorf("the origin after the computer: %+v", after.Origin)
	}
	if text := gives(t, made.URL, 200); text != string(big) {
		t.Errorf("a link gives %d other bytes", len(text))
	}
	answer, text := fetch(t, "GET", made.URL, "Range", "bytes=1048570-1048580")
	if answer.StatusCode != 206 || text != string(big[1048570:1048581]) || answer.Header.Get("Content-Range") != "bytes 1048570-1048580/3145728" {
		t.Errorf("a range: %d %v", answer.StatusCode, answer.Header)
	}
	if answer, text = fetch(t, "HEAD", made.URL); answer.StatusCode != 200 || text != "" || answer.ContentLength != int64(len(big)) {
		t.Errorf("HEAD: %d %v", answer.StatusCode, answer.Header)
	}
	all := Must(n.Artifacts.Links(ctx, "artifacts/final.pdf"))(t)
	if len(all) != 1 || all[0].ID != made.ID || all[0].Used != 2 || all[0].LastUsedAt == nil || all[0].URL != "" {
		t.Errorf("listed %+v", all)
	}
	linksEnd(t, n, a, made)
}

// linksEnd: links that are used, have expired, are revoked, or whose artifact is deleted do not work.
func linksEnd(t *testing.T, n nouns.Set, a holt.Artifact, made holt.ArtifactLink) {
	ctx := t.Context()
	once := Must(n.Artifacts.CreateLink(ctx, string(a.ID), holt.ArtifactLinkSpec{Once: true}, ""))(t)
	fetch(t, "HEAD", once.URL)
	gives(t, once.URL, 200)
	none := gives(t, once.URL, 404)
	short := Must(n.Artifacts.CreateLink(ctx, string(a.ID), holt.ArtifactLinkSpec{ExpiresInMS: 1000}, ""))(t)
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if answer, _ := fetch(t, "HEAD", short.URL); answer.StatusCode == 404 && !time.Now().Before(short.ExpiresAt) {
			break
		} else if answer.StatusCode != 200 || time.Now().After(end) {
			t.Fatalf("a link until %s: %d", short.ExpiresAt, answer.StatusCode)
		}
	}
	if all := Must(n.Artifacts.Links(ctx, string(a.ID)))(t); len(all) != 2 {
		t.Errorf("with an expired link: %+v", all)
	}
	_, err := n.Artifacts.CreateLink(ctx, "artifacts/none", holt.ArtifactLinkSpec{}, "")
	WantCode(t, err, holt.NotFound)
	for _, bad := range []holt.ArtifactLinkSpec{{ExpiresInMS: 999}, {ExpiresInMS: 366 * 24 * 3600_000}, {FileName: "a/b"}, {FileName: ".."}, {FileName: "a\nb"}} {
		_, err = n.Artifacts.CreateLink(ctx, string(a.ID), bad, "")
		WantCode(t, err, holt.InvalidArgument)
	}

	other := Must(n.Artifacts.CreateLink(ctx, string(a.ID), holt.ArtifactLinkSpec{}, ""))(t)
	WantCode(t, n.Artifacts.DeleteLink(ctx, string(a.ID), string(holt.NewArtifactLinkID()), ""), holt.NotFound)
	fail(t, n.Artifacts.DeleteLink(ctx, string(a.ID), string(made.ID), "gone"))
	fail(t, n.Artifacts.DeleteLink(ctx, string(a.ID), string(made.ID), "gone"))
	for what, link := range map[string]string{"revoked": made.URL, "wrong": strings.Replace(other.URL, "-", "-A", 1), "other name": other.URL + "x"} {
		if text := gives(t, link, 404); text != none {
			t.Errorf("%s: %s, not %s", what, text, none)
		}
	}
	gives(t, other.URL, 200)
	fail(t, n.Artifacts.Delete(ctx, string(a.ID), ""))
	gives(t, other.URL, 404)
	_, err = n.Artifacts.Links(ctx, string(a.ID))
	WantCode(t, err, holt.NotFound)
}
