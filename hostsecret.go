package holt

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// ComputerSecret is a host secret that a computer has, as it is shown: without its value, which nobody gets back.
type ComputerSecret struct {
	Name        string    `json:"name"`
	Host        string    `json:"host" doc:"its exact name, with :PORT or at the usual one"`
	Header      string    `json:"header,omitempty" doc:"that is set; absent of one with neither header nor placeholder: Authorization, with Bearer before the value"`
	Placeholder string    `json:"placeholder,omitempty" doc:"what the value takes the place of"`
	Plain       bool      `json:"plain,omitempty" doc:"also over http://"`
	SetAt       time.Time `json:"set_at"`
}

// Shown is a secret without its value.
func (h HostSecret) Shown(name string, at time.Time) ComputerSecret {
	return ComputerSecret{Name: name, Host: h.Host, Header: h.Header, Placeholder: h.Placeholder, Plain: h.Plain, SetAt: at}
}

// String hides the value, so that no log and no error has it by accident.
func (h HostSecret) String() string { return "secret of host " + h.Host }

// GoString is String.
func (h HostSecret) GoString() string { return h.String() }

var secretNameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ParseSecretName reads the name of a computer's secret, as OPENAI_API_KEY. Errors: InvalidArgument.
func ParseSecretName(s string) (string, error) {
	if !secretNameRE.MatchString(s) {
		shown := strings.ToValidUTF8(s[:min(len(s), 40)], "")
		return "", Errorf(InvalidArgument, "%s cannot name a secret", fmt.Sprintf("%q", shown)).
			WithHint("1 to 64 letters, digits, dots, dashes and underscores, as OPENAI_API_KEY")
	}
	return s, nil
}
