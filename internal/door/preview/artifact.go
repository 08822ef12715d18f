package preview

import (
	"context"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"holt"
	"holt/internal/access"
	"holt/internal/httppart"
)

// Links are the links to artifacts.
type Links interface {
	// OpenLink returns a link and its artifact by the link's secret. NotFound: it does not work.
	OpenLink(ctx context.Context, id holt.ArtifactLinkID, secret string) (holt.ArtifactLink, holt.Artifact, error)
	// UseLink records a download before its first byte is sent. NotFound: the link does not work any more.
	UseLink(ctx context.Context, link holt.ArtifactLink) error
	// Read writes n bytes of an artifact from offset off to w.
	Read(ctx context.Context, artifact string, off, n int64, w io.Writer) error
}

const (
	linksLabel   = "artifacts" // below the domain; no preview has it, since their labels begin with a port
	linksAddress = 127<<24 | 64<<16 | 1
	mostSecret   = 64 // bytes of a link's secret
)

// Limits of open downloads by links; each has a buffer of 1 MiB.
const (
	mostDownloads = 256
	mostOfTenant  = mostDownloads / 2
	mostOfOneLink = 32
)

// Policies of artifacts that are downloaded, and that are shown.
const (
	attachedPolicy = "default-src 'none'; sandbox"
	inlinePolicy   = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)

// errNoLink is the error of a link that is unknown, used, revoked or expired, and of a wrong secret.
var errNoLink = holt.Errorf(holt.NotFound, "this link does not work").WithHint("it is incomplete, or it was used or revoked, or it has expired; ask its sender for another one")

// errManyDownloads is the error of a download beyond a limit.
var errManyDownloads = holt.Errorf(holt.TooMany, "too many downloads are open").WithHint("try again when some have ended")

// ofLinks reports whether a host is that of links to artifacts.
func (s *Store) ofLinks(host string) bool {
	return s.cfg.Links != nil && (host == linksLabel+"."+s.cfg.Place.Domain || addressOf(host) == linksAddress)
}

// LinkURLs returns the URLs of a link to an artifact, for browsers, and for programs on the daemon's machine.
//
// Errors: Unavailable (no listener answers links).
func (s *Store) LinkURLs(l holt.ArtifactLink, secret string) (at, programURL string, err error) {
	p, err := s.where()
	if err != nil {
		return "", "", holt.Errorf(holt.Unavailable, "links have no address: this daemon does not serve previews").WithHint("%s", holt.AsError(err).Hint)
	}
	at = p.url(linksLabel + "." + p.Domain)
	path := string(l.ID) + "-" + secret + "/" + url.PathEscape(l.FileName)
	if programURL = s.forPrograms(at, linksAddress); programURL != "" {
		programURL += path
	}
	return at + path, programURL, nil
}

// parseLink parses the path of a link: /ID-SECRET/FILE.
func parseLink(path string) (id holt.ArtifactLinkID, secret, file string, ok bool) {
	rest, rooted := strings.CutPrefix(path, "/")
	first, file, named := strings.Cut(rest, "/")
	text, secret, dashed := strings.Cut(first, "-")
	id, err := holt.ParseArtifactLinkID(text)
	if !rooted || !named || !dashed || err != nil || secret == "" || len(secret) > mostSecret || file == "" || len(file) > holt.MostLinkName {
		return "", "", "", false
	}
	return id, secret, file, true
}

// download answers a request for an artifact by a link.
func (d *Door) download(a *answer, r *http.Request) {
	ctx, l, art, release, err := d.openLink(a, r)
	if err != nil {
		a.refused = err == errNoLink
		d.failed(a, r, a.site, visitor{}, err)
		return
	}
	defer release()
	defer context.AfterFunc(ctx, a.cut)()
	a.link, a.tenant, a.visitor = l, art.Tenant, visitor{how: byLink, as: string(l.ID)}
	head := http.Header{}
	file := httppart.File{ETag: strconv.Quote(string(art.ID)), Size: art.Size, MediaType: art.MediaType, Modified: art.CreatedAt} // an artifact never changes
	part, status, err := file.Head(httppart.Asked{Range: r.Header.Get("Range"), IfRange: r.Header.Get("If-Range"), IfNoneMatch: r.Header.Get("If-None-Match")}, head)
	sends := r.Method == http.MethodGet && status != http.StatusNotModified
	if err == nil && sends {
		if err := d.useLink(ctx, a, l); err != nil {
			d.failed(a, r, a.site, visitor{}, err)
			return
		}
	}
	maps.Copy(a.Header(), head)
	if err != nil {
		d.refuse(a, r, status, holt.AsError(err))
		return
	}
	keepSafe(a.Header(), l)
	a.WriteHeader(status)
	if !sends {
		return
	}
	if err := d.store.cfg.Links.Read(ctx, string(art.ID), part.Off, part.N, a); err != nil {
		a.err = err
		panic(http.ErrAbortHandler) // so that the part is not taken for the whole
	}
}

// openLink returns the link of a request. ctx ends when the token that made the link is revoked; the caller calls release at
// the end of the download.
func (d *Door) openLink(a *answer, r *http.Request) (ctx context.Context, l holt.ArtifactLink, art holt.Artifact, release func(), err error) {
	ctx = r.Context()
	id, secret, file, ok := parseLink(r.URL.Path)
	if !ok {
		return ctx, l, art, nil, errNoLink
	}
	l, art, err = d.store.cfg.Links.OpenLink(ctx, id, secret)
	if holt.CodeOf(err) == holt.NotFound || err == nil && l.FileName != file {
		err = errNoLink
	}
	if err != nil {
		return ctx, l, art, nil, err
	}
	left, err := d.downloads.Enter(access.Share{Most: mostDownloads}, access.Share{Of: art.Tenant, Most: mostOfTenant}, access.Share{Of: string(id), Most: mostOfOneLink})
	if err != nil {
		return ctx, l, art, nil, errManyDownloads
	}
	if l.TokenID == "" {
		return ctx, l, art, left, nil
	}
	ctx, done := d.store.cfg.Tokens.Hold(ctx, access.Token{ID: l.TokenID})
	release = func() { done(); left() }
	if ctx.Err() != nil { // it was revoked
		release()
		return ctx, l, art, nil, errNoLink
	}
	return ctx, l, art, release, nil
}

// useLink records a download. The audit log gets the first of each client.
func (d *Door) useLink(ctx context.Context, a *answer, l holt.ArtifactLink) error {
	err := d.store.cfg.Links.UseLink(ctx, l)
	if holt.CodeOf(err) == holt.NotFound {
		return errNoLink
	}
	if err == nil && d.visitors.add(firstOf(a)) {
		d.record(a, "download", "begun", 0)
	}
	return err
}

// keepSafe sets the headers that keep the bytes of an artifact, which may be a page of a hostile computer, from acting in a
// browser, and the URL from caches and other sites.
func keepSafe(h http.Header, l holt.ArtifactLink) {
	kind, policy := "attachment", attachedPolicy
	if l.Inline {
		kind, policy = "inline", inlinePolicy
	}
	h.Set("Content-Disposition", mime.FormatMediaType(kind, map[string]string{"filename": l.FileName}))
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
}
