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
	for _, previews := range []PreviewOptions{{Cert: "cert.pem", Key: "key.pem"}, {ACME: "you@example.com"}} {
		f := upFlags{engine: "local", listen: "0.0.0.0:4646", cache: "1M", keepLast: 2, previews: previews, watch: watchFlags{format: "text", level: "info"}}
		if _, err := f.options(Place{}); err != nil {
			t.Errorf("%+v: %v", previews, err)
		}
	}
	f := upFlags{engine: "local", listen: "0.0.0.0:4646", cache: "1M", keepLast: 2, watch: watchFlags{format: "text", level: "info"}}
	if _, err := f.options(Place{}); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("without TLS: %v", err)
	}
	f.listen, f.previews.Listen = "", "0.0.0.0:4647"
	if _, err := f.options(Place{}); holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), "--preview-listen") {
		t.Errorf("previews without TLS: %v", err)
	}
	f.insecure = true
	if opt, err := f.options(Place{}); err != nil || opt.Previews.Listen != "0.0.0.0:4647" {
		t.Errorf("previews without TLS, and that is wanted: %v", err)
	}
	f.insecure, f.previews.Listen = false, "off"
	if _, err := f.options(Place{}); err != nil {
		t.Errorf("no previews: %v", err)
	}
}
