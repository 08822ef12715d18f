package holt

import "time"

// ArtifactLinkID identifies a link to an artifact; it is not the secret: "lnk_…".
type ArtifactLinkID string

const artifactLinkPrefix = "lnk_"

// NewArtifactLinkID returns a fresh random identifier.
func NewArtifactLinkID() ArtifactLinkID { return ArtifactLinkID(newID(artifactLinkPrefix)) }

// ParseArtifactLinkID returns s as an ArtifactLinkID, or an InvalidArgument [Error].
func ParseArtifactLinkID(s string) (ArtifactLinkID, error) {
	id, err := parseID(artifactLinkPrefix, "link", s)
	return ArtifactLinkID(id), err
}

// Bounds of links to artifacts.
const (
	LinkLife          = 24 * time.Hour // if none is given
	MostLinkLife      = 365 * 24 * time.Hour
	MostArtifactLinks = 1000 // of an artifact, that have not expired
	MostLinkName      = 255  // bytes of the name of its file
)

// ArtifactLink is a URL that gives everyone who has it one artifact, until it expires.
type ArtifactLink struct {
	ID         ArtifactLinkID `json:"id"`
	ArtifactID ArtifactID     `json:"artifact_id"`
	Bucket     string         `json:"bucket" doc:"of the artifact"`
	Name       string         `json:"name" doc:"of the artifact"`
	FileName   string         `json:"file_name" doc:"name under which it is downloaded"`
	Once       bool           `json:"once,omitempty" doc:"only one download"`
	Inline     bool           `json:"inline,omitempty" doc:"browsers show it, without scripts, instead of downloading it"`
	CreatedAt  time.Time      `json:"created_at"`
	ExpiresAt  time.Time      `json:"expires_at"`
	By         string         `json:"by" doc:"who created it"`
	TokenID    TokenID        `json:"token_id,omitempty" doc:"token that created it; the link ends with the token"`
	Used       int64          `json:"used" doc:"downloads, each range counted"`
	LastUsedAt *time.Time     `json:"last_used_at,omitempty"`
	URL        string         `json:"url,omitempty" doc:"only in the answer that creates it: its secret is not kept"`
	ProgramURL string         `json:"program_url,omitempty" doc:"with url: for programs on the daemon's machine that cannot resolve names below localhost (Node, Python, Java)"`
}

// ArtifactLinkSpec describes a link to create.
type ArtifactLinkSpec struct {
	ExpiresInMS int64  `json:"expires_in_ms,omitempty" minimum:"0" doc:"lifetime, milliseconds, at most 365 days; default: 24 hours"`
	FileName    string `json:"file_name,omitempty" maxLength:"255" doc:"name under which it is downloaded; default: the last part of the artifact's name"`
	Once        bool   `json:"once,omitempty" doc:"it ends with its first download, even one that is cut off; default: any number"`
	Inline      bool   `json:"inline,omitempty" doc:"browsers show it, without scripts, instead of downloading it"`
}
