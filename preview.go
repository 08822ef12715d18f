package holt

import (
	"net"
	"strings"
	"time"
)

// Preview is a port of a computer that is published at a URL.
type Preview struct {
	ComputerID ComputerID `json:"computer_id"`
	Computer   string     `json:"computer" doc:"its name"`
	Port       int        `json:"port"`
	Public     bool       `json:"public" doc:"anyone can open it and wake the computer; otherwise a link, its token, or an API token is needed"`
	URL        string     `json:"url" doc:"its URL, without a token"`
	ProgramURL string     `json:"program_url,omitempty" doc:"URL for programs on the daemon's machine that cannot resolve names below localhost (Node, Python, Java)"`
	Domains    []string   `json:"domains,omitempty" doc:"custom domains"`
	CreatedAt  time.Time  `json:"created_at"`
}

// PreviewSpec configures a preview.
type PreviewSpec struct {
	Public *bool `json:"public,omitempty" doc:"anyone can open it; absent: no change, or private for a new preview"`
}

// PreviewLinkSpec describes a link to create.
type PreviewLinkSpec struct {
	ExpiresInMS int64 `json:"expires_in_ms,omitempty" minimum:"0" doc:"lifetime, milliseconds, at most 90 days; default: 12 hours"`
}

// PreviewLink gives access to one preview until it expires, to everyone who has it.
type PreviewLink struct {
	URL        string    `json:"url" doc:"for browsers; the token moves to a cookie and disappears from the address bar"`
	ProgramURL string    `json:"program_url,omitempty" doc:"URL for programs on the daemon's machine that cannot resolve names below localhost (Node, Python, Java)"`
	Token      string    `json:"token" doc:"for programs, in the header X-Holt-Token"`
	ExpiresAt  time.Time `json:"expires_at"`
}

// PreviewDomain is a custom domain of a preview.
type PreviewDomain struct {
	Domain     string     `json:"domain"`
	ComputerID ComputerID `json:"computer_id"`
	Computer   string     `json:"computer" doc:"its name"`
	Port       int        `json:"port"`
	URL        string     `json:"url"`
	CreatedAt  time.Time  `json:"created_at"`
}

// PreviewDomainSpec selects the port of a domain.
type PreviewDomainSpec struct {
	Port int `json:"port" minimum:"1" maximum:"65535"`
}

const mostDomain = 253 // bytes of a DNS name

// ParseDomain normalises a DNS name: lower case, without a final dot.
func ParseDomain(s string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(s, "."))
	labels := strings.Split(name, ".")
	ok := len(name) <= mostDomain && len(labels) > 1 && net.ParseIP(name) == nil
	for _, label := range labels {
		_, err := ParseName(label)
		ok = ok && err == nil
	}
	last := labels[len(labels)-1] // a final label that begins with a digit could be parsed as an IP address, such as 127.1 or 0x7f.1
	ok = ok && (last[0] < '0' || last[0] > '9')
	if !ok {
		return "", Errorf(InvalidArgument, "%q is not a domain", clip(s)).
			WithHint("use a full name of letters, digits and dashes, such as app.example.com; write other letters in xn-- form")
	}
	return name, nil
}
