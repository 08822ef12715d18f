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

// Browsers and curl resolve names below localhost themselves; Node, Python and Java ask the host's resolver, which mostly does not
// know them. So each preview also has an address of the loopback of its own, which is a name for it like the others: it counts when it
// is the request's Host, and so no other name that somebody has lead there shows anything.

// AddressSchema gives each preview an address; 0: it has none yet.
const AddressSchema = `
ALTER TABLE preview ADD COLUMN address INTEGER NOT NULL DEFAULT 0; -- an IPv4 address as a number
CREATE UNIQUE INDEX preview_address ON preview (address) WHERE address <> 0;
`

// addresses are those that previews have: a quarter of the loopback, which no other program uses by custom.
var addresses = netip.MustParsePrefix("127.64.0.0/10")

const addressTries = 1024 // in 4 million

// addressOf reads the host of a request; 0: it is none of a preview.
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

// address chooses that of a port, which no other preview has. It follows from the computer and the port, so that the next preview
// of a port is most likely at the same, and that of another computer is not: browsers keep what pages store by address.
func (t table) address(tx *db.Tx, id holt.ComputerID, port int) (uint32, error) {
	first := addresses.Addr().As4()
	sum := sha256.Sum256(fmt.Appendf(nil, "preview address 1\x00%s\x00%d", id, port))
	room := uint32(1)<<(32-addresses.Bits()) - 1
	at := binary.BigEndian.Uint32(sum[:]) & room
	for range addressTries {
		n := binary.BigEndian.Uint32(first[:]) | at
		had, err := t.rows(tx, `WHERE address = ?`, n)
		if err != nil || len(had) == 0 {
			return n, err
		}
		at = (at + 1) & room
	}
	return 0, holt.Errorf(holt.TooMany, "no loopback address is free for this preview").WithHint("delete previews that are not needed")
}

// atAddress returns the computer and port of the preview with an address; false if there is none.
func (t table) atAddress(ctx context.Context, n uint32) (h Host, found bool, err error) {
	err = t.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT computer, port FROM preview WHERE address = ?`, []any{n}, func(r *db.Row) error {
			h, found = Host{ID: holt.ComputerID(r.Text(0)), Port: int(r.Int64(1))}, true
			return nil
		})
	})
	return h, found, wrap("read the preview", err)
}

// ListensAtLoopback says that a listener without TLS answers at every address of the loopback.
func (s *Store) ListensAtLoopback(addr net.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, port, err := net.SplitHostPort(addr.String()); err == nil && s.loopback == "" {
		s.loopback = port
	}
}

// programURL is where programs reach a preview whatever the host's resolver knows; "": nowhere.
func (s *Store) programURL(c holt.Computer, r row) string {
	at := s.urlOf(c, r.port)
	if at == "" || s.cfg.Place.Domain != "localhost" { // a domain that the DNS has
		return at
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loopback == "" || r.address == 0 {
		return ""
	}
	return Place{Scheme: "http", Port: s.loopback}.url(addressText(r.address))
}
