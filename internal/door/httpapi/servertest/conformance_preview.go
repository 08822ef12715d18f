package servertest

import (
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/nouns"
)

// previewVerbs shows ports of a computer, and its domains.
func previewVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	c := newComputer(t, n, "einstein")
	yes, no := true, false
	_, err := n.Previews.Set(ctx, "nobody", 3000, holt.PreviewSpec{})
	WantCode(t, err, holt.NotFound)
	_, err = n.Previews.Set(ctx, "einstein", 65536, holt.PreviewSpec{})
	WantCode(t, err, holt.InvalidArgument)
	_, err = n.Previews.List(ctx, "nobody")
	WantCode(t, err, holt.NotFound)
	WantCode(t, n.Previews.Delete(ctx, "einstein", 3000, ""), holt.NotFound)
	if all := Must(n.Previews.List(ctx, "einstein"))(t); len(all) != 0 {
		t.Errorf("at first %+v", all)
	}
	one := Must(n.Previews.Set(ctx, "einstein", 3000, holt.PreviewSpec{Public: &yes}))(t)
	if one.ComputerID != c.ID || one.Computer != "einstein" || one.Port != 3000 || !one.Public {
		t.Errorf("%+v", one)
	}
	if same := Must(n.Previews.Set(ctx, "einstein", 3000, holt.PreviewSpec{}))(t); !same.Public || !same.CreatedAt.Equal(one.CreatedAt) {
		t.Errorf("it was not left as it was: %+v", same)
	}
	if private := Must(n.Previews.Set(ctx, string(c.ID), 3000, holt.PreviewSpec{Public: &no}))(t); private.Public {
		t.Errorf("%+v", private)
	}
	d := Must(n.Previews.SetDomain(ctx, "einstein", "App.Example.com.", holt.PreviewDomainSpec{Port: 8080}))(t)
	if d.Domain != "app.example.com" || d.Port != 8080 || d.ComputerID != c.ID {
		t.Errorf("%+v", d)
	}
	for _, bad := range []string{"localhost", "192.0.2.1", "3000-einstein.localhost", "a..b", "ü.example"} {
		_, err = n.Previews.SetDomain(ctx, "einstein", bad, holt.PreviewDomainSpec{Port: 8080})
		WantCode(t, err, holt.InvalidArgument)
	}
	newComputer(t, n, "curie")
	_, err = n.Previews.SetDomain(ctx, "curie", "app.example.com", holt.PreviewDomainSpec{Port: 1})
	WantCode(t, err, holt.AlreadyExists)
	WantCode(t, n.Previews.DeleteDomain(ctx, "curie", "app.example.com", ""), holt.NotFound)
	all := Must(n.Previews.List(ctx, "einstein"))(t)
	if len(all) != 2 || all[0].Port != 3000 || all[1].Port != 8080 || len(all[1].Domains) != 1 || all[1].Public {
		t.Errorf("%+v", all)
	}
	previewLinks(t, n)
	fail(t, n.Previews.Delete(ctx, "einstein", 3000, "once"))
	fail(t, n.Previews.Delete(ctx, "einstein", 3000, "once"))
	fail(t, n.Previews.DeleteDomain(ctx, "einstein", "app.example.com", ""))
	if all := Must(n.Previews.Domains(ctx, "einstein"))(t); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	Must(n.Previews.SetDomain(ctx, "curie", "app.example.com", holt.PreviewDomainSpec{Port: 1}))(t)
}

// previewLinks makes links, if there is somebody who would answer them.
func previewLinks(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	before := time.Now()
	link, err := n.Previews.Link(ctx, "einstein", 3000, holt.PreviewLinkSpec{ExpiresInMS: 3600_000})
	if holt.CodeOf(err) == holt.Unavailable {
		return
	}
	fail(t, err)
	if !strings.HasPrefix(link.URL, "http://3000-einstein.localhost:") || !strings.HasSuffix(link.URL, "/?holt-link="+link.Token) || link.ExpiresAt.Before(before.Add(time.Hour-2*time.Second)) {
		t.Errorf("%+v", link)
	}
	for _, bad := range []int64{-1, 1, 91 * 24 * 3600_000} {
		_, err = n.Previews.Link(ctx, "einstein", 3000, holt.PreviewLinkSpec{ExpiresInMS: bad})
		WantCode(t, err, holt.InvalidArgument)
	}
	_, err = n.Previews.Link(ctx, "nobody", 3000, holt.PreviewLinkSpec{})
	WantCode(t, err, holt.NotFound)
}
