package daemon_test

import (
	"strings"
	"testing"

	"holt"
)

// TestNoComputerHasTheAPIsName: what the daemon is called by is nobody's domain.
func TestNoComputerHasTheAPIsName(t *testing.T) {
	cfg := config(t, home(t))
	cfg.Hosts = []string{"api.example.com"}
	d := up(t, cfg)
	_, err := d.Previews().SetDomain(t.Context(), "nobody", "API.example.com", holt.PreviewDomainSpec{Port: 80})
	if holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), "name of the API") {
		t.Error(err)
	}
}
