package main

import (
	"net"
	"slices"
	"strings"
	"testing"

	"holt/internal/cli"
	"holt/internal/loopback"
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

// TestListenSaysWhichIsTaken: localhost is two addresses, and the error names the one that another program has.
func TestListenSaysWhichIsTaken(t *testing.T) {
	other, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, port, _ := net.SplitHostPort(other.Addr().String())
	if l, err := listenAt("localhost:"+port, "--listen", loopback.ListenAll); err == nil || !strings.Contains(err.Error(), "cannot listen on localhost:"+port+": [::1]:"+port+": bind: address already in use") {
		t.Errorf("%v, %v", l, err)
	}
}
