package preview

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"holt"
	"holt/internal/store/db"
)

// Browsers and curl resolve names below localhost themselves. Node, Python and Java use the host's resolver, which often
// cannot. So each preview also has its own loopback address. The address must be the request's Host: other names that
// resolve to it show nothing.

// addresses is the range of previews' addresses, a quarter of the loopback that programs do not commonly use.
var addresses = netip.MustParsePrefix("127.64.0.0/10")

const addressTries = 1024 // in 4 million

// addressOf parses the host of a request; 0: it is not a preview's address.
func addressOf(host string) uint32 {
	at, err := netip.ParseAddr(host)
	if err != nil || !addresses.Contains(at) {
		return 0
	}
	b := at.As4()
	return binary.BigEndian.Uint32(b[:])
}

func addressText(n uint32) string {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n))).String()
}

// address chooses an unused address for a port. It is derived from computer and port, since browsers store data of pages
// by address: a later preview of the port most likely gets the same address, and another computer does not.
func (t table) address(tx *db.Tx, id holt.ComputerID, port int) (uint32, error) {
	first := addresses.Addr().As4()
	sum := sha256.Sum256(fmt.Appendf(nil, "preview address 1\x00%s\x00%d", id, port))
	room := uint32(1)<<(32-addresses.Bits()) - 1
	at := binary.BigEndian.Uint32(sum[:]) & room
	for range addressTries {
		n := binary.BigEndian.Uint32(first[:]) | at
		had, err := t.rows(tx, `WHERE address = ?`, n)
		if err != nil || len(had) == 0 && n != linksAddress {
			return n, err
		}
		at = (at + 1) & room
	}
	return 0, holt.Errorf(holt.TooMany, "no loopback address is free for this preview").WithHint("delete previews that are no longer needed")
}

// atAddress returns the computer and port of the preview with an address, if there is one.
func (t table) atAddress(ctx context.Context, n uint32) (h Host, found bool, err error) {
	err = t.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT computer, port FROM preview WHERE address = ?`, []any{n}, func(r *db.Row) error {
			h, found = Host{ID: holt.ComputerID(r.Text(0)), Port: int(r.Int64(1))}, true
			return nil
		})
	})
	return h, found, wrap("read the preview", err)
}

// ListensAtLoopback sets the listener without TLS that serves all loopback addresses. Only the first call has an effect.
func (s *Store) ListensAtLoopback(addr net.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, port, err := net.SplitHostPort(addr.String()); err == nil && s.loopback == "" {
		s.loopback = port
	}
}

// programURL returns a URL of a preview that every program can resolve, or "".
func (s *Store) programURL(c holt.Computer, r row) string {
	return s.forPrograms(s.urlOf(c, r.port), r.address)
}

// forPrograms returns the URL of a host with an address, at, as every program can resolve it, or "".
func (s *Store) forPrograms(at string, address uint32) string {
	if at == "" || s.cfg.Place.Domain != "localhost" { // a domain in the DNS
		return at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loopback == "" || address == 0 {
		return ""
	}
	return Place{Scheme: "http", Port: s.loopback}.url(addressText(address))
}
