package preview

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"holt"
	"holt/internal/access"
)

const (
	keyBytes    = 32
	linkPrefix  = "pvt_"
	endBytes    = 8  // seconds since 1970
	mostMadeBy  = 64 // bytes of the id of an API token
	defaultLife = 12 * time.Hour
	mostLife    = 90 * 24 * time.Hour
)

// signer makes and checks the tokens of links: linkPrefix and, in base64url, the expiry, the id of the API token that
// made it ("": a person at the daemon's socket), and the HMAC-SHA256 of both with computer, port and serial.
type signer struct{ key [keyBytes]byte }

// openKey reads the key, or makes it.
func openKey(path string) (s signer, err error) {
	b, err := access.OpenKeyFile(path, "existing links")
	if err != nil {
		return s, fmt.Errorf("open the key of preview links: %w", err)
	}
	copy(s.key[:], b)
	return s, nil
}

func (s signer) mac(id holt.ComputerID, port int, serial string, payload []byte) []byte {
	h := hmac.New(sha256.New, s.key[:])
	fmt.Fprintf(h, "preview link 1\x00%s\x00%d\x00%s\x00", id, port, serial)
	h.Write(payload)
	return h.Sum(nil)
}

// sign makes a token for a port of a computer, valid while its preview has that serial.
func (s signer) sign(id holt.ComputerID, port int, serial string, end time.Time, madeBy holt.TokenID) string {
	payload := binary.BigEndian.AppendUint64(nil, uint64(end.Unix()))
	payload = append(payload, madeBy...)
	return linkPrefix + base64.RawURLEncoding.EncodeToString(append(payload, s.mac(id, port, serial, payload)...))
}

// linked is the content of a link's token.
type linked struct {
	end    time.Time
	madeBy holt.TokenID
}

// check checks a token. It returns false if the token is not for this port or has expired.
func (s signer) check(token string, id holt.ComputerID, port int, serial string, now time.Time) (linked, bool) {
	rest, ok := strings.CutPrefix(token, linkPrefix)
	if !ok || serial == "" || len(rest) > base64.RawURLEncoding.EncodedLen(endBytes+mostMadeBy+sha256.Size) {
		return linked{}, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(b) < endBytes+sha256.Size {
		return linked{}, false
	}
	payload, mac := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if !hmac.Equal(mac, s.mac(id, port, serial, payload)) {
		return linked{}, false
	}
	l := linked{time.Unix(int64(binary.BigEndian.Uint64(payload)), 0), holt.TokenID(payload[endBytes:])}
	return l, now.Before(l.end)
}

func newSerial() string {
	var b [10]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return base64.RawURLEncoding.EncodeToString(b[:])
}
