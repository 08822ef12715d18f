package sshd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/crypto/ssh"

	"holt"
	"holt/internal/store/db"
)

// Schema makes the table of this package in the control database. Times are nanoseconds since 1970; 0 means never.
const Schema = `
CREATE TABLE ssh_key (
	id      TEXT PRIMARY KEY,
	name    TEXT NOT NULL,
	blob    BLOB NOT NULL,              -- the public key as it goes over the wire
	tenant  TEXT NOT NULL,              -- '' the person's whose daemon it is
	token   TEXT NOT NULL,              -- whose rights it has; '' of its tenant, or of the person
	agent   INTEGER NOT NULL,           -- it may forward an agent
	created INTEGER NOT NULL,
	used    INTEGER NOT NULL DEFAULT 0,
	UNIQUE (blob, tenant)               -- a public key is no secret: whoever adds it proves nothing, so it is no tenant's alone
) WITHOUT ROWID;
`

const (
	mostKeyName = 128
	mostKeys    = 1000 // of one tenant
	leastRSA    = 2048 // bits
	usedEvery   = time.Minute
)

// Keys is the store of public keys.
type Keys struct {
	db  *db.DB
	now func() time.Time

	mu   sync.Mutex
	held map[holt.SSHKeyID]map[*held]struct{} // connections by key
}

type held struct{ end context.CancelCauseFunc }

// NewKeys returns the keys of a control database with [Schema] and the tables of package access.
func NewKeys(d *db.DB) *Keys { return &Keys{db: d, now: time.Now} }

// parseKey parses a line of authorized_keys. It refuses weak keys and options.
func parseKey(line string) (key ssh.PublicKey, comment string, err error) {
	key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	switch {
	case strings.Contains(line, "PRIVATE KEY"):
		return nil, "", holt.Errorf(holt.InvalidArgument, "this is a private key").WithHint("keep it secret, and give the public key: the file that ends with .pub")
	case err != nil:
		return nil, "", holt.Errorf(holt.InvalidArgument, "invalid public key").WithHint("give the content of a file such as ~/.ssh/id_ed25519.pub; ssh-keygen -t ed25519 makes a key pair")
	case len(options) > 0:
		return nil, "", holt.Errorf(holt.InvalidArgument, "options of a key are not supported").WithHint("leave out everything before %s", key.Type())
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, "", holt.Errorf(holt.InvalidArgument, "there is more than one key").WithHint("add keys one at a time")
	}
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256:
		return key, comment, nil
	case ssh.KeyAlgoRSA:
		if n := rsaBits(key); n >= leastRSA {
			return key, comment, nil
		}
		return nil, "", holt.Errorf(holt.InvalidArgument, "an RSA key of less than %d bits is too weak", leastRSA).WithHint("make another: ssh-keygen -t ed25519")
	}
	return nil, "", holt.Errorf(holt.InvalidArgument, "keys of type %s are not supported", key.Type()).WithHint("make another: ssh-keygen -t ed25519")
}

// rsaBits returns the length of an RSA key's modulus, the third string of its wire format.
func rsaBits(key ssh.PublicKey) int {
	var wire struct {
		Name string
		E, N string
	}
	if ssh.Unmarshal(key.Marshal(), &wire) != nil {
		return 0
	}
	return len(strings.TrimLeft(wire.N, "\x00")) * 8
}

// Add stores a key for the caller. A key that a token adds has the token's rights and ends with it. The keys of other
// tenants have no effect and are not revealed.
//
// Errors: InvalidArgument, AlreadyExists (in the tenant), TooMany.
func (k *Keys) Add(ctx context.Context, spec holt.SSHKeySpec) (holt.SSHKey, error) {
	return k.AddBound(ctx, spec, func(*db.Tx, string) error { return nil })
}

// AddBound is Add, and calls bind with the key's id in the transaction that stores the key.
func (k *Keys) AddBound(ctx context.Context, spec holt.SSHKeySpec, bind func(tx *db.Tx, id string) error) (holt.SSHKey, error) {
	key, comment, err := parseKey(spec.Key)
	if err != nil {
		return holt.SSHKey{}, err
	}
	one := holt.SSHKey{
		ID: holt.NewSSHKeyID(), Name: cmp.Or(spec.Name, comment, key.Type()), Type: key.Type(), Fingerprint: ssh.FingerprintSHA256(key),
		AllowAgentForwarding: spec.AllowAgentForwarding, CreatedAt: time.Now().UTC(),
	}
	if len(one.Name) > mostKeyName || strings.ContainsFunc(one.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return holt.SSHKey{}, holt.Errorf(holt.InvalidArgument, "invalid name of a key").WithHint("a name has 1 to %d bytes of printable characters", mostKeyName)
	}
	if spec.Tenant != "" {
		if one.Tenant, err = holt.ParseTenant(spec.Tenant); err != nil {
			return holt.SSHKey{}, err
		}
	}
	in := holt.TenantOf(ctx)
	if actor, ok := holt.ActorOf(ctx); ok || in != holt.DefaultTenant { // a token, or a person who calls for a tenant
		if one.Tenant != "" && one.Tenant != in {
			return holt.SSHKey{}, holt.Errorf(holt.Forbidden, "only a person at the daemon's socket can add a key for another tenant").WithHint("leave --tenant out")
		}
		one.Tenant, one.Token = in, actor.Token
	}
	return one, k.insert(ctx, one, key.Marshal(), bind)
}

func (k *Keys) insert(ctx context.Context, one holt.SSHKey, blob []byte, bind func(tx *db.Tx, id string) error) error {
	var refused error
	err := k.db.WriteSync(ctx, func(tx *db.Tx) error {
		refused = nil
		if err := k.forget(tx); err != nil {
			return err
		}
		n := 0
		err := tx.Query(`SELECT (SELECT count(*) FROM ssh_key WHERE tenant = ?1), EXISTS (SELECT 1 FROM ssh_key WHERE blob = ?2 AND tenant = ?1)`, []any{one.Tenant, blob}, func(row *db.Row) error {
			n = int(row.Int64(0))
			if row.Int64(1) != 0 {
				refused = holt.Errorf(holt.AlreadyExists, "the key %s already exists", one.Fingerprint).WithHint("holt ssh-key list shows it")
			}
			return nil
		})
		if err != nil || refused != nil {
			return err
		}
		if n >= mostKeys {
			refused = holt.Errorf(holt.TooMany, "%d keys exist, the maximum", n).WithHint("delete one first: holt ssh-key delete")
			return nil
		}
		if err := bind(tx, string(one.ID)); err != nil {
			return err
		}
		return tx.Exec(`INSERT INTO ssh_key (id, name, blob, tenant, token, agent, created) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			one.ID, one.Name, blob, one.Tenant, one.Token, one.AllowAgentForwarding, one.CreatedAt.UnixNano())
	})
	if err != nil {
		return fmt.Errorf("add SSH key: %w", err)
	}
	return refused
}

// forget deletes the keys of tokens that are revoked or expired.
func (k *Keys) forget(tx *db.Tx) error {
	return tx.Exec(`DELETE FROM ssh_key WHERE token <> '' AND NOT EXISTS (SELECT 1 FROM token WHERE token.id = ssh_key.token AND (expires = 0 OR expires > ?))`, k.now().UnixNano())
}

// List returns the keys that the caller may see: a token, and a person who calls for a tenant, those of the tenant; a
// person at the daemon's socket all.
func (k *Keys) List(ctx context.Context) ([]holt.SSHKey, error) {
	_, limited := holt.ActorOf(ctx)
	limited = limited || holt.TenantOf(ctx) != holt.DefaultTenant
	return k.list(ctx, `WHERE NOT ? OR tenant = ? ORDER BY created, id`, limited, holt.TenantOf(ctx))
}

func (k *Keys) list(ctx context.Context, condition string, args ...any) ([]holt.SSHKey, error) {
	list := []holt.SSHKey{}
	err := k.db.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT id, name, blob, tenant, token, agent, created, used FROM ssh_key `+condition, args, func(row *db.Row) error {
			key, err := ssh.ParsePublicKey(row.Bytes(2))
			if err != nil {
				return fmt.Errorf("key %s: %w", row.Text(0), err)
			}
			list = append(list, holt.SSHKey{
				ID: holt.SSHKeyID(row.Text(0)), Name: row.Text(1), Type: key.Type(), Fingerprint: ssh.FingerprintSHA256(key),
				Tenant: row.Text(3), Token: holt.TokenID(row.Text(4)), AllowAgentForwarding: row.Int64(5) != 0,
				CreatedAt: time.Unix(0, row.Int64(6)).UTC(), LastUsedAt: timeOf(row.Int64(7)),
			})
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read SSH keys: %w", err)
	}
	return list, nil
}

func timeOf(ns int64) *time.Time {
	if ns == 0 {
		return nil
	}
	at := time.Unix(0, ns).UTC()
	return &at
}

// Get returns a key by its id.
//
// Errors: NotFound.
func (k *Keys) Get(ctx context.Context, id string) (holt.SSHKey, error) {
	list, err := k.list(ctx, `WHERE id = ?`, id)
	if err == nil && len(list) == 0 {
		err = noKey(id)
	}
	if err != nil {
		return holt.SSHKey{}, err
	}
	return list[0], nil
}

func noKey(ref string) error {
	return holt.Errorf(holt.NotFound, "there is no SSH key %q", holt.Clip(ref, 64)).WithHint("holt ssh-key list shows all keys")
}

// Delete deletes a key by id, or by a unique fingerprint or name. It ends the connections of the key.
func (k *Keys) Delete(ctx context.Context, ref string) (holt.SSHKey, error) {
	all, err := k.List(ctx)
	if err != nil {
		return holt.SSHKey{}, err
	}
	var found []holt.SSHKey
	for _, one := range all {
		if string(one.ID) == ref {
			found = []holt.SSHKey{one}
			break
		}
		if one.Name == ref || one.Fingerprint == ref {
			found = append(found, one)
		}
	}
	switch len(found) {
	case 0:
		return holt.SSHKey{}, noKey(ref)
	case 1:
	default:
		return holt.SSHKey{}, holt.Errorf(holt.Conflict, "%d keys have the name %q", len(found), holt.Clip(ref, 64)).WithHint("use the id, such as %s", found[0].ID)
	}
	err = k.db.WriteSync(ctx, func(tx *db.Tx) error { return tx.Exec(`DELETE FROM ssh_key WHERE id = ?`, found[0].ID) })
	if err != nil {
		return holt.SSHKey{}, fmt.Errorf("delete SSH key: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for h := range k.held[found[0].ID] {
		h.end(holt.Errorf(holt.Unauthenticated, "the key was deleted").WithHint("use another key"))
	}
	return found[0], nil
}

// find returns the records of a key, one for each tenant that has added it. That of a person at the socket is first.
func (k *Keys) find(ctx context.Context, key ssh.PublicKey) ([]holt.SSHKey, error) {
	return k.list(ctx, `WHERE blob = ? ORDER BY tenant`, key.Marshal())
}

// hold returns a context for a connection by a key, which ends when the key is deleted. The caller calls the returned
// function at the end of the connection.
func (k *Keys) hold(ctx context.Context, id holt.SSHKeyID) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	h := &held{end}
	k.mu.Lock()
	if k.held == nil {
		k.held = map[holt.SSHKeyID]map[*held]struct{}{}
	}
	if k.held[id] == nil {
		k.held[id] = map[*held]struct{}{}
	}
	k.held[id][h] = struct{}{}
	k.mu.Unlock()
	// The key may have been deleted between find and hold.
	if all, err := k.list(ctx, `WHERE id = ?`, id); err == nil && len(all) == 0 {
		end(holt.Errorf(holt.Unauthenticated, "the key was deleted"))
	}
	return ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if delete(k.held[id], h); len(k.held[id]) == 0 {
			delete(k.held, id)
		}
		end(context.Canceled)
	}
}

// touch records the last use of a key, with the precision usedEvery.
func (k *Keys) touch(ctx context.Context, one holt.SSHKey) {
	now := time.Now()
	if one.LastUsedAt != nil && now.Sub(*one.LastUsedAt) < usedEvery {
		return
	}
	// Errors are ignored: if the host's disk is full the caller must still get in to free space.
	_ = k.db.Write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE ssh_key SET used = ? WHERE id = ?`, now.UnixNano(), one.ID)
	})
}
