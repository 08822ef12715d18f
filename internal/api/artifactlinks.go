package api

import "holt"

// Inputs of links to artifacts.
type (
	ArtifactLinksOf struct {
		OneArtifact
		Paging
	}
	ArtifactLinkMake struct {
		OneArtifact
		Keyed
		Body holt.ArtifactLinkSpec
	}
	ArtifactLinkKeyed struct {
		OneArtifact
		Link string `path:"link" maxLength:"64" doc:"its id"`
		Keyed
	}
)

// Links to artifacts work without a token, for everyone who has them.
var (
	LinkArtifact = Post[ArtifactLinkMake, holt.ArtifactLink]("/v1/artifacts/{artifact}/links", "linkArtifact", "Create a link to an artifact", Need{On: Content, Change: true}, Created,
		Doc("Everyone who has its URL can download the artifact until the link expires, is revoked, or the artifact or the token that created the link is deleted. It expires no later than that token. "+
			"The URL has a host name of its own, where previews are, and no script of the artifact runs there. The answer has the URL, whose secret is not kept: a repeated call with the same idempotency key gets the link without it "+
			"(revoke it then, and create another). An artifact can have 1000 links."))
	ListArtifactLinks = GetList[ArtifactLinksOf]("/v1/artifacts/{artifact}/links", "listArtifactLinks", "List the links to an artifact, oldest first, without their URLs", Need{On: Content},
		func(l holt.ArtifactLink) string {
			return l.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000000") + string(l.ID)
		})
	UnlinkArtifact = Delete[ArtifactLinkKeyed, None]("/v1/artifacts/{artifact}/links/{link}", "unlinkArtifact", "Revoke a link to an artifact", Need{On: Content, Change: true},
		Doc("A download in progress is not interrupted."))
)
