package holt

import (
	"net"
	"strings"
	"time"
)

// Preview is a port of a computer that people and programs elsewhere reach under a host name of its own.
type Preview struct {
	ComputerID ComputerID `json:"computer_id"`
	Computer   string     `json:"computer" doc:"its name"`
	Port       int        `json:"port"`
	Public     bool       `json:"public" doc:"anybody may come, and wake the computer; otherwise who has a link, its token, or an API token"`
	URL        string     `json:"url" doc:"where it is, without a right to see it"`
	ProgramURL string     `json:"program_url,omitempty" doc:"the same for programs on the daemon's machine that cannot resolve names below localhost (Node, Python, Java)"`
	Domains    []string   `json:"domains,omitempty" doc:"names of its own, besides that"`
	CreatedAt  time.Time  `json:"created_at"`
}

// PreviewSpec says how a port is shown.
type PreviewSpec struct {
	Public *bool `json:"public,omitempty" doc:"anybody may come; absent: as it was, a new preview is private"`
}

// PreviewLinkSpec says what link to a preview is wanted.
type PreviewLinkSpec struct {
	ExpiresInMS int64 `json:"expires_in_ms,omitempty" minimum:"0" doc:"how long it opens the preview, milliseconds, at most 90 days; default: 12 hours"`
}

// PreviewLink is a right to see one preview until it expires. Whoever has it, has the right.
type PreviewLink struct {
	URL        string    `json:"url" doc:"for a browser, which keeps the right in a cookie of that host and shows the address without it"`
	ProgramURL string    `json:"program_url,omitempty" doc:"for programs on the daemon's machine that cannot resolve names below localhost (Node, Python, Java)"`
	Token      string    `json:"token" doc:"for programs: the header X-Holt-Token"`
	ExpiresAt  time.Time `json:"expires_at"`
}

// PreviewDomain is a name of somebody's own for a preview.
type PreviewDomain struct {
	Domain     string     `json:"domain"`
	ComputerID ComputerID `json:"computer_id"`
	Computer   string     `json:"computer" doc:"its name"`
	Port       int        `json:"port"`
	URL        string     `json:"url"`
	CreatedAt  time.Time  `json:"created_at"`
}

// PreviewDomainSpec says which port a domain shows.
type PreviewDomainSpec struct {
	Port int `json:"port" minimum:"1" maximum:"65535"`
}

const mostDomain = 253 // bytes of a DNS name

// ParseDomain returns a DNS name in the form in which it is kept: lower case, without a dot at its end.
func ParseDomain(s string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(s, "."))
	labels := strings.Split(name, ".")
	ok := len(name) <= mostDomain && len(labels) > 1 && net.ParseIP(name) == nil
	for _, label := range labels {
		_, err := ParseName(label)
		ok = ok && err == nil
	}
	last := labels[len(labels)-1] // with a digit first it would be read as an IP address, as 127.1 or 0x7f.1 is
	ok = ok && (last[0] < '0' || last[0] > '9')
	if !ok {
		return "", Errorf(InvalidArgument, "%q is not a domain", clip(s)).
			WithHint("give a full name of letters, digits and dashes, as app.example.com; one with other letters in its xn-- form")
	}
	return name, nil
}
