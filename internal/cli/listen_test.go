package cli

import (
	"strings"
	"testing"

	"holt"
)

func TestOnlyLoopbackWithoutTLS(t *testing.T) {
	for address, ok := range map[string]bool{
		"": true, "127.0.0.1:4646": true, "[::1]:4646": true, "localhost:0": true, "127.9.9.9:1": true,
		":4646": false, "0.0.0.0:4646": false, "[::]:4646": false, "192.0.2.7:80": false, "example.com:80": false, "4646": false, "localhost": false,
	} {
		err := checkListen("--listen", address, false)
		if ok != (err == nil) || err != nil && (holt.CodeOf(err) != holt.InvalidArgument || holt.AsError(err).Hint == "") {
			t.Errorf("%q: %v", address, err)
		}
		if err := checkListen("--listen", address, true); err != nil {
			t.Errorf("%q, and that is wanted: %v", address, err)
		}
	}
}

// TestListenAnywhereWithTLS: what is encrypted may be reached from other machines.
func TestListenAnywhereWithTLS(t *testing.T) {
	for args, want := range map[string]string{
		"--listen 0.0.0.0:4646 --tls-cert cert.pem --tls-key key.pem": "",
		"--listen 0.0.0.0:4646 --acme you@example.com":                "",
		"--listen 0.0.0.0:4646":                                       "--listen",
		"--preview-listen 0.0.0.0:4647":                               "--preview-listen",
		"--preview-listen 0.0.0.0:4647 --insecure-listen":             "",
		"--preview-listen off":                                        "",
	} {
		_, _, err := parsed(t, "", strings.Fields(args)...)
		if want == "" && err != nil || want != "" && (holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
