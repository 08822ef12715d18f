package holt

import (
	"fmt"
	"strings"
	"testing"
)

// TestHostSecretIsHidden: whoever prints one does not print its value.
func TestHostSecretIsHidden(t *testing.T) {
	h := HostSecret{Host: "api.example.com", Value: "sk-hunter2"}
	for _, said := range []string{fmt.Sprint(h), fmt.Sprintf("%v %+v %#v", h, &h, []HostSecret{h}), h.String()} {
		if strings.Contains(said, "hunter2") {
			t.Error(said)
		}
	}
}

func TestParseSecretName(t *testing.T) {
	for _, good := range []string{"OPENAI_API_KEY", "a", "github.com-token"} {
		if got, err := ParseSecretName(good); err != nil || got != good {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a b", "../x", "-x", "a/b", strings.Repeat("a", 65), "ä"} {
		if _, err := ParseSecretName(bad); CodeOf(err) != InvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
