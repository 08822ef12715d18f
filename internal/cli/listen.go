package cli

import (
	"net"

	"holt"
)

// checkListen refuses an address that others than this machine can reach, unless that is wanted: what is sent
// there, tokens too, could be read on its way. flag is whose it is.
func checkListen(flag, address string, insecure bool) error {
	if address == "" || insecure {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return holt.Errorf(holt.InvalidArgument, "%s %q is not an address to listen on", flag, holt.Clip(address, 80)).WithHint("give host:port, as localhost:4646")
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return holt.Errorf(holt.InvalidArgument, "%s %s can be reached from other machines, and what is sent there is not encrypted, nor are tokens", flag, address).
		WithHint("give --tls-cert and --tls-key, or --acme; or listen on localhost behind a proxy that speaks TLS; --insecure-listen listens all the same")
}
