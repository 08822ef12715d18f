package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// Previews are ports of computers that others reach by host name, and the names of one's own that they have besides.
type Previews interface {
	// List returns those of a computer, by port.
	List(ctx context.Context, computer string) ([]holt.Preview, error)
	// Set makes or changes one. What strangers have open ends when it is made private. TooMany.
	Set(ctx context.Context, computer string, port int, spec holt.PreviewSpec) (holt.Preview, error)
	// Delete removes one: what is open through it ends, and its links are no longer valid.
	Delete(ctx context.Context, computer string, port int, key string) error
	// Link makes a link to one, which is made if there is none; each call makes another. Unavailable: nothing
	// listens for previews.
	Link(ctx context.Context, computer string, port int, spec holt.PreviewLinkSpec) (holt.PreviewLink, error)
	// Domains returns those of a computer, by name.
	Domains(ctx context.Context, computer string) ([]holt.PreviewDomain, error)
	// SetDomain has a name show a port. AlreadyExists: it shows another computer's.
	SetDomain(ctx context.Context, computer, domain string, spec holt.PreviewDomainSpec) (holt.PreviewDomain, error)
	DeleteDomain(ctx context.Context, computer, domain, key string) error
}

// OnePreview names the preview of a port in a path.
type OnePreview struct {
	OneComputer
	Port int `path:"port" minimum:"1" maximum:"65535" doc:"TCP port"`
}

// OneDomain names a domain of a computer in a path.
type OneDomain struct {
	OneComputer
	Domain string `path:"domain" maxLength:"254" doc:"a full name, as app.example.com"`
}

const previewTag = "previews"

func (s *Server) previews(api huma.API) {
	const path = "/v1/computers/{computer}/previews"
	nouns := s.opt.Nouns.Previews

	op := describe(http.MethodGet, path, "listPreviews", previewTag, "List the previews of a computer")
	op.Description = "A preview is a TCP port under a host name of its own, PORT-COMPUTER.DOMAIN, for browsers and programs: HTTP/1.1, HTTP/2 and WebSockets. " +
		"A computer that is paused or stopped is woken by who may see it."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Paging
	}) (*reply[holt.Page[holt.Preview]], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		all, err := nouns.List(ctx, ref)
		return pageOf(all, func(p holt.Preview) string { return fiveDigits(p.Port) }, in.Paging), err
	})

	op = describe(http.MethodPut, path+"/{port}", "setPreview", previewTag, "Make a port a preview, or change who may see it")
	op.Description = "Private: who has a link or its token, and tokens of the API, in X-Holt-Token or Authorization. Public: anybody, who also wakes the computer, for a bounded part of all time. " +
		"What strangers have open ends when it is made private."
	register(api, op, func(ctx context.Context, in *struct {
		OnePreview
		Body holt.PreviewSpec
	}) (*reply[holt.Preview], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		one, err := nouns.Set(ctx, ref, in.Port, in.Body)
		return &reply[holt.Preview]{one}, err
	})

	op = describe(http.MethodDelete, path+"/{port}", "deletePreview", previewTag, "Delete a preview")
	op.Description = "What is open through it ends, and its links are no longer valid."
	register(api, op, func(ctx context.Context, in *struct {
		OnePreview
		Keyed
	}) (*noContent, error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		return &noContent{}, nouns.Delete(ctx, ref, in.Port, in.Key)
	})

	op = describe(http.MethodPost, path+"/{port}/links", "linkPreview", previewTag, "Make a link that opens a preview until it expires")
	op.DefaultStatus = http.StatusCreated
	op.Description = "Makes the preview, too, if there is none. A repeated call makes another link, whatever its key: none is kept. Links end with their preview, and with the token by which they were made."
	register(api, op, func(ctx context.Context, in *struct {
		OnePreview
		Keyed
		Body holt.PreviewLinkSpec
	}) (*reply[holt.PreviewLink], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		link, err := nouns.Link(ctx, ref, in.Port, in.Body)
		return &reply[holt.PreviewLink]{link}, err
	})
	s.domains(api)
}

// domains registers what names of one's own show.
func (s *Server) domains(api huma.API) {
	const path = "/v1/computers/{computer}/domains"
	nouns := s.opt.Nouns.Previews

	register(api, describe(http.MethodGet, path, "listDomains", previewTag, "List the domains of a computer"), func(ctx context.Context, in *struct {
		OneComputer
		Paging
	}) (*reply[holt.Page[holt.PreviewDomain]], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		all, err := nouns.Domains(ctx, ref)
		return pageOf(all, func(d holt.PreviewDomain) string { return d.Domain }, in.Paging), err
	})

	op := describe(http.MethodPut, path+"/{domain}", "setDomain", previewTag, "Have a domain show a port of a computer")
	op.Description = "The domain leads to this daemon by its DNS. The port's preview says who may see it; it is made, private, if there is none. A daemon that gets certificates by itself gets one for it when it is first asked for. Who is no admin needs a TXT record of `_holt.DOMAIN`, or of `_holt.` before a domain above it, that says `holt=TENANT`: `forbidden` else."
	register(api, op, func(ctx context.Context, in *struct {
		OneDomain
		Body holt.PreviewDomainSpec
	}) (*reply[holt.PreviewDomain], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		one, err := nouns.SetDomain(ctx, ref, in.Domain, in.Body)
		return &reply[holt.PreviewDomain]{one}, err
	})

	register(api, describe(http.MethodDelete, path+"/{domain}", "deleteDomain", previewTag, "Take a domain away from a computer"), func(ctx context.Context, in *struct {
		OneDomain
		Keyed
	}) (*noContent, error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		return &noContent{}, nouns.DeleteDomain(ctx, ref, in.Domain, in.Key)
	})
}

// fiveDigits has ports sort as numbers.
func fiveDigits(port int) string {
	return strconv.Itoa(100000 + port)[1:]
}
