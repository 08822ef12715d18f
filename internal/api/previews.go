package api

import (
	"strconv"

	"holt"
)

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

// Inputs of previews.
type (
	PreviewsOf struct {
		OneComputer
		Paging
	}
	PreviewSet struct {
		OnePreview
		Body holt.PreviewSpec
	}
	PreviewKeyed struct {
		OnePreview
		Keyed
	}
	PreviewLink struct {
		OnePreview
		Keyed
		Body holt.PreviewLinkSpec
	}
	DomainSet struct {
		OneDomain
		Body holt.PreviewDomainSpec
	}
	DomainKeyed struct {
		OneDomain
		Keyed
	}
)

var (
	lookPreview = Need{On: Computer}
	showPreview = Need{On: Computer, Change: true} // of no Linux user, since a port belongs to none
	ofPreviews  = Tag("previews")
)

// Previews are ports of computers that others reach by host name, and the domains that lead to them.
var (
	ListPreviews = GetList[PreviewsOf]("/v1/computers/{computer}/previews", "listPreviews", "List the previews of a computer", lookPreview, func(p holt.Preview) string { return strconv.Itoa(100000 + p.Port)[1:] }, ofPreviews,
		Doc("A preview is a TCP port under a host name of its own, PORT-COMPUTER.DOMAIN, for browsers and programs: HTTP/1.1, HTTP/2 and WebSockets. "+
			"A request of a caller who may see the preview wakes a paused or stopped computer."))
	SetPreview = Put[PreviewSet, holt.Preview]("/v1/computers/{computer}/previews/{port}", "setPreview", "Create a preview, or change who may open it", showPreview, ofPreviews,
		Doc("Private: holders of a link or its token, and tokens of the API, in X-Holt-Token or Authorization. Public: anyone; visits keep the computer awake only part of the time. "+
			"Making it private ends other visitors' connections."))
	DeletePreview = Delete[PreviewKeyed, None]("/v1/computers/{computer}/previews/{port}", "deletePreview", "Delete a preview", showPreview, ofPreviews,
		Doc("Its open connections end, and its links are no longer valid."))
	LinkPreview = Post[PreviewLink, holt.PreviewLink]("/v1/computers/{computer}/previews/{port}/links", "linkPreview", "Make a link that opens a preview until it expires", showPreview, ofPreviews, Created,
		Doc("Makes the preview, too, if there is none. A repeated call makes another link, whatever its key: links are not kept. Links end with their preview, and with the token that made them."))
	ListDomains = GetList[PreviewsOf]("/v1/computers/{computer}/domains", "listDomains", "List the domains of a computer", lookPreview, func(d holt.PreviewDomain) string { return d.Domain }, ofPreviews)
	SetDomain   = Put[DomainSet, holt.PreviewDomain]("/v1/computers/{computer}/domains/{domain}", "setDomain", "Publish a computer's port at a domain", showPreview, ofPreviews,
		Doc("The DNS of the domain leads to this daemon. The port's preview says who may see it; it is made, private, if there is none. A daemon that gets certificates by itself gets one for the domain at the first request for it. "+
			"A caller that is not an admin needs a TXT record of `_holt.DOMAIN`, or of `_holt.` before a parent domain, with the content `holt=TENANT`; else the answer is `forbidden`."))
	DeleteDomain = Delete[DomainKeyed, None]("/v1/computers/{computer}/domains/{domain}", "deleteDomain", "Remove a domain from a computer", showPreview, ofPreviews)
)
