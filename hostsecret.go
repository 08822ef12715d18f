package holt

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// ComputerSecret is a host secret of a computer without its value, which cannot be read back.
type ComputerSecret struct {
	Name        string    `json:"name"`
	Host        string    `json:"host" doc:"exact host name, optionally with :PORT"`
	Header      string    `json:"header,omitempty" doc:"the header that is set; default: Authorization with the prefix Bearer"`
	Placeholder string    `json:"placeholder,omitempty" doc:"text that the value replaces"`
	Plain       bool      `json:"plain,omitempty" doc:"also added to unencrypted requests (http://)"`
	SetAt       time.Time `json:"set_at"`
}

// Shown returns the secret without its value.
func (h HostSecret) Shown(name string, at time.Time) ComputerSecret {
	return ComputerSecret{Name: name, Host: h.Host, Header: h.Header, Placeholder: h.Placeholder, Plain: h.Plain, SetAt: at}
}

// String hides the value from logs and errors.
func (h HostSecret) String() string { return "secret of host " + h.Host }

// GoString is String.
func (h HostSecret) GoString() string { return h.String() }

var secretNameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ParseSecretName reads the name of a computer's secret, such as OPENAI_API_KEY. Errors: InvalidArgument.
func ParseSecretName(s string) (string, error) {
	if !secretNameRE.MatchString(s) {
		shown := strings.ToValidUTF8(s[:min(len(s), 40)], "")
		return "", Errorf(InvalidArgument, "invalid secret name %s", fmt.Sprintf("%q", shown)).
			WithHint("use 1 to 64 letters, digits, dots, dashes and underscores, such as OPENAI_API_KEY")
	}
	return s, nil
}
