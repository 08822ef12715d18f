package cli

import (
	"net"

	"holt"
)

// checkListen refuses an address that other machines can reach, unless insecure is set: without TLS, tokens could be
// read on the network.
func checkListen(flag, address string, insecure bool) error {
	if address == "" || insecure {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return holt.Errorf(holt.InvalidArgument, "%s: %q is not a TCP address", flag, holt.Clip(address, 80)).WithHint("use HOST:PORT, such as localhost:4646")
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return holt.Errorf(holt.InvalidArgument, "%s %s: other machines can reach this address, and tokens would be sent to it unencrypted", flag, address).
		WithHint("set --tls-cert and --tls-key, or --acme; or listen on localhost behind a proxy with TLS; or accept it with --insecure-listen")
}
