package main

import (
	"slices"
	"testing"

	"holt/cli"
)

// TestListenNamesTheAPI: a name that the API listens at is one of its names, as those of --host are.
func TestListenNamesTheAPI(t *testing.T) {
	for listen, want := range map[string][]string{
		"holt.example.com:443": {"a.example", "holt.example.com"}, "0.0.0.0:443": {"a.example"}, "[::]:443": {"a.example"}, ":443": {"a.example"}, "": {"a.example"},
	} {
		if got := hostsOf(cli.ServeOptions{Listen: listen, Hosts: []string{"a.example"}}); !slices.Equal(got, want) {
			t.Errorf("%q: %q", listen, got)
		}
	}
}
